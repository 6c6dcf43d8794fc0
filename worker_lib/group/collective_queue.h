// One backend of a group and the order of its collectives: they are numbered and performed one at a
// time, on the caller's thread if no asynchronous one is in flight, otherwise by the queue.
//
// Owned by a Group, which outlives every call. Any thread may call anything. A returned failure
// names the operation and the group, and has failed the group unless an argument was refused.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "worker_lib/backends/backend.h"
#include "worker_lib/group/group_queue.h"
#include "worker_lib/group/group_shutdown.h"
#include "worker_lib/group/group_state.h"
#include "worker_lib/operation.h"
#include "worker_lib/recorder/lane_recorder.h"
#include "worker_lib/stragglers/rank_progress.h"

namespace muster::worker {

class CollectiveQueue {
 public:
  // `index`: the queue's in the group, as in `departures`.
  CollectiveQueue(std::unique_ptr<GroupBackend> backend, size_t index,
                  std::shared_ptr<GroupState> state, const GroupShutdown& departures,
                  const LaneRecorder& recorder);
  CollectiveQueue(const CollectiveQueue&) = delete;
  CollectiveQueue& operator=(const CollectiveQueue&) = delete;

  GroupBackend& backend() { return *backend_; }
  const LaneRecorder& recorder() const { return recorder_; }

  // Both set `operation.sequence`. `name` is used in messages.
  Outcome<> perform(Operation& operation, const char* name, Deadline deadline);
  Outcome<std::shared_ptr<WorkState>> begin(Operation operation, const char* name,
                                            Deadline deadline);
  // Performs anything else that all members do together, in turn; `call` is what gets recorded.
  Outcome<> perform_in_turn(const char* name, const ring::Call& call, Deadline deadline,
                            std::function<Outcome<>()> act);

  // Number of collectives begun.
  uint64_t begun() const noexcept { return begun_.load(); }
  // Progress for queries, at any time. `awaited`: ranks of the group; empty if unknown.
  LaneProgress progress() const;
  bool idle();
  // Blocks until everything that was begun is complete.
  void wait_idle();

 private:
  template <typename Enter, typename Act>
  Outcome<> take_turn(const char* name, const Enter& enter, const Act& act,
                      std::chrono::milliseconds limit = std::chrono::milliseconds{0},
                      bool is_launched = false);
  Lane lane() const { return index_ == 0 ? Lane::host : Lane::device; }
  Outcome<> run(Operation& operation, const char* name, Deadline deadline, bool is_awaited);
  Outcome<std::shared_ptr<WorkState>> start(Operation& operation, const char* name,
                                            Deadline deadline, CallRecord& record);
  void record_completed();
  bool try_take_turn(std::unique_lock<std::mutex>& turn);
  GroupQueue& queue();

  const size_t index_;
  const std::shared_ptr<GroupState> state_;
  const GroupShutdown& departures_;
  std::unique_ptr<GroupBackend> backend_;
  const bool is_asynchronous_;  // The backend's.
  const LaneRecorder recorder_;
  // Held while a collective is performed.
  std::mutex turn_;
  std::atomic<uint64_t> begun_{0};  // Changed only while turn_ is held.
  std::atomic<uint64_t> ended_{0};
  std::atomic<const char*> last_{""};  // The name of the operation begun last.
  std::deque<CallRecord> in_flight_;   // Guarded by turn_. Asynchronous backends only.
  std::once_flag queue_once_;
  std::atomic<GroupQueue*> queue_{nullptr};
  std::unique_ptr<GroupQueue> queue_owner_;  // Last: its thread uses all of the above.
};

}  // namespace muster::worker
