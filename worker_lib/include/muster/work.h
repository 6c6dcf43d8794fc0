// An operation that was started and may still be in progress: the result of the *_async calls.
//
//   #include <muster/process_group.h>
//
//   muster::Work work = group.all_reduce_async(gradients);
//   compute_something_else();
//   work.wait();  // Throws the operation's failure.
//
// A Work is a handle: copies refer to the same operation. Dropping the last copy does not cancel
// it. If it then fails, the group's next call throws the failure; without a next call, the failure
// goes unnoticed. The operation's buffers must stay alive and untouched until it is complete. Since
// an exception that destroys a Work usually destroys them next, the destructor then waits for the
// operation for a second, and after that aborts the group. Any thread may call anything, also
// concurrently.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "muster/error.h"
#include "muster/types.h"

namespace muster {

namespace worker {
class WorkState;
}

// g++ 12 does not accept MUSTER_API beside [[nodiscard]], since their syntaxes differ.
class [[nodiscard, gnu::visibility("default")]] Work {
 public:
  // An empty handle: every method except valid() throws invalid_argument until a Work is assigned.
  Work() = default;
  explicit Work(std::shared_ptr<worker::WorkState> state);
  Work(const Work&) = default;
  Work(Work&&) noexcept = default;
  Work& operator=(const Work&) = default;
  Work& operator=(Work&&) noexcept = default;
  ~Work();

  bool valid() const noexcept { return state_ != nullptr; }

  // Blocks until the operation is complete; throws a DistributedError if it failed. Always returns,
  // since each operation has a deadline (CallOptions::timeout, else the group's). For an operation
  // on GPU memory, makes the call's stream wait for it (like torch.distributed's Work.wait()): the
  // calling thread continues; use synchronize() to block it.
  void wait();
  // Like wait(), but returns false after `timeout`; the operation continues.
  bool wait(std::chrono::milliseconds timeout);
  // Blocks the calling thread until the results are in memory, on GPUs too. Throws like wait().
  void synchronize();

  // True if complete, successfully or not. Never blocks.
  bool is_completed() const;
  // Returns the failure; nullopt while it runs or if it succeeded. Does not wait for it, but the
  // first call after a time-out may search for up to a second for the rank that held up all others.
  std::optional<DistributedError> error() const;
  // Returns the sender, for a completed receive from any source.
  GroupRank source() const;

 private:
  std::shared_ptr<worker::WorkState> state_;
};

}  // namespace muster
