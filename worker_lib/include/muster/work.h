// An operation that was begun and may still be under way: what the *_async calls return.
//
//   #include <muster/process_group.h>
//
//   muster::Work work = group.all_reduce_async(gradients);
//   compute_something_else();
//   work.wait();  // Throws what the operation failed with.
//
// A Work is a handle: copies mean the same operation. Letting go of the last one cancels nothing,
// but a failure may then go unheard. The operation's buffers must stay alive and untouched until it
// is complete. Any thread may call anything, at the same time too.
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

// g++ 12 takes no MUSTER_API, of another syntax, beside [[nodiscard]].
class [[nodiscard, gnu::visibility("default")]] Work {
 public:
  // An empty handle: all but valid() throws invalid_argument until an operation's is assigned.
  Work() = default;
  explicit Work(std::shared_ptr<worker::WorkState> state);

  bool valid() const noexcept { return state_ != nullptr; }

  // Blocks until the operation is complete, and throws a DistributedError if it failed. An
  // operation has the deadline it was begun with (CallOptions::timeout, else the group's), so this
  // ends. Of an operation on GPU memory: makes the call's stream wait for it (as
  // torch.distributed's Work.wait() does); the calling thread goes on, and synchronize() waits.
  void wait();
  // The same, but gives up waiting after `timeout`: false, and the operation goes on.
  bool wait(std::chrono::milliseconds timeout);
  // Blocks the calling thread until the results are in memory, on GPUs too. Throws as wait().
  void synchronize();

  // Whether it is complete, well or not. Never blocks.
  bool is_completed() const;
  // What it failed with; nothing while it runs or when it went well. Does not wait for it; but the
  // first call after a time-out may take a second, to find out which rank kept all others.
  std::optional<DistributedError> error() const;
  // Of a receive from any source that is complete: who sent it.
  GroupRank source() const;

 private:
  std::shared_ptr<worker::WorkState> state_;
};

}  // namespace muster
