#include "worker_lib/group/group_state.h"

#include <utility>

#include <fmt/format.h>

#include "worker_lib/failure_reports.h"
#include "worker_lib/group_labels.h"

namespace muster::worker {

namespace {

// Wait for the watch's report of a death, which takes milliseconds, when a backend sees a closed
// connection: the kernel of the dead peer closes both at the same time.
constexpr std::chrono::milliseconds kNewsPatience{100};

// Cuts " of group world" from "all_reduce 17 of group world".
std::string without_group(const std::string& label, const std::string& group_name) {
  const std::string end = " of " + group_title(group_name);
  return label.ends_with(end) ? label.substr(0, label.size() - end.size()) : label;
}

}  // namespace

void GroupState::attach(OnFailed on_failed) {
  const std::lock_guard lock(calling_);
  on_failed_ = std::move(on_failed);
}

bool GroupState::fail(const Failure& failure, Source source, const std::string& during) {
  {
    const std::lock_guard lock(mutex_);
    if (state_ != State::usable) return false;
    failure_ = failure;
    failure_->known_ns = new_failure_time();
    during_ = without_group(during, group_name_);
    second_hand_ = source == Source::from_member;
    state_.store(State::failed, std::memory_order_release);
  }
  changed_.notify_all();
  const std::lock_guard lock(calling_);
  if (on_failed_) on_failed_(failure, source);
  return true;
}

void GroupState::abandon(const std::string& operation) {
  fail({ErrorCode::aborted,
        fmt::format("rank {} aborted the group: an exception ended the scope of its {} in flight",
                    self_.value, operation),
        {self_}},
       Source::own_abort);
}

std::optional<Failure> GroupState::failure() const {
  const std::lock_guard lock(mutex_);
  if (!failure_) return std::nullopt;
  return refusal_locked();
}

void GroupState::close() {
  const std::lock_guard lock(mutex_);
  state_.store(State::closed, std::memory_order_release);
}

Failure GroupState::refusal() const {
  const std::lock_guard lock(mutex_);
  return refusal_locked();
}

Failure GroupState::refusal_locked() const {
  if (!failure_) {
    return {ErrorCode::not_initialized,
            "this rank has left the group; initialise and make it again",
            {}};
  }
  Failure again = *failure_;
  if (!during_.empty())
    again.message = "the group has failed: " + during_ + ": " + failure_->message;
  return again;
}

bool GroupState::replace_told(const Failure& own, const std::string& label) {
  const std::lock_guard lock(mutex_);
  // An aborted backend returns what it was aborted with.
  if (!second_hand_ || own.code != failure_->code || own == *failure_) return false;
  // The first report stands: that member searched while all others were still in their calls.
  if (own.ranks != failure_->ranks) return false;
  failure_->message = own.message;
  during_ = without_group(label, group_name_);
  second_hand_ = false;
  return true;
}

void GroupState::wait_for_news(const Failure& own) const {
  // rendezvous: rank 0 may host the store, which dies with it.
  const bool may_echo = own.code == ErrorCode::peer_failed || own.code == ErrorCode::backend ||
                        own.code == ErrorCode::rendezvous;
  if (!watched_ || !may_echo) return;
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kNewsPatience, [this] { return failure_.has_value(); });
}

Failure GroupState::explain(const Failure& own, const std::string& label) const {
  wait_for_news(own);
  return labelled(own.code == ErrorCode::rendezvous ? failure().value_or(own) : own, label);
}

// Blames this rank for its kernel's refusal. A lost store is a suspicion: a rank may have hosted
// it.
Failure GroupState::with_origin(Failure own) const {
  if (own.code == ErrorCode::system && own.ranks.empty()) own.ranks = {self_};
  if (own.code == ErrorCode::rendezvous && own.ranks.empty()) own.is_suspicion = true;
  return own;
}

Failure GroupState::name_stragglers(const Failure& suspected, const Call& call) const {
  Failure known = suspected;
  if (suspected.is_suspicion && name_stragglers_ && usable())
    known = name_stragglers_(suspected, call, [this] { return !usable(); });
  known.is_suspicion = false;
  return known;
}

Failure GroupState::settle(const Failure& met, const std::string& label, const Call& call) {
  if (met.code == ErrorCode::invalid_argument) return labelled(met, label);
  Failure said = settled(met, label, call);
  recorder_.note_failure(said.message);
  return said;
}

// 1. A suspicion is resolved to the ranks to blame.
// 2. What may be the echo of a death (a closed connection, a store that is gone) waits a moment for
//    the watch's report, which is more precise.
// 3. If no report of a peer's end came, a search finds other ranks to blame.
// 4. `aborted` and `stopped` come from another rank: returns what failed the group.
// 5. Anything else fails the group, if it is usable. If another member reported the same failure
//    before, this rank's text replaces that member's.
// 6. Otherwise returns what failed the group before.
Failure GroupState::settled(const Failure& met, const std::string& label, const Call& call) {
  Failure own = name_stragglers(with_origin(met), call);
  wait_for_news(own);
  // A rank that should have passed on the end of the peer may be the one that the peer gave up on.
  if (watched_ && met.code == ErrorCode::peer_failed) {
    own.is_suspicion = true;
    own = name_stragglers(own, call);
  }
  // Shared memory carries another rank's abort() faster than the watch, which informs all members.
  const bool from_another = own.code == ErrorCode::aborted || own.code == ErrorCode::stopped;
  if (from_another) {
    fail(own, Source::from_watch);
    return labelled(failure().value_or(own), label);
  }
  // A search cut short by another member's report found nothing: that report is more precise.
  const bool is_cut_short = met.is_suspicion && own.message == met.message && !usable();
  if (fail(own, Source::own, label) || (!is_cut_short && replace_told(own, label))) {
    const std::lock_guard lock(mutex_);
    Failure said = labelled(own, label);
    said.known_ns = failure_->known_ns;
    return said;
  }
  return labelled(failure().value_or(own), label);
}

}  // namespace muster::worker
