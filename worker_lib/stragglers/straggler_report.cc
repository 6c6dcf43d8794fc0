#include "worker_lib/stragglers/straggler_report.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "worker_lib/call_word.h"
#include "worker_lib/camps.h"
#include "worker_lib/group_labels.h"
#include "worker_lib/time_text.h"

namespace muster::worker {
namespace {

// Age beyond this rank's own wait up to which a failure can still keep its rank from a call.
constexpr std::chrono::seconds kTroubleBefore{10};
// Advice for ranks in different calls.
constexpr std::string_view kOneOrder =
    "all must make their calls in the same order, whatever the group";

// A call that one rank waits for and another has to make.
struct Awaited {
  std::string group_id = {};  // Empty: any.
  Lane lane = Lane::host;
  uint64_t number = 0;        // 0: a message.
  bool from_anybody = false;  // Other ranks may make it instead.
  std::string call = {};      // In words; empty: this rank's own call.

  auto key() const { return std::tuple(group_id, lane, number, from_anybody); }
};

struct Wait {
  Awaited what;
  std::vector<int> whom;
};

std::string transfer_words(const TransferProgress& transfer, const std::string& group) {
  std::string words = name_of(transfer.kind);
  if (transfer.peer >= 0)
    words +=
        fmt::format("{} rank {}", transfer.kind == OpKind::send ? " to" : " from", transfer.peer);
  return operation_label(words, 0, group);
}

Wait wait_of(const GroupProgress& group, Lane which) {
  const LaneProgress& lane = group.lane(which);
  return {{group.id, which, lane.ended + 1, false,
           operation_label(lane.last, is_set_up(which) ? 0 : lane.ended + 1, group.name)},
          lane.awaited};
}

// Returns what a rank's program waits for and, in the lane of `next`, the call before `next`.
std::vector<Wait> waits_of(const RankProgress& progress, const Awaited& next) {
  std::vector<Wait> waits;
  for (const GroupProgress& group : progress.groups) {
    for (size_t i = 0; i < kLanes; ++i) {
      const auto which = static_cast<Lane>(i);
      const LaneProgress& lane = group.lane(which);
      const bool is_in_front = group.id == next.group_id && which == next.lane && next.number > 0;
      if (lane.is_under_way() && (lane.is_held || is_in_front))
        waits.push_back(wait_of(group, which));
    }
    for (const TransferProgress& one : group.transfers) {
      const Awaited what{group.id, Lane::host, 0, one.peer < 0, transfer_words(one, group.name)};
      waits.push_back({what, one.peer < 0 ? group.members : std::vector{one.peer}});
    }
  }
  return waits;
}

enum class Standing : uint8_t { late, inside, through };

Standing standing_of(const RankProgress& progress, const Awaited& what) {
  if (what.number == 0) return Standing::late;
  const GroupProgress* const group = progress.group(what.group_id);
  if (group == nullptr || group->lane(what.lane).begun < what.number) return Standing::late;
  return group->lane(what.lane).ended < what.number ? Standing::inside : Standing::through;
}

// True if `rank` attributes the failure to other ranks.
bool blames_others(const Trouble& trouble, int rank) {
  return !trouble.origin.empty() && trouble.origin != std::vector{rank};
}

bool is_gone(const std::pair<const int, StragglerFindings::Straggler>& one) {
  return one.second.no_answer == NoAnswer::gone;
}

class Search {
 public:
  Search(int me, const StragglerQuery& question, const RankProgress& own,
         const ProgressAnswers& answers)
      : me_(me), question_(question), own_(own), answers_(answers) {}

  StragglerFindings run() {
    Awaited mine{question_.group_id, question_.lane, question_.number, question_.from_anybody, {}};
    if (question_.is_behind) mine.call = own_words();
    for (const int rank : question_.suspects)
      reach(me_, rank, mine);
    look_at_reached();
    if (all_are_gone()) look_behind_gone();
    for (const int rank : question_.suspects) {
      const auto in = in_call_.find(rank);
      if (in != in_call_.end()) findings_.held_up.insert(*in);
    }
    forget_gone();
    if (findings_.stragglers.empty() && findings_.to_ask.empty()) find_circle();
    return std::move(findings_);
  }

