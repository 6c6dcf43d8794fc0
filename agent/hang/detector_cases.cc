// Judges and closes the cases of a Detector, and builds the Findings for them and for mismatches.
#include <algorithm>
#include <set>
#include <utility>

#include "agent/hang/detector.h"
#include "agent/process/exit_status.h"
#include "rendezvous/base/text.h"

namespace muster::hang {
namespace {

// Sampling intervals that prove a circle whose processes cannot be seen.
constexpr int kLooksUnseen = 5;

std::vector<int> named_in(const Finding& finding) {
  std::vector<int> ranks;
  for (const Suspect& suspect : finding.ranks)
    ranks.push_back(suspect.rank);
  std::ranges::sort(ranks);
  return ranks;
}

uint64_t calls_made(const RankDigest& digest) {
  uint64_t calls = 0;
  for (const GroupDigest& group : digest.groups)
    calls += group.called;
  for (const MessageDigest& messages : digest.messages)
    calls += messages.called;
  return calls;
}

LimitKey limit_key_of(const auto& one) {
  return limit_key(one.key.group.id, one.call);
}

// Returns true if the call failed here, as by a timeout, though others have not come. A later
// failed call on a device ends those before it.
bool has_call_failed(const GroupDigest& group, uint64_t ordinal) {
  return std::ranges::any_of(group.calls, [&](const CallDigest& call) {
    return call.has_failed &&
           (call.ordinal == ordinal || (group.is_on_device && call.ordinal > ordinal));
  });
}

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

// ---- The end of a case.

void Detector::close_cases(Instant now) {
  std::erase_if(cases_, [&](Case& one) { return close(now, one); });
}

// Returns true if the case is over.
bool Detector::close(Instant now, Case& one) {
  const End end = end_of(one);
  if (one.verdict && end != End::gone) {
    std::vector<int> came;
    for (const Suspect& named : one.verdict->ranks) {
      if (!one.roots.empty() && has_come(one, {.rank = named.rank, .is_inside = named.is_inside}))
        came.push_back(named.rank);
    }
    if (end == End::well && came.empty()) came = named_in(*one.verdict);
    if (!came.empty()) {
      withdraw(one, std::move(came));
      return true;
    }
  }
  if (end == End::none) return false;
  if (end == End::gone || !one.notice || one.verdict) return true;
  out_->push_back(WaitEnded{.number = one.number,
                            .ranks = named_in(*one.notice),
                            .waited = now - begin_of(one),
                            .have_come = end == End::well});
  if (end != End::given_up) return true;
  given_up_ = GivenUp{.number = one.number, .calls = {}};
  for (const DirectWait& wait : one.waiting) {
    const std::optional<RankDigest>& digest = state(wait.rank).digest;
    if (digest) given_up_->calls[wait.rank] = calls_made(*digest);
  }
  return true;
}

void Detector::note_calls(const RankDigest& digest) {
  if (!given_up_ || has_failure_) return;
  const auto before = given_up_->calls.find(digest.rank);
  if (before == given_up_->calls.end() || calls_made(digest) <= before->second) return;
  out_->push_back(WentOn{given_up_->number});
  given_up_.reset();
}

// `gone`: ranks have ended. `given_up`: the wait ended otherwise, as by a failed group.
Detector::End Detector::end_of(const Case& one) const {
  const auto has_come_here = [&](const LateRank& late) { return has_come(one, late); };
  const bool all_came = !one.roots.empty() && std::ranges::all_of(one.roots, has_come_here);
  const auto over = [this](const DirectWait& wait) { return is_over(wait); };
  const bool is_over_now = one.circle.empty() ? std::ranges::all_of(one.waiting, over)
                                              : std::ranges::any_of(one.waiting, over);
  if (!all_came && !is_over_now) return End::none;
  const bool somebody_ended =
      std::ranges::any_of(one.roots,
                          [this](const LateRank& late) { return has_ended(late.rank); }) ||
      std::ranges::any_of(one.waiting,
                          [this](const DirectWait& wait) { return has_ended(wait.rank); });
  const auto progressed = [this](const DirectWait& wait) { return has_progressed(wait); };
  if (all_came || std::ranges::any_of(one.waiting, progressed)) return End::well;
  return somebody_ended ? End::gone : End::given_up;
}

bool Detector::has_come(const Case& one, const LateRank& late) const {
  const GroupDigest* const group = find_group(state(late.rank), one.key.group);
  if (group == nullptr) return false;
  switch (one.key.kind) {
    case StallKey::Kind::forming:
      return !late.is_inside || group->phase == GroupPhase::ready;
    case StallKey::Kind::collective:
      return (late.is_inside ? group->completed : group->called) >= one.key.ordinal;
    case StallKey::Kind::message:
      return false;  // Only the waiting rank's digest shows it.
  }
  return false;
}

bool Detector::has_progressed(const DirectWait& wait) const {
  const GroupDigest* const group = find_group(state(wait.rank), wait.key.group);
  if (group == nullptr) return false;
  if (wait.key.kind == StallKey::Kind::forming) return group->phase == GroupPhase::ready;
  if (wait.key.kind == StallKey::Kind::collective)
    return group->completed >= wait.key.ordinal && !has_call_failed(*group, wait.key.ordinal);
  const MessageDigest* const message = find_message(*state(wait.rank).digest, wait.key);
  return message != nullptr && message->completed >= wait.key.ordinal;
}

// Returns true if the rank no longer waits in that call, for any reason.
bool Detector::is_over(const DirectWait& wait) const {
  const RankState& rank = state(wait.rank);
  if (rank.code || rank.has_failed()) return true;
  const GroupDigest* const group = find_group(rank, wait.key.group);
  const bool is_forming = wait.key.kind == StallKey::Kind::forming;
  if (group == nullptr || group->phase != (is_forming ? GroupPhase::forming : GroupPhase::ready))
    return true;
  if (wait.key.kind == StallKey::Kind::collective && has_call_failed(*group, wait.key.ordinal))
    return true;
  return has_progressed(wait);
}

void Detector::withdraw(const Case& one, std::vector<int> ranks) {
  Withdrawn withdrawn{.number = one.number, .ranks = std::move(ranks)};
  const LimitKey key = limit_key_of(one);
  if (one.verdict->by == By::time)
    withdrawn.limit = one.by_hang_timeout ? learnt_.double_hang(key) : learnt_.double_busy(key);
  out_->push_back(std::move(withdrawn));
}

// ---- Charges.

void Detector::note_seen(Case& one, bool is_new) const {
  one.seen = {};
  Instant unchanged = Instant::max();
  for (const DirectWait& wait : one.waiting) {
    const RankState& rank = state(wait.rank);
    if (!rank.digest) continue;
    one.seen = std::max(one.seen, rank.digest->at);
    unchanged = std::min(unchanged, rank.unchanged_since);
  }
  if (!is_new) return;
  // A wait in an asynchronous call shows only after two samples of the process, so backdate it.
  const bool is_of_roots = one.circle.empty() && !one.key.all_called;
  one.shown = is_of_roots ? std::min(one.seen, std::max(one.since, unchanged)) : one.seen;
}

// Returns the start of the wait for reports; a judgement counts from Case::shown at the earliest.
Instant Detector::begin_of(const Case& one) const {
  return std::max(one.since, anew_);
}

void Detector::judge(Instant now, Case& one, const WaitGraph& graph, bool may_judge) {
  if (one.verdict || one.stall < 0) return;
  // A single digest is no evidence: a ring may hold anything.
  may_judge &= one.seen - one.shown >= limits_.look;
  if (!one.circle.empty()) return judge_circle(now, one, graph, may_judge);
  if (one.key.all_called) return judge_incomplete(now, one, graph, may_judge);
  judge_roots(now, one, graph, may_judge);
}

void Detector::judge_roots(Instant now, Case& one, const WaitGraph& graph, bool may_judge) {
  std::vector<Charge> charges;
  for (const LateRank& late : one.roots)
    charges.push_back(charge_of(now, one, late, graph));
  const auto moves = [](const Charge& charge) { return charge.moves && !charge.is_due; };
  const bool some_move = std::ranges::any_of(charges, moves) ||
                         std::ranges::any_of(one.others, [&](const LateRank& late) {
                           return moves(charge_of(now, one, late, graph));
                         });
  // A rank that records nothing may not be late if others are.
  const auto silent = std::ranges::count(one.roots, Standing::silent,
                                         [](const LateRank& late) { return late.standing; });
  std::erase_if(charges, [&](const Charge& charge) {
    return charge.late.standing == Standing::silent && static_cast<size_t>(silent) < one.late;
  });
  const bool is_noticed =
      std::ranges::any_of(charges, [](const Charge& charge) { return charge.is_noticed; });
  if (is_noticed && !one.notice) notify(one, finding_of(now, one, graph, charges));
  if (!may_judge) return;
  const bool is_proven =
      std::ranges::any_of(charges, [](const Charge& charge) { return charge.is_proof; });
  std::erase_if(charges, [&](const Charge& charge) {
    if (is_proven) return !charge.is_proof;
    return !charge.is_due || (charge.defers && some_move);
  });
  if (charges.empty()) return;
  one.by_hang_timeout = std::ranges::none_of(
      charges, [](const Charge& charge) { return charge.what == Class::busy; });
  pronounce(one, finding_of(now, one, graph, charges));
}

Detector::Charge Detector::charge_of(Instant now, const Case& one, const LateRank& late,
                                     const WaitGraph& graph) const {
  const RankState& rank = state(late.rank);
  const LifeState life = rank.life_at(now, limits_.look);
  const bool records = rank.digest && late.standing != Standing::silent;
  Charge charge{.late = late};
  charge.start = std::max({begin_of(one), one.shown, rank.waited});
  Instant seen = one.seen;
  if (!rank.code && records) seen = std::min(seen, rank.digest->at);
  charge.is_noticed = seen - charge.start >= limits_.notice_after;
  const Instant moved = records ? rank.unchanged_since : Instant{};
  const bool is_in_section = records && !rank.digest->section.empty();
  const bool is_blocked = !rank.code && life == LifeState::blocked && !is_in_section;
  if (rank.code || is_blocked || is_one_of(life, {LifeState::gone, LifeState::stopped})) {
    charge.what = is_blocked                                 ? Class::never_entered
                  : !rank.code && life == LifeState::stopped ? Class::stopped
                                                             : Class::exited;
    charge.is_proof = is_proven_exit(one, late, graph);
    charge.defers = is_blocked || !is_needed(one, late, graph);
    Instant start = std::max(charge.start, rank.code ? rank.ended : rank.life_since);
    if (charge.defers) start = std::max(start, one.changed);
    if (is_blocked) start = std::max(start, moved);
    if (!rank.code) seen = std::min(seen, rank.life_seen);
    // A rank whose last calls were never read may have made this one.
    const bool may_have_come = rank.code && rank.digest && !rank.is_last();
    charge.is_due = !may_have_come && seen - start >= learnt_.hang(limit_key_of(one));
    return charge;
  }
  using enum LifeState;
  charge.moves = records || is_one_of(life, {running, sleeping, asking, prompting});
  charge.is_due = life != prompting && seen - charge.start >= learnt_.busy(limit_key_of(one));
  return charge;
}

// Returns true if the call cannot end without the rank.
bool Detector::is_needed(const Case& one, const LateRank& late, const WaitGraph& graph) const {
  return std::ranges::any_of(one.waiting, [&](const DirectWait& wait) {
    return graph.is_certain(wait.rank, one.stall, late.rank);
  });
}

// Returns true if the rank ended before it made a call that cannot end without it, and a rank that
// waits in the call has not moved for a sampling interval since.
bool Detector::is_proven_exit(const Case& one, const LateRank& late, const WaitGraph& graph) const {
  const RankState& ended = state(late.rank);
  const bool is_seen = is_one_of(late.standing, {Standing::known, Standing::absent});
  if (!ended.code || !is_seen || late.is_inside || !ended.is_last()) return false;
  return std::ranges::any_of(one.waiting, [&](const DirectWait& wait) {
    const RankState& rank = state(wait.rank);
    return rank.digest && graph.is_certain(wait.rank, one.stall, late.rank) &&
           rank.digest->at - std::max({rank.unchanged_since, ended.ended, anew_}) >= limits_.look;
  });
}

void Detector::judge_circle(Instant now, Case& one, const WaitGraph& graph, bool may_judge) {
  Instant seen = now;
  Instant unchanged = std::max({one.closed_since, one.shown, anew_});
  bool is_quiet = true;
  bool is_running = false;
  for (const int rank : one.circle) {
    seen = std::min(seen, state(rank).digest->at);
    unchanged = std::max(unchanged, state(rank).unchanged_since);
    const LifeState life = state(rank).life_at(now, limits_.look);
    is_quiet &= is_one_of(life, {LifeState::blocked, LifeState::sleeping, LifeState::asking});
    is_running |= life == LifeState::running;
  }
  const Duration waited = seen - begin_of(one);
  if (seen - std::max(one.closed_since, anew_) >= limits_.notice_after && !one.notice)
    notify(one, finding_of_circle(now, one, graph, waited));
  if (!may_judge) return;
  const Duration still = seen - unchanged;
  const Duration looks = is_quiet ? limits_.look : kLooksUnseen * limits_.look;
  const bool is_proof = one.is_certain && !is_running && still >= looks;
  const LimitKey key = limit_key_of(one);
  if (!is_proof && still < (is_running ? learnt_.busy(key) : learnt_.hang(key))) return;
  one.by_hang_timeout = !is_running;
  Finding finding = finding_of_circle(now, one, graph, waited);
  finding.by = is_proof ? By::proof : By::time;
  finding.confidence = is_proof && is_quiet ? Confidence::high : Confidence::medium;
  pronounce(one, std::move(finding));
}

// Judges stopped ranks in a call that all members have made: the others may wait in it for them,
// though whether they have completed it cannot be seen.
bool Detector::judge_halted(Instant now, Case& one, const WaitGraph& graph, bool may_judge) {
  Finding finding = finding_of(one, graph, one.seen - begin_of(one));
  finding.what = Class::stopped;
  finding.confidence = Confidence::medium;
  Instant since = std::max(begin_of(one), one.shown);
  for (const int rank : graph.stall(one.stall).unfinished) {
    const RankState& known = state(rank);
    if (known.code || known.life_at(now, limits_.look) != LifeState::stopped) continue;
    since = std::max(since, known.life_since);
    finding.ranks.push_back(suspect_of(now, rank, Class::stopped));
    finding.ranks.back().is_inside = true;
  }
  if (finding.ranks.empty()) return false;
  const Duration still = one.seen - since;
  if (still >= limits_.notice_after && !one.notice) notify(one, finding);
  if (may_judge && still >= learnt_.hang(limit_key_of(one))) pronounce(one, std::move(finding));
  return true;
}

void Detector::judge_incomplete(Instant now, Case& one, const WaitGraph& graph, bool may_judge) {
  if (judge_halted(now, one, graph, may_judge)) return;
  const Duration waited = one.seen - std::max(begin_of(one), one.shown);
  const bool is_noticed = waited >= limits_.notice_after && !one.notice;
  Duration limit = learnt_.busy(limit_key_of(one));
  if (one.key.kind == StallKey::Kind::forming) limit = std::max(limit, limits_.forming_min);
  const bool is_due = may_judge && waited >= limit;
  if (!is_noticed && !is_due) return;
  Finding finding = finding_of(one, graph, one.seen - begin_of(one));
  finding.what = Class::incomplete;
  const bool is_seen = std::ranges::all_of(one.waiting, [&](const DirectWait& wait) {
    return state(wait.rank).life_at(now, limits_.look) != LifeState::unknown;
  });
  finding.confidence = is_seen ? Confidence::high : Confidence::medium;
  for (const int rank : one.unfinished) {
    // An older digest does not show whether the rank has completed the call since.
    const Duration shown = state(rank).digest->at - std::max(begin_of(one), one.shown);
    if (shown >= (is_due ? limit : limits_.notice_after))
      finding.ranks.push_back(suspect_of(now, rank, Class::incomplete));
  }
  if (is_noticed) notify(one, finding);
  if (is_due) pronounce(one, std::move(finding));
}

// ---- the Findings for cases and mismatches

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
