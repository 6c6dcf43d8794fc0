#include "agent/hang/hang_text.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "agent/hang/life.h"
#include "agent/report/text.h"
#include "rendezvous/base/text.h"

namespace muster::hang {
namespace {

constexpr size_t kSuspectsShown = 4;
constexpr size_t kTextCharacters = 200;  // Of one text of a worker.

std::string cleaned(std::string_view raw) {
  return clean_line(raw, kTextCharacters);
}

Finding cleaned(Finding finding) {
  for (std::string* text : {&finding.group, &finding.operation, &finding.site, &finding.doubt})
    *text = cleaned(*text);
  for (Suspect& suspect : finding.ranks) {
    for (std::string* text : {&suspect.life, &suspect.call, &suspect.site, &suspect.section})
      *text = cleaned(*text);
  }
  return finding;
}

// "all_reduce (sum) of 8 float32" is all_reduce and "sum of 8 float32".
struct Operation {
  std::string kind;
  std::string what;
};

Operation operation_of(std::string_view text) {
  const size_t space = text.find(' ');
  if (space == std::string_view::npos) return {std::string(text), {}};
  std::string what(text.substr(space + 1));
  const size_t close = what.find(')');
  if (what.starts_with("of ")) {
    what.erase(0, 3);
  } else if (what.starts_with('(') && close != std::string::npos) {
    what.erase(close, 1).erase(0, 1);
  }
  return {std::string(text.substr(0, space)), std::move(what)};
}

// Also with what it moves: "all_reduce #17 of group 'world' (sum of 8 float32)".
std::string whole_call_text(const Finding& finding) {
  const std::string what = finding.ordinal > 0 ? operation_of(finding.operation).what : "";
  return call_text(finding.operation, finding.ordinal, finding.group) +
         (what.empty() ? what : fmt::format(" ({})", what));
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

// The verb for the late ranks.
struct Verb {
  explicit Verb(const Finding& finding) : many(finding.ranks.size() != 1) {}
  const char* has() const { return many ? "have" : "has"; }
  const char* is() const { return many ? "are" : "is"; }
  bool many;
};

// "blocked in read()"; empty if it is unknown or not the same for all.
std::string common_life(const Finding& finding) {
  std::string life;
  for (const Suspect& suspect : finding.ranks) {
    if (suspect.life.empty() || (!life.empty() && suspect.life != life)) return {};
    life = suspect.life;
  }
  return life;
}

// Words for a state that is unknown are no predicate: "its process is hidden", "waits in read()".
bool follows_is(std::string_view life) {
  return !life.starts_with("its ") && !life.starts_with("waits ");
}

// "; rank 5 is blocked in read()", "; rank 5: waits in read()"
std::string what_they_do(const Finding& finding) {
  const std::string life = common_life(finding);
  if (life.empty()) return {};
  const std::string who = ranks_text(late_ranks(finding));
  return follows_is(life) ? fmt::format("; {} {} {}", who, Verb(finding).is(), life)
                          : fmt::format("; {}: {}", who, life);
}

// What the late ranks have not done with the call.
struct Deed {
  const char* done;
  const char* doing;
};

bool is_forming(const Finding& finding) {
  return finding.ordinal == 0 && finding.operation.starts_with("forming ");
}

Deed missing_deed(const Finding& finding) {
  const auto inside = std::ranges::count(finding.ranks, true, &Suspect::is_inside);
  if (is_forming(finding) && inside == 0) return {"begun to form", "beginning to form"};
  if (is_forming(finding)) return {"formed", "forming"};
  if (inside > 0 && inside == std::ssize(finding.ranks)) return {"completed", "completing"};
  if (inside > 0) return {"called or completed", "calling or completing"};
  if (finding.ordinal == 0) return {"taken part in", "taking part in"};
  return {"called", "calling"};
}

std::string object_text(const Finding& finding) {
  return is_forming(finding) ? fmt::format("group '{}'", finding.group) : whole_call_text(finding);
}

std::string have_not_called(const Finding& finding) {
  return fmt::format("{} not {} {}", Verb(finding).has(), missing_deed(finding).done,
                     object_text(finding));
}

// ---- a line for each class

std::string late_line(const Finding& finding, const PlaceOf& place_of) {
  const bool never_entered = finding.what == Class::never_entered && finding.ordinal > 0 &&
                             std::ranges::none_of(finding.ranks, &Suspect::is_inside);
  return fmt::format(
      "{} {}{}{}", described(late_ranks(finding), place_of),
      never_entered ? "never entered " + whole_call_text(finding) : have_not_called(finding),
      have_waited(finding), what_they_do(finding));
}

// "exited with 0", "was killed by SIGKILL"; "ended" where there is more than one way, or the way is
// unknown.
std::string how_they_ended(const Finding& finding) {
  const std::string life = common_life(finding);
  if (life.starts_with("killed")) return (Verb(finding).many ? "were " : "was ") + life;
  return life.starts_with("exited") ? life : "ended";
}

std::string exited_line(const Finding& finding, const PlaceOf& place_of) {
  std::string line =
      fmt::format("{} {} without {} {}", described(late_ranks(finding), place_of),
                  how_they_ended(finding), missing_deed(finding).doing, object_text(finding));
  if (waiting_ranks(finding).empty()) return line;
  return line + ", for which " + waiters(finding, "ranks", "waits", "wait");
}

std::string stopped_line(const Finding& finding, const PlaceOf& place_of) {
  const std::vector<int> late = late_ranks(finding);
  const Verb verb(finding);
  const std::string life = common_life(finding);
  if (!life.empty() && life != kStoppedBySignal)
    return fmt::format("{} {} {} and {}{}", described(late, place_of), verb.is(), life,
                       have_not_called(finding), have_waited(finding));
  const pid_t pid = verb.many ? 0 : place_of(late.front()).pid;
  const std::string resume = pid > 0 ? fmt::format("kill -CONT {}", pid) : "SIGCONT";
  return fmt::format("{} {} stopped by a signal (SIGSTOP) and {}{}; {} lets {} go on",
                     described(late, place_of), verb.is(), have_not_called(finding),
                     have_waited(finding), resume, verb.many ? "them" : "it");
}

// Ranks that made the same call.
struct Camp {
  std::vector<int> ranks;
  std::string call;
  Operation operation;
};

std::vector<Camp> camps_of(const Finding& finding) {
  std::vector<Camp> camps;
  for (const Suspect& suspect : finding.ranks) {
    const auto camp = std::ranges::find(camps, suspect.call, &Camp::call);
    if (camp != camps.end()) {
      camp->ranks.push_back(suspect.rank);
    } else {
      camps.push_back({{suspect.rank}, suspect.call, operation_of(suspect.call)});
    }
  }
  if (!finding.is_tie) camps.push_back({{}, finding.operation, operation_of(finding.operation)});
  for (Camp& camp : camps)
    std::ranges::sort(camp.ranks);
  return camps;
}

// Removes the reduction where it is the same for all, so that the counts stand side by side.
void leave_out_equal_reductions(std::vector<Camp>& camps) {
  const std::string& what = camps.front().operation.what;
  const size_t of = what.find(" of ");
  const std::string reduction = what.substr(0, of == std::string::npos ? 0 : of + 4);
  const auto has_it = [&](const Camp& camp) { return camp.operation.what.starts_with(reduction); };
  if (!std::ranges::all_of(camps, has_it)) return;
  for (Camp& camp : camps)
    camp.operation.what.erase(0, reduction.size());
}

// One of several calls differs, and none of them can be shown.
std::string hidden_mismatch_line(const Finding& finding, const PlaceOf& place_of) {
  const std::vector<int> ranks = late_ranks(finding);
  return fmt::format("the calls of {} in group '{}' {}, somewhere from #{} to #{}",
                     finding.is_tie ? ranks_text(ranks) : described(ranks, place_of), finding.group,
                     finding.is_tie ? "differ" : "differ from those of the others",
                     finding.from_ordinal, finding.ordinal) +
         (finding.is_tie ? "; which of them is wrong cannot be told" : "");
}

// What follows the ranks of the first camp: "called all_reduce #17 of group 'world' with 8 float32,
// the others with 16 float32".
std::string what_camps_called(const Finding& finding, std::vector<Camp> camps,
                              const PlaceOf& place_of) {
  const Operation& first = camps.front().operation;
  const bool one_kind = std::ranges::all_of(camps, [&](const Camp& camp) {
    return camp.operation.kind == first.kind && !camp.operation.what.empty();
  });
  std::string line = "called ";
  if (one_kind) {
    leave_out_equal_reductions(camps);
    line += fmt::format("{} with {}", call_text(first.kind, finding.ordinal, finding.group),
                        first.what);
  } else {
    line +=
        fmt::format("{} as #{} of group '{}'", camps.front().call, finding.ordinal, finding.group);
  }
  for (size_t i = 1; i < camps.size(); ++i) {
    if (i == kSuspectsShown && i + 1 < camps.size()) {
      line += ", and so on";
      break;
    }
    const Camp& camp = camps[i];
    line +=
        fmt::format(", {} {}", camp.ranks.empty() ? "the others" : described(camp.ranks, place_of),
                    one_kind ? "with " + camp.operation.what : camp.call);
  }
  if (finding.what == Class::order) line += ": the same calls in another order";
  if (finding.is_tie) line += "; which of them is wrong cannot be told";
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
    const std::string in = suspect.call.empty() ? "" : " in " + suspect.call;
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

std::string finding_line(const Finding& finding, const PlaceOf& place_of) {
  const bool is_mixed = std::ranges::any_of(
      finding.ranks, [&](const Suspect& suspect) { return suspect.what != finding.what; });
  if (is_mixed && (is_late(finding.what) || finding.what == Class::exited))
    return late_line(finding, place_of);
  switch (finding.what) {
    case Class::never_entered:
    case Class::busy:
      return late_line(finding, place_of);
    case Class::exited:
      return exited_line(finding, place_of);
    case Class::stopped:
      return stopped_line(finding, place_of);
    case Class::signature:
    case Class::order:
      return mismatch_line(finding, place_of);
    case Class::circle:
      return circle_line(finding, place_of);
    case Class::incomplete:
      return incomplete_line(finding, place_of);
  }
  CHECK(false);
}

// What is missing from a verdict that is less than certain.
std::string doubt_text(const Finding& finding) {
  if (!finding.doubt.empty()) return "; not certain: " + finding.doubt;
  if (!is_late(finding.what) || !common_life(finding).empty()) return {};
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
      if (suspect.call.empty()) return at.empty() ? at : "last call" + at;
      return "last call: " + suspect.call + at;
  }
}

std::string suspect_line(const Finding& finding, const Suspect& suspect, const PlaceOf& place_of) {
  std::vector<std::string> facts;
  const bool is_alone = finding.ranks.size() == 1;
  if (!is_alone && !suspect.life.empty()) facts.push_back(suspect.life);
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

std::string call_text(std::string_view operation, uint64_t ordinal, std::string_view group) {
  if (ordinal > 0)
    return fmt::format("{} #{} of group '{}'", operation_of(operation).kind, ordinal, group);
  constexpr std::string_view kThe = " the group";
  if (!operation.ends_with(kThe)) return fmt::format("{} in group '{}'", operation, group);
  operation.remove_suffix(kThe.size());
  return fmt::format("{} group '{}'", operation, group);
}

std::string notice_text(const Finding& raw, const PlaceOf& place_of) {
  const Finding finding = cleaned(raw);
  if (!is_late(finding.what) && finding.what != Class::exited)
    return finding_line(finding, place_of);
  const std::vector<int> late = late_ranks(finding);
  const std::string life = common_life(finding);
  const Verb verb(finding);
  std::string fact = fmt::format("{} not {} it", verb.has(), missing_deed(finding).done);
  if (finding.what == Class::exited) {
    fact = how_they_ended(finding);
  } else if (!life.empty()) {
    fact += follows_is(life) ? fmt::format(" and {} {}", verb.is(), life) : ": " + life;
  }
  return fmt::format("{} waited {} for {} in {}{}; {} {}", waiters(finding, "ranks", "has", "have"),
                     duration_text(finding.waited), described(late, place_of),
                     whole_call_text(finding), called_at(finding.site), ranks_text(late), fact);
}

std::string wait_ended_text(const WaitEnded& ended, const Finding& notice) {
  const std::string call =
      call_text(cleaned(notice.operation), notice.ordinal, cleaned(notice.group));
  const std::string after = duration_text(ended.waited);
  const std::string deed = missing_deed(notice).done;
  if (ended.have_come && is_late(notice.what) && notice.ordinal > 0) {
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
    return fmt::format(
        "made other calls in group '{}' than the others, somewhere from #{} to #{}{}",
        finding.group, finding.from_ordinal, finding.ordinal,
        finding.is_tie ? "; which of them are wrong cannot be told" : "");
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
  const std::string line = verdict_line(raw, [](int) { return RankPlace(); });
  const std::string who = fmt::format("rank {} ", rank);
  return line.starts_with(who) ? line.substr(who.size()) : "is part of a hang: " + line;
}

std::string stragglers_text(const Stragglers& stragglers, const PlaceOf& place_of) {
  std::string text = fmt::format("stragglers of the last {}:", duration_text(stragglers.time));
  for (const Straggler& one : stragglers.ranks) {
    const std::string waited =
        one.waited < std::chrono::milliseconds(10)
            ? fmt::format("{:.2f} ms",
                          std::chrono::duration<double, std::milli>(one.waited).count())
            : duration_text(one.waited);
    text += fmt::format(
        "{} {} made the {} of group '{}' wait {:.0f} % of the time ({} in each of {} calls)",
        &one == &stragglers.ranks.front() ? "" : ";",
        one.is_node ? fmt::format("the ranks of {}", cleaned(place_of(one.rank).host))
                    : described(one.rank, place_of),
        one.others == 1 ? "other rank" : fmt::format("{} others", one.others), cleaned(one.group),
        one.share * 100, waited, one.calls);
  }
  const bool is_unsure =
      stragglers.ranks.size() > 1 && std::ranges::any_of(stragglers.ranks, &Straggler::hides_waits);
  return text + (is_unsure ? "; it does not show which of them waited for another one" : "");
}

std::string withdrawn_text(const Withdrawn& withdrawn, const Finding& verdict) {
  std::string text =
      fmt::format("{} went on: the verdict on {} is withdrawn", ranks_text(withdrawn.ranks),
                  call_text(cleaned(verdict.operation), verdict.ordinal, cleaned(verdict.group)));
  if (withdrawn.limit > Duration{0})
    text += "; from now on the limit is " + duration_text(withdrawn.limit);
  return text;
}

}  // namespace muster::hang
