#include "agent/hang/hang_text.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "agent/report/text.h"
#include "rendezvous/base/text.h"

namespace muster::hang {
namespace {

constexpr size_t kSuspectsShown = 4;
constexpr size_t kTextCharacters = 200;  // Per text of a worker.

std::string cleaned(std::string_view raw) {
  return clean_line(raw, kTextCharacters);
}

Finding cleaned(Finding finding) {
  finding.site = cleaned(finding.site);
  for (Suspect& suspect : finding.ranks) {
    for (std::string* text : {&suspect.site, &suspect.section})
      *text = cleaned(*text);
  }
  return finding;
}

const char* kind_text(const ring::Call& call) {
  return call.kind == ring::CallKind::unknown ? "call" : name_of(call.kind);
}

// "sum of 8 float32"; empty: nothing, or unknown.
std::string data_text(const ring::Call& call, bool with_reduction = true) {
  const std::string data = describe_data(call);
  const bool has_reduction = with_reduction && call.reduction != ring::Reduction::unknown;
  return data.empty() || !has_reduction ? data
                                        : fmt::format("{} of {}", name_of(call.reduction), data);
}

std::string whole_kind_text(const ring::Call& call) {
  return call.kind == ring::CallKind::unknown ? "call" : describe(call);
}

std::string message_text(const Operation& operation) {
  return fmt::format("{} {}", operation.kind == Operation::Kind::recv ? "recv from" : "send to",
                     operation.peer < 0 ? "any rank" : fmt::format("rank {}", operation.peer));
}

std::string title_of(const GroupName& group) {
  return group_title(cleaned(group.text), group.ranks);
}

// With the data: "all_reduce #17 of group 'world' (sum of 8 float32)".
std::string whole_call_text(const Operation& operation) {
  const std::string data = data_text(operation.call);
  return call_text(operation) + (data.empty() ? data : fmt::format(" ({})", data));
}

std::string called_at(const std::string& site) {
  return site.empty() ? site : " at " + site;
}

std::string described(int rank, const PlaceOf& place_of) {
  return described_rank(rank, place_of(rank));
}

std::string described(const std::vector<int>& ranks, const PlaceOf& place_of) {
  return ranks.size() == 1 ? described(ranks.front(), place_of) : ranks_text(ranks);
}

std::vector<int> late_ranks(const Finding& finding) {
  std::vector<int> ranks;
  for (const Suspect& suspect : finding.ranks)
    ranks.push_back(suspect.rank);
  std::ranges::sort(ranks);
  return ranks;
}

std::vector<int> waiting_ranks(const Finding& finding) {
  const std::vector<int> late = late_ranks(finding);
  std::vector<int> ranks = finding.waiting;
  std::erase_if(ranks, [&](int rank) { return std::ranges::binary_search(late, rank); });
  std::ranges::sort(ranks);
  return ranks;
}

// "rank 3 has", "7 ranks have"; `one` and `many` are forms of the verb.
std::string waiters(const Finding& finding, const char* ranks, const char* one, const char* many) {
  const std::vector<int> waiting = waiting_ranks(finding);
  if (waiting.size() == 1) return fmt::format("rank {} {}", waiting.front(), one);
  return fmt::format("{} {} {}", waiting.size(), ranks, many);
}

// "; 7 other ranks have waited 12.4 s"
std::string have_waited(const Finding& finding) {
  if (waiting_ranks(finding).empty()) return {};
  return fmt::format("; {} waited {}", waiters(finding, "other ranks", "has", "have"),
                     duration_text(finding.waited));
}

// Verbs for the late ranks.
struct Verb {
  explicit Verb(const Finding& finding) : many(finding.ranks.size() != 1) {}
  const char* has() const { return many ? "have" : "has"; }
  const char* is() const { return many ? "are" : "is"; }
  bool many;
};

bool do_the_same(const Suspect& a, const Suspect& b) {
  return a.life == b.life && a.ended == b.ended;
}

bool is_unknown(const Suspect& suspect) {
  return !suspect.ended && suspect.life == Life{};
}

// "blocked in read()", "exited with 0"; empty: unknown.
std::string life_text(const Suspect& suspect) {
  return suspect.ended ? describe(*suspect.ended) : cleaned(describe(suspect.life));
}

// Returns the first suspect if its state is known and that of all others, else nullptr.
const Suspect* common_life(const Finding& finding) {
  if (finding.ranks.empty() || is_unknown(finding.ranks.front())) return nullptr;
  const auto same = [&](const Suspect& one) { return do_the_same(one, finding.ranks.front()); };
  return std::ranges::all_of(finding.ranks, same) ? &finding.ranks.front() : nullptr;
}

// Returns true if "is" may precede its words: not "its process is hidden", "waits in read()".
bool follows_is(const Suspect& suspect) {
  return suspect.ended || suspect.life.state != LifeState::unknown;
}

// "; rank 5 is blocked in read()", "; rank 5: waits in read()"
std::string what_they_do(const Finding& finding) {
  const Suspect* const common = common_life(finding);
  if (common == nullptr) return {};
  const std::string who = ranks_text(late_ranks(finding));
  return follows_is(*common)
             ? fmt::format("; {} {} {}", who, Verb(finding).is(), life_text(*common))
             : fmt::format("; {}: {}", who, life_text(*common));
}

// "; rank 2 has another group of these ranks: ..."; empty: they have not.
std::string what_they_have(const Finding& finding) {
  const bool have =
      !finding.ranks.empty() && std::ranges::all_of(finding.ranks, &Suspect::has_another);
  return !have ? ""
               : fmt::format(
                     "; {} {} another group of these ranks: all ranks must call new_group() "
                     "for each group, in the same order",
                     ranks_text(late_ranks(finding)), Verb(finding).has());
}

// The deed that the late ranks have not done.
struct Deed {
  const char* done;
  const char* doing;
};

bool is_in_store(const Operation& operation) {
  return is_one_of(operation.kind, {Operation::Kind::store_key, Operation::Kind::store_barrier});
}

bool is_forming(const Finding& finding) {
  return finding.operation.kind == Operation::Kind::forming;
}

Deed missing_deed(const Finding& finding) {
  if (is_in_store(finding.operation)) return {"set", "setting"};
  const auto inside = std::ranges::count(finding.ranks, true, &Suspect::is_inside);
  if (is_forming(finding) && inside == 0) return {"begun to form", "beginning to form"};
  if (is_forming(finding)) return {"formed", "forming"};
  if (inside > 0 && inside == std::ssize(finding.ranks)) return {"completed", "completing"};
  if (inside > 0) return {"called or completed", "calling or completing"};
  if (finding.operation.ordinal == 0) return {"taken part in", "taking part in"};
  return {"called", "calling"};
}

std::string object_text(const Finding& finding) {
  return is_forming(finding) ? title_of(finding.operation.group)
                             : whole_call_text(finding.operation);
}

std::string have_not_called(const Finding& finding) {
  return fmt::format("{} not {} {}", Verb(finding).has(), missing_deed(finding).done,
                     object_text(finding));
}

// ---- predicates of late ranks, one for each class about them

std::string late_predicate(const Finding& finding) {
  const bool never_entered = finding.what == Class::never_entered &&
                             finding.operation.ordinal > 0 &&
                             std::ranges::none_of(finding.ranks, &Suspect::is_inside);
  return (never_entered ? "never entered " + whole_call_text(finding.operation)
                        : have_not_called(finding)) +
         have_waited(finding) + what_they_do(finding) + what_they_have(finding);
}

// "exited with 0", "was killed by SIGKILL"; "ended" if the ways differ or are unknown.
std::string how_they_ended(const Finding& finding) {
  const Suspect* const common = common_life(finding);
  if (common == nullptr || !common->ended) return "ended";
  const bool is_killed = common->ended->kind == ExitStatus::Kind::signaled;
  const char* const verb = !is_killed ? "" : Verb(finding).many ? "were " : "was ";
  return verb + describe(*common->ended);
}

std::string exited_predicate(const Finding& finding) {
  std::string line = fmt::format("{} without {} {}", how_they_ended(finding),
                                 missing_deed(finding).doing, object_text(finding));
  if (waiting_ranks(finding).empty()) return line;
  return line + ", for which " + waiters(finding, "ranks", "waits", "wait");
}

std::string stopped_predicate(const Finding& finding, const PlaceOf& place_of) {
  const std::vector<int> late = late_ranks(finding);
  const Verb verb(finding);
  const Suspect* const common = common_life(finding);
  if (common != nullptr && !common->life.thawing.empty())
    return fmt::format("{} {} and {}{}", verb.is(), life_text(*common), have_not_called(finding),
                       have_waited(finding));
  const pid_t pid = verb.many ? 0 : place_of(late.front()).pid;
  const std::string resume = pid > 0 ? fmt::format("`kill -CONT {}`", pid) : "SIGCONT";
  return fmt::format("{} stopped by a signal (SIGSTOP) and {}{}; resume {} with {}", verb.is(),
                     have_not_called(finding), have_waited(finding), verb.many ? "them" : "it",
                     resume);
}

bool is_about_late_ranks(const Finding& finding) {
  return is_late(finding.what) || finding.what == Class::exited;
}

std::string predicate(const Finding& finding, const PlaceOf& place_of) {
  const bool is_mixed = std::ranges::any_of(
      finding.ranks, [&](const Suspect& suspect) { return suspect.what != finding.what; });
  if (!is_mixed && finding.what == Class::exited) return exited_predicate(finding);
  if (!is_mixed && finding.what == Class::stopped) return stopped_predicate(finding, place_of);
  return late_predicate(finding);
}

// ---- a line for each of the other classes

// Ranks that made the same call.
struct Camp {
  std::vector<int> ranks;
  ring::Call call;
};

std::vector<Camp> camps_of(const Finding& finding) {
  std::vector<Camp> camps;
  for (const Suspect& suspect : finding.ranks) {
    const ring::Call call = suspect.call ? suspect.call->call : ring::Call{};
    const auto camp = std::ranges::find(camps, call, &Camp::call);
    if (camp != camps.end()) {
      camp->ranks.push_back(suspect.rank);
    } else {
      camps.push_back({{suspect.rank}, call});
    }
  }
  if (!finding.is_tie) camps.push_back({{}, finding.operation.call});
  for (Camp& camp : camps)
    std::ranges::sort(camp.ranks);
  return camps;
}

// A mismatch that only hashes show: which call differs is unknown.
std::string hidden_mismatch_line(const Finding& finding, const PlaceOf& place_of) {
  const std::vector<int> ranks = late_ranks(finding);
  return fmt::format("the calls of {} in {} {}, somewhere from #{} to #{}",
                     finding.is_tie ? ranks_text(ranks) : described(ranks, place_of),
                     title_of(finding.operation.group),
                     finding.is_tie ? "differ" : "differ from those of the others",
                     finding.from_ordinal, finding.operation.ordinal) +
         (finding.is_tie ? "; which of them is wrong is unknown" : "");
}

// The predicate of the first camp: "called all_reduce #17 of group 'world' with 8 float32, the
// others with 16 float32".
std::string what_camps_called(const Finding& finding, std::vector<Camp> camps,
                              const PlaceOf& place_of) {
  const ring::Call& first = camps.front().call;
  const bool one_kind = std::ranges::all_of(camps, [&](const Camp& camp) {
    return camp.call.kind == first.kind && !describe_data(camp.call).empty();
  });
  // A reduction that all share is left out.
  const bool reductions_differ = std::ranges::any_of(
      camps, [&](const Camp& camp) { return camp.call.reduction != first.reduction; });
  const auto made = [&](const ring::Call& call) {
    return one_kind ? "with " + data_text(call, reductions_differ) : whole_kind_text(call);
  };
  std::string line =
      one_kind ? fmt::format("called {} {}", call_text(finding.operation), made(first))
               : fmt::format("called {} as #{} of {}", made(first), finding.operation.ordinal,
                             title_of(finding.operation.group));
  for (size_t i = 1; i < camps.size(); ++i) {
    if (i == kSuspectsShown && i + 1 < camps.size()) {
      line += ", and so on";
      break;
    }
    const Camp& camp = camps[i];
    line +=
        fmt::format(", {} {}", camp.ranks.empty() ? "the others" : described(camp.ranks, place_of),
                    made(camp.call));
  }
  if (finding.what == Class::order) line += ": the same calls in another order";
  if (finding.is_tie) line += "; which of them is wrong is unknown";
  return line;
}

std::string mismatch_line(const Finding& finding, const PlaceOf& place_of) {
  if (finding.from_ordinal > 0) return hidden_mismatch_line(finding, place_of);
  std::vector<Camp> camps = camps_of(finding);
  const std::string who = described(camps.front().ranks, place_of);
  return fmt::format("{} {}", who, what_camps_called(finding, std::move(camps), place_of));
}

std::string circle_line(const Finding& finding, const PlaceOf& place_of) {
  std::vector<std::string> links;
  for (size_t i = 0; i < std::min(finding.ranks.size(), kSuspectsShown); ++i) {
    const Suspect& suspect = finding.ranks[i];
    const int next = finding.ranks[(i + 1) % finding.ranks.size()].rank;
    const std::string in = suspect.call ? " in " + call_text(*suspect.call) : "";
    links.push_back(fmt::format("{}{} for rank {}", described(suspect.rank, place_of), in, next));
  }
  std::string line = fmt::format("ranks wait for each other: {}", fmt::join(links, ", "));
  if (finding.ranks.size() > kSuspectsShown)
    line += fmt::format(", and so on through {} ranks", finding.ranks.size());
  if (waiting_ranks(finding).empty()) return line;
  return line + "; " + waiters(finding, "other ranks", "waits", "wait") + " for them";
}

std::string incomplete_line(const Finding& finding, const PlaceOf& place_of) {
  const std::string what =
      is_forming(finding)
          ? fmt::format("begun to form {}, and it is not ready after", object_text(finding))
          : fmt::format("called {}, and it has not ended for", object_text(finding));
  std::string line = fmt::format("all members have {} {}", what, duration_text(finding.waited));
  if (finding.ranks.empty()) return line;
  return line + fmt::format("; {} {} still in it", described(late_ranks(finding), place_of),
                            Verb(finding).is());
}

// "ranks 0-1 have waited 10.0 s for the key 'go/2' in the job's store, which rank 2 has not set;
// rank 2 is sleeping in clock_nanosleep()"
std::string key_line(const Finding& finding, const PlaceOf& place_of) {
  const std::vector<int> late = late_ranks(finding);
  std::string clause = "which no rank has set";
  if (finding.operation.kind == Operation::Kind::store_barrier) {
    clause = "to which not all have come";
  } else if (!late.empty() && finding.doubt.why == Doubt::Why::none) {
    clause = fmt::format("which {} {} not set", described(late, place_of), Verb(finding).has());
  }
  return fmt::format("{} {} waited {} for {}, {}{}", ranks_text(finding.waiting),
                     finding.waiting.size() == 1 ? "has" : "have", duration_text(finding.waited),
                     call_text(finding.operation), clause,
                     finding.what == Class::exited
                         ? fmt::format("; {} {}", ranks_text(late), how_they_ended(finding))
                         : what_they_do(finding));
}

std::string finding_line(const Finding& finding, const PlaceOf& place_of) {
  if (is_about_late_ranks(finding))
    return fmt::format("{} {}", described(late_ranks(finding), place_of),
                       predicate(finding, place_of));
  if (finding.what == Class::circle) return circle_line(finding, place_of);
  if (finding.what == Class::incomplete) return incomplete_line(finding, place_of);
  return mismatch_line(finding, place_of);
}

// Says why a verdict is not certain.
std::string doubt_text(const Finding& finding) {
  const std::vector<int>& ranks = finding.doubt.ranks;
  const bool is_one = ranks.size() == 1;
  switch (finding.doubt.why) {
    case Doubt::Why::none:
      break;
    case Doubt::Why::records_nothing:
      return fmt::format("; not certain: {} {} nothing that helps", ranks_text(ranks),
                         is_one ? "records" : "record");
    case Doubt::Why::also_late:
      return fmt::format("; not certain: {} {} late as well", ranks_text(ranks),
                         is_one ? "is" : "are");
    case Doubt::Why::unknown_setter:
      return {};
    case Doubt::Why::unknown_members:
      return "; not certain: some members of the group are unknown";
  }
  if (!is_late(finding.what) || common_life(finding) != nullptr) return {};
  return fmt::format("; not certain: what {} {} is unknown", ranks_text(late_ranks(finding)),
                     Verb(finding).many ? "do" : "does");
}

// ---- the further lines of a verdict

std::string call_and_site(const Finding& finding, const Suspect& suspect) {
  const std::string at = called_at(suspect.site);
  switch (finding.what) {
    case Class::signature:
    case Class::order:
      return at.empty() ? at : "called it" + at;
    case Class::circle:
    case Class::incomplete:
      return at.empty() ? at : "is in it" + at;
    default:
      if (!suspect.call) return at.empty() ? at : "last call" + at;
      return "last call: " + call_text(*suspect.call) + at;
  }
}

std::string suspect_line(const Finding& finding, const Suspect& suspect, const PlaceOf& place_of) {
  std::vector<std::string> facts;
  const bool is_alone = finding.ranks.size() == 1;
  if (!is_alone && !is_unknown(suspect)) facts.push_back(life_text(suspect));
  if (std::string call = call_and_site(finding, suspect); !call.empty())
    facts.push_back(std::move(call));
  if (!suspect.section.empty()) facts.push_back(fmt::format("in section '{}'", suspect.section));
  if (facts.empty()) return {};
  const std::string who =
      is_alone ? fmt::format("rank {}", suspect.rank) : described(suspect.rank, place_of);
  return fmt::format("\n  {}: {}", who, fmt::join(facts, "; "));
}

std::string suspect_lines(const Finding& finding, const PlaceOf& place_of) {
  std::string lines;
  for (size_t i = 0; i < std::min(finding.ranks.size(), kSuspectsShown); ++i)
    lines += suspect_line(finding, finding.ranks[i], place_of);
  if (!lines.empty() && finding.ranks.size() > kSuspectsShown)
    lines += fmt::format("\n  and {} more", finding.ranks.size() - kSuspectsShown);
  return lines;
}

std::string waiting_line(const Finding& finding) {
  const std::vector<int> waiting = waiting_ranks(finding);
  if (waiting.empty()) return {};
  return fmt::format("\n  waiting: {}{}", ranks_text(waiting), called_at(finding.site));
}

std::string advice(const Finding& finding, const std::string& job, bool goes_on) {
  if (finding.is_over) return {};
  std::vector<int> ranks = late_ranks(finding);
  ranks.resize(std::min(ranks.size(), kSuspectsShown));
  return fmt::format(
      "\n  the last calls: musterctl records {} --ranks {}{}", cleaned(job), rank_ranges(ranks),
      goes_on ? "\n  the job goes on; stop it with Ctrl-C, or with SIGTERM to muster" : "");
}

}  // namespace

std::string described_rank(int rank, const RankPlace& place) {
  const std::string device = cleaned(place.device);
  std::vector<std::string> facts;
  if (!place.host.empty()) facts.push_back(cleaned(place.host));
  if (!device.empty()) facts.push_back(device.substr(0, device.find(" (")));
  if (place.pid > 0) facts.push_back(fmt::format("pid {}", place.pid));
  return facts.empty() ? fmt::format("rank {}", rank)
                       : fmt::format("rank {} ({})", rank, fmt::join(facts, ", "));
}

std::string call_text(const Operation& operation) {
  const std::string group = title_of(operation.group);
  if (is_in_store(operation))
    return fmt::format(
        "the {} '{}'{} in the job's store",
        operation.kind == Operation::Kind::store_key ? "key" : "barrier", cleaned(operation.key),
        operation.more_keys == 0 ? "" : fmt::format(" and {} more", operation.more_keys));
  switch (operation.kind) {
    case Operation::Kind::collective:
      return fmt::format("{} #{} of {}", kind_text(operation.call), operation.ordinal, group);
    case Operation::Kind::forming:
      return fmt::format("forming {}", group);
    default:
      return fmt::format("{} in {}", message_text(operation), group);
  }
}

std::string operation_text(const Finding& finding) {
  const Operation& operation = finding.operation;
  if (operation.kind == Operation::Kind::forming) return "forming the group";
  if (is_in_store(operation)) return call_text(operation);
  if (operation.kind != Operation::Kind::collective) return message_text(operation);
  if (finding.from_ordinal > 0)
    return fmt::format("one of the calls #{} to #{}", finding.from_ordinal, operation.ordinal);
  return whole_kind_text(operation.call);
}

std::string status_text(const Status& status, Instant now) {
  const std::string call = call_text(status.operation);
  const std::string time = duration_text(now - status.since);
  const std::string late = ranks_text(status.late);
  if (status.is_circle)
    return fmt::format("{} wait for each other in {}, for {}", late, call, time);
  if (status.late.empty()) return fmt::format("all members are in {}, for {}", call, time);
  return fmt::format("{} {} for {} in {}, for {}", counted(status.waiting, "rank"),
                     status.waiting == 1 ? "waits" : "wait", late, call, time);
}

std::string notice_text(const Finding& raw, const PlaceOf& place_of) {
  const Finding finding = cleaned(raw);
  if (is_in_store(finding.operation)) return key_line(finding, place_of);
  if (!is_about_late_ranks(finding)) return finding_line(finding, place_of);
  const std::vector<int> late = late_ranks(finding);
  const Suspect* const common = common_life(finding);
  const Verb verb(finding);
  std::string fact = fmt::format("{} not {} it", verb.has(), missing_deed(finding).done);
  if (finding.what == Class::exited) {
    fact = how_they_ended(finding);
  } else if (common != nullptr) {
    const std::string life = life_text(*common);
    fact += follows_is(*common) ? fmt::format(" and {} {}", verb.is(), life) : ": " + life;
  }
  return fmt::format("{} waited {} for {} in {}{}; {} {}", waiters(finding, "ranks", "has", "have"),
                     duration_text(finding.waited), described(late, place_of),
                     whole_call_text(finding.operation), called_at(finding.site), ranks_text(late),
                     fact) +
         what_they_have(finding);
}

std::string wait_ended_text(const WaitEnded& ended, const Finding& notice) {
  const std::string call = call_text(notice.operation);
  const std::string after = duration_text(ended.waited);
  const std::string deed = missing_deed(notice).done;
  if (is_in_store(notice.operation))
    return ended.have_come && notice.operation.kind == Operation::Kind::store_key
               ? fmt::format("{} was set after {}", call, after)
               : fmt::format("the wait for {} is over after {}", call, after);
  if (ended.have_come && is_late(notice.what) && notice.operation.ordinal > 0) {
    return fmt::format("{} {} {} after {}", ranks_text(ended.ranks),
                       deed == "called" ? "came to" : deed, call, after);
  }
  const std::string whom = ended.ranks.empty() ? "" : " for " + ranks_text(ended.ranks);
  return fmt::format("the wait{} in {} is over after {}", whom, call, after);
}

std::string verdict_line(const Finding& raw, const PlaceOf& place_of) {
  const Finding finding = cleaned(raw);
  const std::string line = finding_line(finding, place_of);
  if (finding.confidence == Confidence::high) return line;
  const char* const how_sure = finding.confidence == Confidence::medium ? "probably" : "possibly";
  return fmt::format("{} {}{}", how_sure, line, doubt_text(finding));
}

std::string verdict_text(const Finding& raw, const PlaceOf& place_of, const std::string& job,
                         bool goes_on) {
  const Finding finding = cleaned(raw);
  return verdict_line(finding, place_of) + suspect_lines(finding, place_of) +
         waiting_line(finding) + advice(finding, job, goes_on);
}

std::string mismatch_cause(const Finding& raw, int rank) {
  const Finding finding = cleaned(raw);
  if (finding.from_ordinal > 0) {
    return fmt::format("made other calls in {} than the others, somewhere from #{} to #{}{}",
                       title_of(finding.operation.group), finding.from_ordinal,
                       finding.operation.ordinal,
                       finding.is_tie ? "; which of them are wrong is unknown" : "");
  }
  std::vector<Camp> camps = camps_of(finding);
  const auto own = std::ranges::find_if(
      camps, [&](const Camp& camp) { return std::ranges::count(camp.ranks, rank) > 0; });
  if (own == camps.end()) return {};
  std::rotate(camps.begin(), own, own + 1);
  std::vector<int> partners = camps.front().ranks;
  std::erase(partners, rank);
  return (partners.empty() ? "" : fmt::format("and {} ", ranks_text(partners))) +
         what_camps_called(finding, std::move(camps), [](int) { return RankPlace(); });
}

std::string hang_cause(const Finding& raw, int rank) {
  const Finding finding = cleaned(raw);
  const auto nowhere = [](int) { return RankPlace(); };
  const bool is_alone = finding.ranks.size() == 1 && finding.ranks.front().rank == rank;
  return is_alone && is_about_late_ranks(finding) && finding.confidence == Confidence::high
             ? predicate(finding, nowhere)
             : "is part of a hang: " + verdict_line(raw, nowhere);
}

std::string stragglers_text(const Stragglers& stragglers, const PlaceOf& place_of) {
  std::string text = fmt::format("stragglers of the last {}:", duration_text(stragglers.time));
  for (const Straggler& one : stragglers.ranks) {
    const std::string waited =
        one.waited < std::chrono::milliseconds(10)
            ? fmt::format("{:.2f} ms",
                          std::chrono::duration<double, std::milli>(one.waited).count())
            : duration_text(one.waited);
    text +=
        fmt::format("{} {} made the {} of {} wait {:.0f} % of the time ({} in each of {} calls)",
                    &one == &stragglers.ranks.front() ? "" : ";",
                    one.is_node ? fmt::format("the ranks of {}", cleaned(place_of(one.rank).host))
                                : described(one.rank, place_of),
                    one.others == 1 ? "other rank" : fmt::format("{} others", one.others),
                    group_title(cleaned(one.group)), one.share * 100, waited, one.calls);
  }
  const bool is_unsure =
      stragglers.ranks.size() > 1 && std::ranges::any_of(stragglers.ranks, &Straggler::hides_waits);
  return text + (is_unsure ? "; it does not show which of them waited for another one" : "");
}

std::string withdrawn_text(const Withdrawn& withdrawn, const Finding& verdict) {
  std::string text = fmt::format("{} went on: the verdict on {} is withdrawn",
                                 ranks_text(withdrawn.ranks), call_text(verdict.operation));
  if (withdrawn.limit > Duration{0})
    text += "; from now on the limit is " + duration_text(withdrawn.limit);
  return text;
}

}  // namespace muster::hang
