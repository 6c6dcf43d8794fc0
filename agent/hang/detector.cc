#include "agent/hang/detector.h"

#include <algorithm>
#include <utility>

#include "rendezvous/base/enum_name.h"
#include "rendezvous/base/text.h"

namespace muster::hang {
namespace {

// Shorter waits are normal, and nodes poll their rings no more often.
Duration period_of(const Limits& limits) {
  return std::min<Duration>(std::chrono::milliseconds(250), limits.look / 4);
}

// A mismatch must be named within a second of the second call, after two digests of it.
Duration settle_time(const Limits& limits) {
  return std::min<Duration>(std::chrono::milliseconds(400), limits.look * 2 / 5);
}

}  // namespace

const char* name_of(Class what) {
  return name_in<Class::incomplete>(
      {"never_entered", "exited", "stopped", "busy", "signature", "order", "circle", "incomplete"},
      what);
}

bool is_late(Class what) {
  return is_one_of(what, {Class::never_entered, Class::busy, Class::stopped});
}

Detector::Detector(const Limits& limits)
    : limits_(limits), period_(period_of(limits)), calls_(settle_time(limits)), learnt_(limits) {}

// Every event, in and out of an attempt. "-" changes nothing.
//
//              watching                        not watching   suspended
// Begun        forget, watch                   watch          forget, watch
// Digested     note; older: -                  -              note
// Confirmed    note; older: -                  -              note
// LifeSeen     note; older: -                  -              note
// Ended        note; the first failure: judge  -              note
//              mismatches, then nothing more;
//              the last: judge mismatches
// Stopping     end                             -              end
// Suspended    hold                            -              -
// Resumed      -                               -              waits begin anew
// Jumped       waits begin anew                -              waits begin anew
// KeysAwaited  note                            -              note
// Tick         evaluate, if due                -              -
void Detector::step(Instant now, const Event& event, std::vector<Effect>& out) {
  if (!is_watching_ && !std::holds_alternative<Begun>(event)) return;
  out_ = &out;
  std::visit([&](const auto& one) { on(now, one); }, event);
  out_ = nullptr;
}

Instant Detector::next_deadline() const {
  const bool is_due = is_dirty_ || calls_.is_pending();
  return is_watching_ && !is_suspended_ && is_due ? instant_after(evaluated_, period_) : kNever;
}

// ---- Events.

void Detector::on(Instant now, const Begun& event) {
  end_watch();
  ranks_.assign(static_cast<size_t>(std::max(event.world_size, 0)), {});
  groups_ = {};
  calls_ = CallComparison(settle_time(limits_));
  learnt_ = LearntLimits(limits_);
  given_up_.reset();
  mismatches_.clear();
  keys_.clear();
  is_watching_ = true;
  is_suspended_ = is_held_ = has_failure_ = is_dirty_ = false;
  evaluated_ = now;
  anew_ = {};
}

void Detector::on(Instant now, const Digested& event) {
  if (!is_rank(event.digest.rank)) return;
  RankState& rank = ranks_[static_cast<size_t>(event.digest.rank)];
  RankDigest digest = event.digest;
  groups_.note(digest, static_cast<int>(ranks_.size()));
  if (!rank.take(digest, now)) return;
  calls_.note(*rank.digest, now);
  note_calls(*rank.digest);
  is_dirty_ = true;
}

void Detector::on(Instant now, const Confirmed& event) {
  if (!is_rank(event.rank)) return;
  if (ranks_[static_cast<size_t>(event.rank)].confirm(std::min(event.at, now))) is_dirty_ = true;
}

void Detector::on(Instant now, const LifeSeen& event) {
  if (!is_rank(event.rank)) return;
  const Instant at = std::min(event.at.value_or(now), now);
  ranks_[static_cast<size_t>(event.rank)].see(event.life, at, limits_.look);
  is_dirty_ = true;
}

void Detector::on(Instant now, const Ended& event) {
  if (!is_rank(event.rank)) return;
  RankState& rank = ranks_[static_cast<size_t>(event.rank)];
  if (rank.code) return;
  rank.code = event.code;
  rank.ended = now;
  is_dirty_ = true;
  // Later calls are a consequence of the first failure.
  if (has_failure_) return;
  has_failure_ = event.code != 0;
  if (is_over()) judge_mismatches(now);
  if (!has_failure_) return;
  cases_.clear();
  status_.reset();
  explain_failure();
}

bool Detector::is_over() const {
  return has_failure_ ||
         std::ranges::all_of(ranks_, [](const RankState& rank) { return rank.code.has_value(); });
}

void Detector::on(Instant, const Stopping&) {
  end_watch();
}

void Detector::end_watch() {
  is_watching_ = false;
  cases_.clear();
  status_.reset();
  look_at({});
}

void Detector::on(Instant, const Suspended&) {
  is_suspended_ = true;
}

void Detector::on(Instant now, const Resumed&) {
  if (std::exchange(is_suspended_, false)) begin_anew(now);
}

void Detector::on(Instant now, const Jumped&) {
  begin_anew(now);
}

void Detector::on(Instant now, const KeysAwaited& event) {
  if (has_failure_) return;
  keys_.take(now, event, *out_);
  is_dirty_ = true;
}

void Detector::begin_anew(Instant now) {
  anew_ = now;
  for (RankState& rank : ranks_)
    rank.forget_life();
  is_dirty_ = true;
}

void Detector::on(Instant now, const Tick&) {
  if (now >= next_deadline()) evaluate(now);
}

// ---- An evaluation.

void Detector::evaluate(Instant now) {
  evaluated_ = now;
  is_dirty_ = false;
  if (has_failure_) return look_at({});
  settle_unseen(ranks_);
  judge_mismatches(now);
  const std::vector<GroupView> views = groups_.views(ranks_);
  calls_.forget_groups([this](const GroupKey& key) { return groups_.knows(key); });
  learnt_.forget_groups([this](const std::string& id) { return groups_.knows(id); });
  Stalls found = find_stalls(ranks_, views, {.now = now, .look = limits_.look, .min_age = period_});
  std::vector<int> involved = std::move(found.involved);
  const WaitGraph graph(ranks_, std::move(found));
  graph.involve_senders(involved);
  keys_.involve(static_cast<int>(ranks_.size()), involved);
  look_at(involved);
  close_cases(now);
  update_cases(now, graph);
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (graph.waits(static_cast<int>(rank))) ranks_[rank].waited = now;
  }
  const bool was_held = std::exchange(is_held_, is_held(now));
  if (was_held && !is_held_) begin_anew(now);
  for (Case& one : cases_)
    judge(now, one, graph, !is_held_);
  note_status(graph);
  const auto is_free = [&](int rank) {
    return is_rank(rank) && !state(rank).code && !graph.waits(rank);
  };
  keys_.report({.now = now,
                .anew = anew_,
                .notice_after = limits_.notice_after,
                .world_size = static_cast<int>(ranks_.size()),
                .is_free = is_free,
                .look_at = [&](int rank) { return suspect_of(now, rank, Class::busy); }},
               last_number_, *out_);
}

