// State of a group: usable, failed (with its first failure) or closed. Shared by the group, its
// queues and the Work objects handed out, which may outlive the group.
//
// Any thread. `on_failed` is called once, with the first failure, on the reporting thread.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "worker_lib/failure.h"
#include "worker_lib/members.h"
#include "worker_lib/operation.h"
#include "worker_lib/recorder/lane_recorder.h"
#include "worker_lib/stragglers/rank_progress.h"

namespace muster::worker {

class GroupState {
 public:
  enum class Source : uint8_t {
    own,          // A backend or a deadline on this rank: unknown to the other members.
    own_abort,    // abort() on this rank: unknown to the others, which get its reason.
    from_watch,   // An update from the watch.
    from_member,  // Another member failed and reported it.
  };
  using OnFailed = std::function<void(const Failure& failure, Source source)>;

  // The call that failed, for queries to other ranks: see StragglerQuery.
  struct Call {
    Lane lane = Lane::host;
    uint64_t number = 0;  // 0: the one in flight in its lane.
    bool is_message = false;
    bool from_anybody = false;
    std::chrono::milliseconds limit{0};
  };
  // Finds the ranks to blame for a suspicion, until `over` returns true: no longer needed.
  using NameStragglers = std::function<Failure(const Failure& suspected, const Call& call,
                                               const std::function<bool()>& over)>;

  // `watched`: true if a watch reports deaths, so that a short wait for them is worth it.
  GroupState(std::string group_name, GlobalRank self, bool watched,
             KnownRanks known_ranks = nullptr)
      : group_name_(std::move(group_name)),
        self_(self),
        watched_(watched),
        known_ranks_(std::move(known_ranks)) {}

  // Call before the group is used, and with an empty function at its end: nothing is called after
  // that.
  void attach(OnFailed on_failed);
  // Call before the group is used. Any thread may call the function, even after the group is gone.
  void name_stragglers_with(NameStragglers name_stragglers) {
    name_stragglers_ = std::move(name_stragglers);
  }

  // Call before the group is used.
  void record_with(const LaneRecorder& recorder) { recorder_ = recorder; }

  const std::string& group_name() const { return group_name_; }
  const KnownRanks& known_ranks() const { return known_ranks_; }

  bool usable() const noexcept { return state_.load(std::memory_order_acquire) == State::usable; }
  bool failed() const noexcept { return state_.load(std::memory_order_acquire) == State::failed; }

  // Returns false if the group was not usable. `during`: the label of the failed operation, if any.
  bool fail(const Failure& failure, Source source, const std::string& during = {});
  // Aborts the group: an exception has left the scope of an operation in flight.
  void abandon(const std::string& operation);
  // Returns the failure of later calls; nullopt: the group has not failed.
  std::optional<Failure> failure() const;
  void close();
  // Returns why a call is refused. REQUIRES: !usable().
  Failure refusal() const;

  // Returns what an operation that failed with `own` on this rank must return: `own` with the label
  // in front, after failing the group with it, or what failed the group before. The steps are in
  // the .cc. A refused argument fails nothing. Records the result if it is this rank's first.
  Failure settle(const Failure& own, const std::string& label) { return settle(own, label, {}); }
  Failure settle(const Failure& own, const std::string& label, const Call& call);
  // Resolves a suspicion without failing anything; returns other failures unchanged.
  Failure name_stragglers(const Failure& suspected, const Call& call) const;
  // Adds what is known to a failure that does not fail the group (of a monitored barrier).
  Failure explain(const Failure& own, const std::string& label) const;

 private:
  enum class State : uint8_t { usable, failed, closed };

  Failure refusal_locked() const;
  Failure settled(const Failure& met, const std::string& label, const Call& call);
  Failure with_origin(Failure own) const;
  void wait_for_news(const Failure& own) const;
  // Replaces the text of another member's earlier report of the same failure; false: there is none.
  bool replace_told(const Failure& own, const std::string& label);

  const std::string group_name_;
  const GlobalRank self_;
  const bool watched_;
  const KnownRanks known_ranks_;
  NameStragglers name_stragglers_;
  LaneRecorder recorder_;
  std::atomic<State> state_{State::usable};
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::optional<Failure> failure_;  // Set in State::failed; kept in closed.
  std::string during_;
  bool second_hand_ = false;
  std::mutex calling_;  // Held while on_failed_ is called or changed.
  OnFailed on_failed_;
};

}  // namespace muster::worker