 private:
  void look_at_reached() {
    while (!reached_.empty()) {
      const auto [rank, what] = std::move(reached_.front());
      reached_.pop_front();
      look_at(rank, what);
    }
  }

  // Notes that `from` waits for `rank`.
  void reach(int from, int rank, const Awaited& what) {
    // Answers are untrusted input.
    if (rank == from || rank < 0 || rank >= question_.world_size) return;
    if (!what.from_anybody) edges_[from].insert(rank);
    if (rank == me_ || !seen_.emplace(rank, what.key()).second) return;
    reached_.emplace_back(rank, what);
  }

  void look_at(int rank, const Awaited& what) {
    const auto answer = answers_.find(rank);
    if (answer == answers_.end()) {
      findings_.to_ask.insert(rank);
      return;
    }
    if (const auto* const why = std::get_if<NoAnswer>(&answer->second)) {
      findings_.stragglers[rank] = {.no_answer = *why};
      return;
    }
    const auto& progress = std::get<RankProgress>(answer->second);
    switch (standing_of(progress, what)) {
      case Standing::through:  // Succeeded, or gave up.
        if (waits_of(progress, what).empty()) follow_failure(rank, progress, question_.waited);
        return;
      case Standing::inside:
        return look_inside(rank, progress, what);
      case Standing::late:
        return look_for_reason(rank, progress, what);
    }
  }

  void look_inside(int rank, const RankProgress& progress, const Awaited& what) {
    const GroupProgress& group = *progress.group(what.group_id);
    const LaneProgress& lane = group.lane(what.lane);
    const bool is_ours = what.group_id == question_.group_id && what.lane == question_.lane &&
                         what.number == question_.number;
    if (is_ours) compare(lane);
    Wait wait = wait_of(group, what.lane);
    if (is_ours) wait.what.call = what.call;
    follow(rank, wait,
           what.call.empty() ? operation_label(lane.last, what.number, group.name) : what.call);
  }

  void compare(const LaneProgress& theirs) {
    const GroupProgress* const mine = own_.group(question_.group_id);
    if (mine == nullptr) return;
    const CallSignature* const ours = mine->lane(question_.lane).call(question_.number);
    const CallSignature* const other = theirs.call(question_.number);
    if (ours != nullptr && other != nullptr && !(*ours == *other)) findings_.differs = true;
  }

  void look_for_reason(int rank, const RankProgress& progress, const Awaited& what) {
    const std::vector<Wait> waits = waits_of(progress, what);
    for (const Wait& wait : waits) {
      elsewhere_.insert(rank);
      follow(rank, wait, wait.what.call);
    }
    if (!waits.empty()) return;
    if (follow_failure(rank, progress, question_.limit + kTroubleBefore)) return;
    if (what.from_anybody) return;
    StragglerFindings::Straggler straggler{.awaited = {what.lane, what.number, what.call}};
    if (const GroupProgress* const group = progress.group(what.group_id);
        group && what.number > 0) {
      straggler.at = group->lane(what.lane).begun;
      straggler.last = group->lane(what.lane).last;
    }
    findings_.stragglers.try_emplace(rank, std::move(straggler));
  }

  // Treats the ranks blamed by a recent failure on `rank` as those it waits for. Returns false if
  // there is none, or if it also blames `rank`.
  bool follow_failure(int rank, const RankProgress& progress, std::chrono::milliseconds oldest) {
    for (const Trouble& one : progress.troubles) {
      if (!blames_others(one, rank) || one.age > oldest) continue;
      const std::string failed = fmt::format("the call that has failed on rank {}", rank);
      const bool blames_me = std::ranges::find(one.origin, me_) != one.origin.end();
      if (blames_me) findings_.stragglers[me_] = elsewhere(own_words(), failed);
      follow(rank, {{.call = failed}, one.origin}, "a call that has failed");
      // In a circle it may also blame itself.
      return std::ranges::find(one.origin, rank) == one.origin.end();
    }
    return false;
  }