void Detector::look_at(const std::vector<int>& ranks) {
  if (ranks == looked_at_) return;
  for (const int rank : looked_at_) {
    if (is_rank(rank) && !std::ranges::binary_search(ranks, rank))
      ranks_[static_cast<size_t>(rank)].forget_life();
  }
  looked_at_ = ranks;
  out_->push_back(LookAt{ranks});
}

bool Detector::is_held(Instant now) const {
  return std::ranges::any_of(ranks_, [&](const RankState& rank) {
    return rank.life_at(now, limits_.look) == LifeState::traced;
  });
}

// ---- Cases.

void Detector::update_cases(Instant now, const WaitGraph& graph) {
  std::vector<bool> was_shown;
  for (Case& one : cases_)
    was_shown.push_back(std::exchange(one.stall, -1) >= 0);
  update_root_cases(now, graph);
  for (size_t s = 0; s < graph.stalls().size(); ++s) {
    const Stall& stall = graph.stalls()[s];
    if (!stall.key.all_called || is_explained(stall.key)) continue;
    Case& one = case_of(stall.key, {});
    note_stall(one, graph, static_cast<int>(s));
    one.unfinished = stall.has_finished ? stall.unfinished : std::vector<int>();
  }
  for (const WaitGraph::Circle& circle : graph.circles())
    update_circle(graph, circle);
  was_shown.resize(cases_.size());
  for (size_t i = 0; i < cases_.size(); ++i) {
    note_seen(cases_[i], !was_shown[i]);
  }
}

void Detector::update_circle(const WaitGraph& graph, const WaitGraph::Circle& circle) {
  const auto is_explained_here = [&](int s) { return is_explained(graph.stall(s).key); };
  if (std::ranges::any_of(circle.stalls, is_explained_here)) return;
  // Keeps one case while ranks that came since close other circles with some of the same ranks.
  const auto before = std::ranges::find_if(cases_, [&](const Case& one) {
    return std::ranges::find_first_of(one.circle, circle.ranks) != one.circle.end();
  });
  if (before != cases_.end()) {
    const auto stall = std::ranges::find(graph.stalls(), before->key, &Stall::key);
    before->stall = static_cast<int>(stall - graph.stalls().begin());
    if (stall == graph.stalls().end()) before->stall = -1;
    if (before->circle == circle.ranks) before->is_certain = circle.is_certain;
    return;
  }
  Case& one = case_of(graph.stall(circle.stalls.front()).key, circle.ranks);
  note_stall(one, graph, circle.stalls.front());
  one.is_certain = circle.is_certain;
  one.waiting.clear();
  for (size_t i = 0; i < circle.ranks.size(); ++i) {
    const Stall& stall = graph.stall(circle.stalls[i]);
    one.waiting.push_back({circle.ranks[i], stall.key});
    one.since = std::min(one.since, stall.since);
    one.closed_since = std::max(one.closed_since, stall.since);
  }
}

