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

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <optional>
#include <utility>

#include "muster/error.h"
#include "muster/muster.h"
#include "muster/types.h"

namespace muster {

namespace detail {

// Owns a handle of muster.h; a copy is another handle of the same object.
template <typename T, muster_status (*copy)(T*, T**), void (*release)(T*)>
class Handle {
 public:
  Handle() = default;
  explicit Handle(T* handle) noexcept : handle_(handle) {}
  Handle(const Handle& other) {
    if (other.handle_ != nullptr) throw_unless_ok(copy(other.handle_, &handle_));
  }
  Handle(Handle&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Handle& operator=(Handle other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Handle() { release(handle_); }

  T* get() const noexcept { return handle_; }

 private:
  T* handle_ = nullptr;
};

inline int64_t milliseconds_from_now(std::chrono::milliseconds limit) {
  return std::max<int64_t>(limit.count(), 0);
}

}  // namespace detail

class [[nodiscard]] Work {
 public:
  // An empty handle: every method except valid() throws invalid_argument until a Work is assigned.
  Work() = default;
  // Takes over a handle of muster.h.
  explicit Work(muster_work* handle) noexcept : handle_(handle) {}
  Work(const Work&) = default;
  Work(Work&&) noexcept = default;
  Work& operator=(const Work&) = default;
  Work& operator=(Work&&) noexcept = default;
  ~Work() {
    if (valid() && std::uncaught_exceptions() > exceptions_before_)
      muster_work_abandon(handle_.get());
  }

  bool valid() const noexcept { return handle_.get() != nullptr; }
  // For functions of muster.h; null: empty.
  muster_work* handle() const noexcept { return handle_.get(); }

  // Blocks until the operation is complete; throws a DistributedError if it failed. Always returns,
  // since each operation has a deadline (CallOptions::timeout, else the group's). For an operation
  // on GPU memory, makes the call's stream wait for it (like torch.distributed's Work.wait()): the
  // calling thread continues; use synchronize() to block it.
  void wait() { detail::throw_unless_ok(muster_work_wait(checked("wait"), -1)); }
  // Like wait(), but returns false after `timeout`; the operation continues.
  bool wait(std::chrono::milliseconds timeout) {
    const muster_status status =
        muster_work_wait(checked("wait"), detail::milliseconds_from_now(timeout));
    if (status == MUSTER_IN_PROGRESS) return false;
    detail::throw_unless_ok(status);
    return true;
  }
  // Blocks the calling thread until the results are in memory, on GPUs too. Throws like wait().
  void synchronize() { detail::throw_unless_ok(muster_work_synchronize(checked("synchronize"))); }

  // True if complete, successfully or not. Never blocks.
  bool is_completed() const {
    return detail::not_negative(muster_work_is_complete(checked("is_completed"))) == 1;
  }
  // Returns the failure; nullopt while it runs or if it succeeded. Does not wait for it, but the
  // first call after a time-out may search for up to a second for the rank that held up all others.
  std::optional<DistributedError> error() const {
    return detail::failure_of(muster_work_status(checked("error")));
  }
  // Returns the sender, for a completed receive from any source.
  GroupRank source() const {
    muster_work* const work = checked("source");
    return GroupRank{is_completed() ? muster_work_source(work) : -1};
  }

 private:
  muster_work* checked(const char* call) const {
    if (!valid())
      detail::throw_empty(call, "Work",
                          "an operation that is begun, as all_reduce_async() or isend()");
    return handle_.get();
  }

  detail::Handle<muster_work, muster_work_copy, muster_work_free> handle_;
  // More of them later: the calling thread leaves the scope of the call by an exception.
  int exceptions_before_ = std::uncaught_exceptions();
};

}  // namespace muster