  void follow(int rank, const Wait& wait, const std::string& words) {
    in_call_.try_emplace(rank, words);
    for (const int next : wait.whom)
      reach(rank, next, wait.what);
  }

  bool all_are_gone() const {
    return !findings_.stragglers.empty() && std::ranges::all_of(findings_.stragglers, is_gone);
  }

  // Queries the other members, which may name the straggler because of which a rank ended, and the
  // messengers, since a straggler may withhold the report of an end.
  void look_behind_gone() {
    for (const std::vector<int>* const ranks : {&question_.members, &question_.messengers}) {
      for (const int rank : *ranks)
        look_for_news(rank);
    }
    look_at_reached();
  }

  void look_for_news(int rank) {
    const auto answer = answers_.find(rank);
    if (rank == me_) return;
    if (answer == answers_.end()) {
      findings_.to_ask.insert(rank);
    } else if (const auto* const progress = std::get_if<RankProgress>(&answer->second)) {
      follow_failure(rank, *progress, question_.waited);
    } else if (const NoAnswer why = std::get<NoAnswer>(answer->second); why != NoAnswer::gone) {
      findings_.stragglers[rank].no_answer = why;
    }
  }

  // Drops ranks that are gone unless all are: their deaths get reported on their own.
  void forget_gone() {
    if (!all_are_gone()) std::erase_if(findings_.stragglers, is_gone);
  }

  bool leads_to(int from, int to) const {
    std::set<int> seen;
    std::deque<int> open{from};
    while (!open.empty()) {
      const auto edges = edges_.find(open.front());
      open.pop_front();
      if (edges == edges_.end()) continue;
      for (const int next : edges->second) {
        if (next == to) return true;
        if (seen.insert(next).second) open.push_back(next);
      }
    }
    return false;
  }

  // Finds a circle of waiting ranks; if all are in the same call, it is none, but something slow.
  void find_circle() {
    std::set<int> circle;
    for (const auto& [rank, edges] : edges_) {
      if (leads_to(rank, rank)) circle.insert(rank);
    }
    const auto is_elsewhere = [&](int rank) { return elsewhere_.contains(rank); };
    if (std::ranges::none_of(circle, is_elsewhere)) return;
    // The most common call decides, over all ranks that should be in this rank's call.
    std::set<int> all = circle;
    all.insert(question_.members.begin(), question_.members.end());
    for (const int rank : all) {
      if (rank != me_ && !answers_.contains(rank)) findings_.to_ask.insert(rank);
    }
    if (findings_.to_ask.empty() && !agree_with_others(circle, all)) blame_in(circle, all);
  }

  // Adopts the findings of ranks that timed out earlier: they are in no call any more, and would be
  // missing from the count. Findings of ranks that have ended since may be in this rank's troubles.
  bool agree_with_others(const std::set<int>& circle, const std::set<int>& all) {
    for (const int rank : all) {
      const RankProgress* const progress = rank == me_ ? &own_ : progress_of(answers_, rank);
      if (progress == nullptr || (rank != me_ && !words_of(rank).empty())) continue;
      for (const Trouble& one : progress->troubles) {
        if (!is_found_in(circle, one, rank)) continue;
        for (const int culprit : one.origin)
          findings_.stragglers[culprit] =
              elsewhere(words_of(culprit), culprit == me_ ? awaited_of(circle) : std::string());
        return true;
      }
    }
    return false;
  }

  // True if `rank` blames part of the circle for a failure during this rank's wait.
  bool is_found_in(const std::set<int>& circle, const Trouble& one, int rank) const {
    if (one.origin.empty() || one.origin.size() >= circle.size()) return false;
    if (rank != me_ && !blames_others(one, rank)) return false;
    return one.age <= question_.waited &&
           std::ranges::all_of(one.origin, [&](int culprit) { return circle.contains(culprit); });
  }