// Assigns each root to one case: the one it was in before, else that of the longest wait.
void Detector::update_root_cases(Instant now, const WaitGraph& graph) {
  std::map<StallKey, std::vector<int>> named;  // Sorted roots of each stall's case.
  for (const Case& one : cases_) {
    std::vector<int>& ranks = named[one.key];
    for (const LateRank& late : one.roots)
      ranks.push_back(late.rank);
    std::ranges::sort(ranks);
  }
  std::vector<std::vector<LateRank>> roots(graph.stalls().size());
  std::vector<std::vector<LateRank>> others(graph.stalls().size());
  for (const WaitGraph::Root& root : graph.roots()) {
    if (state(root.rank).has_failed()) continue;
    const WaitGraph::LateIn* chosen = nullptr;
    bool was_kept = false;
    for (const WaitGraph::LateIn& in : root.stalls) {
      const Stall& stall = graph.stall(in.stall);
      if (is_explained(stall.key)) continue;
      const auto before = named.find(stall.key);
      const bool is_kept =
          before != named.end() && std::ranges::binary_search(before->second, root.rank);
      if (chosen == nullptr || is_kept > was_kept ||
          (is_kept == was_kept && stall.since < graph.stall(chosen->stall).since)) {
        chosen = &in;
        was_kept = is_kept;
      }
    }
    if (chosen == nullptr) continue;
    for (const WaitGraph::LateIn& in : root.stalls)
      (&in == chosen ? roots : others)[static_cast<size_t>(in.stall)].push_back(in.late);
  }
  std::vector<size_t> late(graph.stalls().size());
  for (size_t s = 0; s < graph.stalls().size(); ++s) {
    const Stall& stall = graph.stalls()[s];
    late[s] = stall.late.size();
    if (stall.below >= 0) late[s] += late[static_cast<size_t>(stall.below)];
    if (roots[s].empty()) continue;
    Case& one = case_of(stall.key, {});
    note_stall(one, graph, static_cast<int>(s));
    note_late(now, one, std::move(roots[s]), std::move(others[s]), late[s]);
  }
}

Detector::Case& Detector::case_of(const StallKey& key, const std::vector<int>& circle) {
  const auto found = std::ranges::find_if(cases_, [&](const Case& one) {
    return one.circle == circle && (!circle.empty() || one.key == key);
  });
  if (found != cases_.end()) return *found;
  Case& added = cases_.emplace_back();
  added.key = key;
  added.circle = circle;
  return added;
}

void Detector::note_stall(Case& one, const WaitGraph& graph, int index) {
  const Stall& stall = graph.stall(index);
  one.stall = index;
  one.since = stall.since;
  one.group = stall.group->name;
  if (stall.call.kind != ring::CallKind::unknown) one.call = stall.call;
  if (stall.key.peer >= 0)
    one.peer = stall.group->members[static_cast<size_t>(stall.key.peer)].rank;
  one.waiting.clear();
  for (const int rank : stall.waiting)
    one.waiting.push_back({rank, stall.key});
}

void Detector::note_late(Instant now, Case& one, std::vector<LateRank> roots,
                         std::vector<LateRank> others, size_t late) {
  if (!one.roots.empty() && late != one.late) one.changed = now;
  const auto has = [](const std::vector<LateRank>& ranks, int rank) {
    return std::ranges::binary_search(ranks, rank, {}, &LateRank::rank);
  };
  for (const std::vector<LateRank>* const before : {&one.roots, &one.others}) {
    for (const LateRank& gone : *before) {
      if (has(roots, gone.rank) || has(others, gone.rank)) continue;
      // The rank has come or waits itself, maybe since before this was noticed.
      const RankState& rank = state(gone.rank);
      one.changed = std::max({one.changed, rank.unchanged_since, rank.life_since});
    }
  }
  one.roots = std::move(roots);
  one.others = std::move(others);
  one.late = late;
}

bool Detector::is_explained(const StallKey& key) const {
  return key.kind == StallKey::Kind::collective && calls_.explains(key.group, key.ordinal);
}

void Detector::note_status(const WaitGraph& graph) {
  status_.reset();
  const auto one = std::ranges::find_if(cases_, [](const Case& each) { return each.stall >= 0; });
  if (one == cases_.end()) return;
  std::vector<int> late = one->circle;
  for (const LateRank& root : one->roots)
    late.push_back(root.rank);
  std::ranges::sort(late);
  status_ = Status{.operation = operation_of(*one),
                   .late = late,
                   .waiting = graph.waiting_for(late).size(),
                   .is_circle = !one->circle.empty(),
                   .since = begin_of(*one)};
}

}  // namespace muster::hang
