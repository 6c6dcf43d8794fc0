// Whether a group is still usable: its first failure, and whether it was closed. Shared by the
// group, its queues and the Work objects handed out, which may outlive the group.
//
// Any thread may call anything. The first failure counts; `on_failed` is called with it once, on
// the thread that reported it.
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
    here,   // A backend or a deadline on this rank: the other members do not know of it.
    abort,  // abort() on this rank: the same, and the others get its words.
    known,  // News of the watch.
    told,   // Another member failed and reported it.
  };
  using OnFailed = std::function<void(const Failure& failure, Source source)>;

  // The call that failed, as other ranks are asked about it: see StragglerQuery.
  struct Call {
    Lane lane = Lane::host;
    uint64_t number = 0;  // 0: the call in flight in its lane.
    bool is_message = false;
    bool from_anybody = false;
    std::chrono::milliseconds limit{0};
  };
  // Finds the ranks to blame for what this rank suspects. May take its time, until `over` says that
  // the answer is no longer needed.
  using NameStragglers = std::function<Failure(const Failure& suspected, const Call& call,
                                               const std::function<bool()>& over)>;

  // `watched`: whether news of deaths arrives, so that it is worth waiting a moment for them.
  GroupState(std::string group_name, GlobalRank self, bool watched,
             KnownRanks known_ranks = nullptr)
      : group_name_(std::move(group_name)),
        self_(self),
        watched_(watched),
        known_ranks_(std::move(known_ranks)) {}

  // Call attach() before the group is used. Once detach() has returned, `on_failed` is not called.
  void attach(OnFailed on_failed);
  void detach();
  // Call before the group is used. Any thread may call it, even after the group is gone.
  void name_stragglers_with(NameStragglers name_stragglers) {
    name_stragglers_ = std::move(name_stragglers);
  }

  // Call before the group is used.
  void record_with(const LaneRecorder& recorder) { recorder_ = recorder; }

  const std::string& group_name() const { return group_name_; }
  const KnownRanks& known_ranks() const { return known_ranks_; }

  // One load.
  bool usable() const noexcept { return state_.load(std::memory_order_acquire) == State::usable; }
  bool failed() const noexcept { return state_.load(std::memory_order_acquire) == State::failed; }

  // False if the group was not usable. `during`: the label of the operation that failed, if any.
  bool fail(const Failure& failure, Source source, const std::string& during = {});
  // The failure that later calls return; nullopt: the group has not failed.
  std::optional<Failure> failure() const;
  void close();
  // Why a call is refused. REQUIRES: !usable().
  Failure refusal() const;

  // Returns what an operation that failed with `own` on this rank must return: `own` with the label
  // in front, after failing the group with it, or what failed the group before. If `own` is a
  // suspicion, first finds out which ranks are to blame. If `own` may be the echo of a death (a
  // closed connection, a store that is gone), waits a moment for news of it, which is more precise,
  // and if none comes of a peer's end, finds out whether other ranks are to blame for it;
  // if another member has met the same failure and reported it first, the words of `own` stay. A
  // refused argument fails nothing. What it returns is recorded, if it is this rank's first.
  Failure settle(const Failure& own, const std::string& label) { return settle(own, label, {}); }
  Failure settle(const Failure& own, const std::string& label, const Call& call);
  // Does only the naming for a suspicion, and fails nothing; returns other failures unchanged.
  Failure name_stragglers(const Failure& suspected, const Call& call) const;
  // For a failure that does not fail the group (of a monitored barrier): only adds what is known.
  Failure explain(const Failure& own, const std::string& label) const;

 private:
  enum class State : uint8_t { usable, failed, closed };

  Failure refusal_locked() const;
  Failure settled(const Failure& met, const std::string& label, const Call& call);
  bool wait_failed(Deadline until) const;
  Failure with_origin(Failure own) const;
  void wait_for_news(const Failure& own) const;
  // If another member reported the same failure first, puts it in these words and returns true.
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
  std::optional<Failure> failure_;  // Set in State::failed, and in closed after it.
  std::string during_;
  bool second_hand_ = false;  // Source::told
  std::mutex calling_;        // Held while on_failed_ is called or changed.
  OnFailed on_failed_;
};

}  // namespace muster::worker