  // Returns the call in which this rank holds up another of the circle.
  std::string awaited_of(const std::set<int>& circle) const {
    const auto other =
        std::ranges::find_if(in_call_, [&](const auto& one) { return circle.contains(one.first); });
    return other == in_call_.end() ? std::string() : other->second;
  }

  void blame_in(const std::set<int>& circle, const std::set<int>& all) {
    std::vector<int> ranks;
    std::vector<std::string> in;
    for (const int rank : all) {
      std::string words = words_of(rank);
      if (words.empty()) continue;
      ranks.push_back(rank);
      in.push_back(std::move(words));
    }
    const Camps camps = camps_of(in);
    for (const size_t i : camps.blamed) {
      if (!circle.contains(ranks[i])) continue;
      findings_.stragglers[ranks[i]] =
          elsewhere(in[i], ranks[i] == me_ ? in[camps.index_of_majority] : std::string());
    }
    if (camps.blamed.size() < ranks.size()) return;
    findings_.stragglers.clear();  // A tie.
    findings_.circle = circle;
  }

  // Returns the call that a rank is in, named equally on all ranks; empty: none.
  std::string words_of(int rank) const {
    if (rank == me_) return own_words();
    const RankProgress* const progress = progress_of(answers_, rank);
    if (progress == nullptr) return {};
    const Awaited mine{question_.group_id, question_.lane, question_.number};
    if (question_.number > 0 && standing_of(*progress, mine) == Standing::inside)
      return own_words();
    const std::vector<Wait> waits = waits_of(*progress, mine);
    return waits.empty() ? std::string() : waits.front().what.call;
  }

  // Makes a straggler that is in `in` instead of `call` (empty: this rank's own call).
  StragglerFindings::Straggler elsewhere(const std::string& in, const std::string& call) const {
    return {.awaited = {question_.lane, question_.number, call}, .instead = in};
  }

  std::string own_words() const {
    const GroupProgress* const group = own_.group(question_.group_id);
    if (group == nullptr || question_.number == 0) return "a message";
    return operation_label(group->lane(question_.lane).last, question_.number, group->name);
  }

