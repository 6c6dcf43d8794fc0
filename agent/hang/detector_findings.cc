// Builds the Findings for a Detector's cases and mismatches.
#include <algorithm>
#include <set>
#include <utility>

#include "agent/hang/detector.h"
#include "agent/process/exit_status.h"

namespace muster::hang {
namespace {

Operation operation_in(const StallKey& key, const GroupName& group, const ring::Call& call,
                       int peer) {
  using enum Operation::Kind;
  switch (key.kind) {
    case StallKey::Kind::forming:
      return {.kind = forming, .group = group};
    case StallKey::Kind::message:
      return {.kind = key.is_recv ? recv : send, .group = group, .peer = peer};
    case StallKey::Kind::collective:
      return {.group = group, .ordinal = key.ordinal, .call = call};
  }
  return {};
}

}  // namespace

void Detector::notify(Case& one, Finding finding) {
  if (one.number == 0) one.number = ++last_number_;
  finding.number = one.number;
  finding.by = By::time;
  one.notice = finding;
  out_->push_back(Notice{std::move(finding)});
}

void Detector::pronounce(Case& one, Finding finding) {
  if (one.number == 0) one.number = ++last_number_;
  finding.number = one.number;
  one.verdict = finding;
  out_->push_back(Verdict{std::move(finding)});
}

// ---- Ranks.

Suspect Detector::suspect_of(Instant now, int rank, Class what) const {
  const RankState& known = state(rank);
  Suspect suspect;
  suspect.rank = rank;
  suspect.what = what;
  if (known.code) {
    suspect.ended = ExitStatus::from_signed_code(*known.code);
  } else if (now - known.life_seen <= kLooksMissed * limits_.look) {
    suspect.life = known.life;
  }
  if (!known.digest) return suspect;
  suspect.section = known.digest->section;
  Instant last{};
  for (const GroupDigest& group : known.digest->groups) {
    if (group.calls.empty() || group.calls.back().called < last) continue;
    const CallDigest& call = group.calls.back();
    last = call.called;
    suspect.call = {.group = groups_.name_of(group.id), .ordinal = call.ordinal, .call = call.call};
    suspect.site = call.site;
  }
  return suspect;
}

// Returns the call site of what the rank waits in.
std::string Detector::site_of(const DirectWait& wait) const {
  const std::optional<RankDigest>& digest = state(wait.rank).digest;
  if (!digest) return {};
  if (wait.key.kind == StallKey::Kind::message) {
    const MessageDigest* const message = find_message(*digest, wait.key);
    return message == nullptr ? "" : message->site;
  }
  const GroupDigest* const group = find_group(*digest, wait.key.group.id);
  const CallDigest* const call = group == nullptr ? nullptr : find_call(*group, wait.key.ordinal);
  return call == nullptr ? "" : call->site;
}

// ---- Cases.

Operation Detector::operation_of(const Case& one) {
  return operation_in(one.key, one.group, one.call, one.peer);
}

// Fills in what all kinds of cases have in common.
Finding Detector::finding_of(const Case& one, const WaitGraph& graph, Duration waited) const {
  Finding finding;
  finding.operation = operation_of(one);
  finding.waited = std::max(waited, Duration{});
  finding.site = one.waiting.empty() ? "" : site_of(one.waiting.front());
  for (const DirectWait& wait : one.waiting) {
    if (site_of(wait) != finding.site) finding.site.clear();
  }
  std::vector<int> late = one.circle;
  for (const LateRank& root : one.roots)
    late.push_back(root.rank);
  finding.waiting = graph.waiting_for(late, late.empty() ? one.stall : -1);
  std::erase_if(finding.waiting,
                [&](int rank) { return std::ranges::binary_search(one.unfinished, rank); });
  return finding;
}

Finding Detector::finding_of(Instant now, const Case& one, const WaitGraph& graph,
                             const std::vector<Charge>& named) const {
  Instant free = Instant::max();
  for (const Charge& charge : named)
    free = std::min(free, state(charge.late.rank).waited);
  Finding finding = finding_of(one, graph, one.seen - std::max(begin_of(one), free));
  // The class that is least likely to end by itself wins.
  finding.what = Class::busy;
  for (const Class what : {Class::never_entered, Class::stopped, Class::exited}) {
    if (std::ranges::count(named, what, &Charge::what) > 0) finding.what = what;
  }
  for (const Charge& charge : named) {
    Suspect suspect = suspect_of(now, charge.late.rank, charge.what);
    suspect.is_inside = charge.late.is_inside;
    suspect.has_another = one.key.kind == StallKey::Kind::forming &&
                          groups_.has_another(suspect.rank, *graph.stall(one.stall).group);
    finding.ranks.push_back(std::move(suspect));
    if (charge.is_proof) finding.by = By::proof;
  }
  weigh(now, finding, one, graph, named);
  return finding;
}

// Sets the confidence and the reason why it is not high.
void Detector::weigh(Instant now, Finding& finding, const Case& one, const WaitGraph& graph,
                     const std::vector<Charge>& named) const {
  std::vector<int> silent;
  std::vector<int> unnamed;
  bool is_unseen = false;
  for (const Charge& charge : named) {
    if (charge.late.standing == Standing::silent) silent.push_back(charge.late.rank);
    is_unseen |= charge.what == Class::busy &&
                 state(charge.late.rank).life_at(now, limits_.look) == LifeState::unknown;
  }
  for (const LateRank& late : one.roots) {
    const auto rank_of = [](const Charge& charge) { return charge.late.rank; };
    const bool is_named = std::ranges::binary_search(named, late.rank, {}, rank_of);
    if (late.standing != Standing::silent && !is_named) unnamed.push_back(late.rank);
  }
  const GroupView& group = *graph.stall(one.stall).group;
  if (!silent.empty()) {
    finding.confidence = Confidence::low;
    finding.doubt = {Doubt::Why::records_nothing, silent};
  } else if (!unnamed.empty() || !group.silent_ranks.empty()) {
    finding.confidence = Confidence::medium;
    finding.doubt = unnamed.empty() ? Doubt{Doubt::Why::records_nothing, group.silent_ranks}
                                    : Doubt{Doubt::Why::also_late, unnamed};
  } else if (group.has_unknown) {
    finding.confidence = Confidence::medium;
    finding.doubt = {Doubt::Why::unknown_members, {}};
  } else if (is_unseen) {
    finding.confidence = Confidence::medium;
  }
}

Finding Detector::finding_of_circle(Instant now, const Case& one, const WaitGraph& graph,
                                    Duration waited) const {
  Finding finding = finding_of(one, graph, waited);
  finding.what = Class::circle;
  finding.confidence = Confidence::medium;
  finding.site.clear();
  for (const DirectWait& wait : one.waiting) {
    Suspect suspect = suspect_of(now, wait.rank, Class::circle);
    const auto stall = std::ranges::find(graph.stalls(), wait.key, &Stall::key);
    if (stall != graph.stalls().end()) {
      const int peer =
          wait.key.peer < 0 ? -1 : stall->group->members[static_cast<size_t>(wait.key.peer)].rank;
      suspect.call = operation_in(wait.key, stall->group->name, stall->call, peer);
    }
    suspect.site = site_of(wait);
    finding.ranks.push_back(std::move(suspect));
  }
  return finding;
}

// ---- Mismatches.

void Detector::judge_mismatches(Instant now) {
  if (!calls_.is_pending()) return;
  for (const Mismatch& mismatch : calls_.take(ranks_, now, is_over())) {
    Finding finding = finding_of(mismatch, now);
    finding.number = ++last_number_;
    mismatches_.push_back({finding.number, mismatch.group, mismatch.ordinal});
    out_->push_back(Verdict{std::move(finding)});
  }
}

void Detector::explain_failure() {
  const auto found = std::ranges::find_if(mismatches_, [this](const ToldMismatch& told) {
    return is_under_way(told.group, told.ordinal);
  });
  if (found != mismatches_.end()) out_->push_back(Explained{found->number});
}

// Returns true if the mismatched call is in flight or has failed. Ranks may complete such a call
// unnoticed; a later failure then has another cause.
bool Detector::is_under_way(const GroupKey& key, uint64_t ordinal) const {
  return std::ranges::any_of(ranks_, [&](const RankState& rank) {
    const GroupDigest* const group = find_group(rank, key);
    if (group == nullptr || group->called < ordinal) return false;
    const CallDigest* const call = find_call(*group, ordinal);
    return group->completed < ordinal || (call != nullptr && call->has_failed) ||
           (group->completion_is_unseen && group->called == ordinal);
  });
}

Finding Detector::finding_of(const Mismatch& mismatch, Instant now) const {
  Finding finding;
  finding.what = mismatch.is_order ? Class::order : Class::signature;
  finding.by = By::proof;
  finding.is_over = is_over();
  finding.is_tie = mismatch.is_tie;
  finding.operation.ordinal = mismatch.ordinal;
  finding.operation.call = mismatch.expected;
  finding.from_ordinal = mismatch.from_ordinal;
  std::vector<Suspect>& suspects = finding.ranks;
  for (const Mismatch::Party& party : mismatch.culprits) {
    Suspect suspect = suspect_of(now, party.rank, finding.what);
    suspect.call.reset();
    if (mismatch.from_ordinal == 0)
      suspect.call = {.ordinal = mismatch.ordinal, .call = party.call};
    suspect.site.clear();
    suspects.push_back(std::move(suspect));
  }
  Instant since = now;
  std::set<std::string> sites;  // Call sites of the other ranks.
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    const GroupDigest* const group = find_group(ranks_[rank], mismatch.group);
    if (group == nullptr) continue;
    finding.operation.group = groups_.name_of(group->id);
    const CallDigest* const call = find_call(*group, mismatch.ordinal);
    if (call != nullptr) since = std::min(since, call->called);
    const auto suspect =
        std::ranges::lower_bound(suspects, static_cast<int>(rank), {}, &Suspect::rank);
    if (suspect != suspects.end() && suspect->rank == static_cast<int>(rank)) {
      if (call != nullptr && mismatch.from_ordinal == 0) suspect->site = call->site;
      continue;
    }
    if (call != nullptr && mismatch.from_ordinal == 0) sites.insert(call->site);
    const bool is_in_it = group->completed < group->called ||
                          (group->completion_is_unseen && group->called <= mismatch.ordinal);
    if (is_in_it && !ranks_[rank].code) finding.waiting.push_back(static_cast<int>(rank));
  }
  if (sites.size() == 1) finding.site = *sites.begin();
  finding.waited = now - since;
  return finding;
}

}  // namespace muster::hang
