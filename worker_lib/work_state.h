// The state behind a Work: one operation in flight. HostWork is completed by the thread that
// performs the operation; backends whose operations run on a GPU have their own subclass.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>

#include "worker_lib/failure.h"
#include "worker_lib/members.h"
#include "worker_lib/operation.h"

namespace muster::worker {

// Calls changed.wait_until(), or waits without a limit for Deadline::max().
template <typename Predicate>
bool wait_on(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, Deadline until,
             Predicate is_done) {
  if (until != Deadline::max()) return changed.wait_until(lock, until, is_done);
  changed.wait(lock, is_done);
  return true;
}

// Any thread may call anything.
class WorkState {
 public:
  virtual ~WorkState() = default;

  // Waits until complete; nullopt: not by `until`. For GPU work, only makes its stream wait.
  virtual std::optional<Outcome<>> wait(Deadline until) = 0;
  // Waits until the results are in memory.
  virtual std::optional<Outcome<>> synchronize(Deadline until) { return wait(until); }
  // nullopt: in flight. After a time-out, may first search for the ranks to blame.
  virtual std::optional<Outcome<>> outcome() const = 0;
  // Never blocks.
  virtual bool is_complete() const { return outcome().has_value(); }
  virtual int source() const { return -1; }  // The sender of a receive.
  // Ends it by aborting its group: an exception destroys its buffers.
  virtual void abandon() {}

  // True if a thread waits for it; known only for work completed by other threads of this process.
  bool is_awaited() const { return waiters_.load(std::memory_order_relaxed) > 0; }

  // Used in messages; set before the object is handed out.
  std::string operation;
  std::string group;
  KnownRanks known_ranks = nullptr;

 protected:
  // Marks a thread as waiting while this object lives.
  class Waiter {
   public:
    explicit Waiter(WorkState& state) : waiters_(state.waiters_) { ++waiters_; }
    ~Waiter() { --waiters_; }
    Waiter(Waiter&&) = delete;

   private:
    std::atomic<int>& waiters_;
  };

 private:
  std::atomic<int> waiters_{0};
};

class HostWork final : public WorkState {
 public:
  // Call once.
  void complete(Outcome<> outcome, int source = -1) {
    {
      const std::lock_guard lock(mutex_);
      outcome_ = std::move(outcome);
      source_ = source;
    }
    done_.notify_all();
  }

  std::optional<Outcome<>> wait(Deadline until) override {
    const Waiter waiter(*this);
    std::unique_lock lock(mutex_);
    wait_on(done_, lock, until, [&] { return outcome_.has_value(); });
    return outcome_;
  }

  std::optional<Outcome<>> outcome() const override {
    const std::lock_guard lock(mutex_);
    return outcome_;
  }

  int source() const override {
    const std::lock_guard lock(mutex_);
    return source_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable done_;
  std::optional<Outcome<>> outcome_;
  int source_ = -1;
};

}  // namespace muster::worker
