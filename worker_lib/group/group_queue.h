// The asynchronous collectives of a group, performed one after the other in the order of the calls
// by one thread, for backends that work on the calling thread.
//
// Owned by a CollectiveQueue. The thread is made by the first push() and joined by the destructor,
// which REQUIRES that nothing is left to do or that the group has failed. Any thread may call
// anything.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "worker_lib/failure.h"
#include "worker_lib/group/group_state.h"
#include "worker_lib/operation.h"
#include "worker_lib/stragglers/rank_progress.h"
#include "worker_lib/work_state.h"

namespace muster::worker {

// An operation in the queue. wait() ends at the operation's own deadline even if the operations
// before it take longer: then the group has failed.
class QueuedWork final : public WorkState {
 public:
  QueuedWork(std::shared_ptr<GroupState> state, std::string label, Deadline deadline, Lane lane);

  std::optional<Outcome<>> wait(Deadline until) override;
  std::optional<Outcome<>> outcome() const override;

 private:
  friend class GroupQueue;

  void fail(std::unique_lock<std::mutex>& lock, const Failure& late);
  void begin();  // Its turn has come: from here on the backend watches the deadline.
  void complete(Outcome<> outcome);

  const std::shared_ptr<GroupState> state_;
  const std::string label_;
  const Deadline deadline_;
  const Lane lane_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool begun_ = false;
  std::optional<Failure> expired_;  // Set if its deadline came before its turn.
  std::optional<Outcome<>> outcome_;
};

class GroupQueue {
 public:
  // Performs the operation on the queue's thread.
  using Task = std::function<Outcome<>()>;

  // `lane`: that of the queue's calls.
  explicit GroupQueue(std::shared_ptr<GroupState> state, Lane lane = Lane::host)
      : state_(std::move(state)), lane_(lane) {}
  GroupQueue(const GroupQueue&) = delete;
  GroupQueue& operator=(const GroupQueue&) = delete;
  ~GroupQueue();

  // `operation` is its name, for messages. If the thread cannot be started, the group fails and the
  // work is complete.
  std::shared_ptr<QueuedWork> push(Task task, const char* operation, Deadline deadline);

  // Whether nothing is queued or running. One load.
  bool idle() const noexcept { return pending_.load(std::memory_order_acquire) == 0; }
  void wait_idle();

  // Whether the queue's thread performs an operation, and whether any thread waits for that one or
  // for one behind it.
  bool is_performing() const;
  bool is_awaited() const;

 private:
  struct Entry {
    Task task;
    std::shared_ptr<QueuedWork> work;
  };

  void work_off();

  const std::shared_ptr<GroupState> state_;
  const Lane lane_;
  std::atomic<size_t> pending_{0};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable idle_;
  std::deque<Entry> entries_;
  std::shared_ptr<QueuedWork> performed_;  // Being performed.
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace muster::worker