  const int me_;
  const StragglerQuery& question_;
  const RankProgress& own_;
  const ProgressAnswers& answers_;
  StragglerFindings findings_;
  std::deque<std::pair<int, Awaited>> reached_;
  std::set<std::pair<int, std::tuple<std::string, Lane, uint64_t, bool>>> seen_;
  std::map<int, std::set<int>> edges_;
  std::map<int, std::string> in_call_;  // The call that each rank is in.
  std::set<int> elsewhere_;             // Ranks in another call than the awaited one.
};

std::string straggler_words(const StragglerFindings::Straggler& straggler,
                            const StragglerQuery& question) {
  if (straggler.no_answer) {
    switch (*straggler.no_answer) {
      case NoAnswer::stopped:
        return " is stopped (by SIGSTOP, or by a debugger)";
      case NoAnswer::mute:
        return fmt::format(" does not answer {}: it is stopped, or its node is unreachable",
                           within(question.limit));
      case NoAnswer::gone:
        return " is gone";
    }
  }
  const AwaitedCall& missed = straggler.awaited;
  const std::string call = missed.label.empty() ? "it" : missed.label;
  if (!straggler.instead.empty())
    return fmt::format(" has not called {} {}, but is in {}", call, within(question.limit),
                       straggler.instead);
  if (!missed.label.empty() && missed.number == 0)
    return fmt::format(" does not do its part of {}", call);
  std::string words = " has not called " + call;
  if (missed.label.empty()) words += " " + within(question.limit);
  if (is_set_up(missed.lane) || !straggler.at) return words;
  if (*straggler.at == 0) return words + " (nor anything before)";
  return words + fmt::format(" (its last: {} {})", straggler.last, *straggler.at);
}

// True if this rank is held up only by ranks that it itself waits for, in a message or a set-up:
// then the original message is more precise.
bool is_plain(const StragglerQuery& question, const StragglerFindings& findings) {
  if (question.number > 0 && !is_set_up(question.lane)) return false;
  return std::ranges::all_of(findings.stragglers, [](const auto& one) {
    return !one.second.no_answer && one.second.awaited.label.empty() && one.second.instead.empty();
  });
}

std::string circle_words(const StragglerFindings& findings, const Members& world) {
  std::string words;
  for (const auto& [rank, in] : findings.held_up) {
    if (findings.circle.contains(rank))
      words += fmt::format("{}{} is in {}", words.empty() ? "" : ", ", describe(world[rank]), in);
  }
  return fmt::format("{}; the ranks {} wait for each other in a circle: {}", words,
                     fmt::join(findings.circle, ", "), kOneOrder);
}

// Adds the ranks between this one and the stragglers, and advice.
std::string more_words(const StragglerFindings& findings, const Members& world) {
  std::string words;
  // Stragglers have already been described.
  const auto between = std::ranges::find_if(
      findings.held_up, [&](const auto& one) { return !findings.stragglers.contains(one.first); });
  if (between != findings.held_up.end()) {
    words += fmt::format("; {}, which this one waited for, is in {} itself",
                         describe(world[between->first]), between->second);
  }
  const auto is_elsewhere = [](const auto& one) { return !one.second.instead.empty(); };
  const auto computes = [&](const auto& one) {
    return !one.second.no_answer && !is_elsewhere(one);
  };
  if (std::ranges::any_of(findings.stragglers, computes))
    return words + "; " + look_at(findings.stragglers.size());
  return std::ranges::any_of(findings.stragglers, is_elsewhere)
             ? fmt::format("{}; {}", words, kOneOrder)
             : words;
}

}  // namespace

StragglerFindings find_stragglers(int me, const StragglerQuery& question, const RankProgress& own,
                                  const ProgressAnswers& answers) {
  return Search(me, question, own, answers).run();
}

Failure describe_stragglers(const Failure& suspected, const StragglerQuery& question,
                            const StragglerFindings& findings, const Members& world) {
  Failure failure = suspected;
  failure.is_suspicion = false;
  if (!findings.stragglers.empty()) {
    failure.ranks.clear();
    std::string words;
    // The death or departure will be reported in detail later.
    if (std::ranges::all_of(findings.stragglers, is_gone)) failure.code = ErrorCode::peer_failed;
    for (const auto& [rank, straggler] : findings.stragglers) {
      failure.ranks.push_back({rank});
      words += (words.empty() ? "" : ", ") + describe(world[rank]) +
               straggler_words(straggler, question);
    }
    if (is_plain(question, findings)) return failure;
    failure.message = words + more_words(findings, world);
  } else if (!findings.circle.empty()) {
    failure.ranks.clear();
    for (const int rank : findings.circle)
      failure.ranks.push_back({rank});
    failure.message = circle_words(findings, world);
  }
  return failure;
}

std::optional<Failure> compare_calls(const StragglerQuery& question, const Members& members,
                                     const RankProgress& own, const ProgressAnswers& answers) {
  std::vector<CallSignature> calls;
  Members come;  // Members whose call with that number is known.
  for (const Peer& peer : members.peers) {
    const bool is_me = peer.rank == members.self().rank;
    const RankProgress* const progress = is_me ? &own : progress_of(answers, peer.rank.value);
    const GroupProgress* const group =
        progress == nullptr ? nullptr : progress->group(question.group_id);
    const CallSignature* const call =
        group == nullptr ? nullptr : group->lane(question.lane).call(question.number);
    if (call == nullptr) continue;
    calls.push_back(*call);
    come.peers.push_back(peer);
  }
  if (calls.empty()) return std::nullopt;
  // Shifts the roots, ranks of the whole group, so that none is taken for a rank of `come`.
  for (CallSignature& call : calls) {
    CallWord word = CallWord::unpack(call.word);
    word.root += static_cast<uint32_t>(come.size());
    call.word = word.pack();
  }
  return find_mismatch(calls, come);
}

}  // namespace muster::worker
