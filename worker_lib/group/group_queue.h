// A group's asynchronous collectives, performed in call order by one thread, for backends that are
// not asynchronous themselves.
//
// Owned by a CollectiveQueue. The first push() starts the thread and the destructor joins it, which
// REQUIRES that nothing is left to do or that the group has failed. Any thread may call anything.
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

// An operation in the queue. wait() ends at its own deadline, and then fails the group.
class QueuedWork final : public WorkState {
 public:
  QueuedWork(std::shared_ptr<GroupState> state, std::string label, Deadline deadline, Lane lane);

  std::optional<Outcome<>> wait(Deadline until) override;
  std::optional<Outcome<>> outcome() const override;
  void abandon() override { state_->abandon(operation); }

 private:
  friend class GroupQueue;

  void fail(std::unique_lock<std::mutex>& lock, const Failure& late);
  void begin();  // Its turn: from here on the backend enforces the deadline.
  void complete(Outcome<> outcome);

  const std::shared_ptr<GroupState> state_;
  const std::string label_;
  const Deadline deadline_;
  const Lane lane_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool begun_ = false;
  std::optional<Failure> expired_;  // Set if the deadline passed before the turn.
  std::optional<Outcome<>> outcome_;
};

class GroupQueue {
 public:
  // Runs on the queue's thread.
  using Task = std::function<Outcome<>()>;

  explicit GroupQueue(std::shared_ptr<GroupState> state, Lane lane = Lane::host)
      : state_(std::move(state)), lane_(lane) {}
  GroupQueue(const GroupQueue&) = delete;
  GroupQueue& operator=(const GroupQueue&) = delete;
  ~GroupQueue();

  // `operation`: its name, for messages. The group fails if the thread cannot be started.
  std::shared_ptr<QueuedWork> push(Task task, const char* operation, Deadline deadline);

  // True if nothing is queued or running. One load.
  bool idle() const noexcept { return pending_.load(std::memory_order_acquire) == 0; }
  void wait_idle();

  // True if the thread performs an operation; if a thread waits for that one or one behind it.
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
  std::shared_ptr<QueuedWork> performed_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace muster::worker
