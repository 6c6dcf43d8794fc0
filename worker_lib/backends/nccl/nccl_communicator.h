// An NCCL communicator, from the first contact between the ranks to its end.
//
// Two are made. Only a non-blocking communicator can be waited for with a deadline and given up;
// but every operation on a non-blocking one starts a thread inside NCCL (its group.cc), which costs
// more than the operation. So the ranks meet in a non-blocking communicator, split off a blocking
// one with the same members, and release the first.
//
// Owned by an NcclCore. Calls on one communicator must not overlap: callers hold mutex() around
// them. end() is the exception, since it may find a thread stuck in NCCL.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "worker_lib/backends/nccl/cuda_driver.h"
#include "worker_lib/backends/nccl/nccl_library.h"
#include "worker_lib/failure.h"
#include "worker_lib/operation.h"

namespace muster::worker {

class NcclCommunicator {
 public:
  struct Options {
    const NcclApi& nccl;
    std::shared_ptr<Gpu> gpu;
    NcclUniqueId id;
    int rank = 0;
    int ranks = 1;
    Deadline deadline;
    std::function<std::optional<Failure>()> interrupted;
  };

  // Blocks until all ranks have joined. Fails with timeout, with what `interrupted` returns, or
  // with backend and NCCL's reason. On failure a separate thread, which may outlast the call,
  // aborts what was begun.
  static Outcome<std::unique_ptr<NcclCommunicator>> join(const Options& options);

  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;
  // REQUIRES: end() has returned, or a leak is acceptable.
  ~NcclCommunicator() = default;

  NcclHandle handle() const { return handle_; }
  const NcclApi& nccl() const { return nccl_; }
  const std::shared_ptr<Gpu>& gpu() const { return gpu_; }
  std::timed_mutex& mutex() { return mutex_; }

  // What has gone wrong inside NCCL since; fails with code backend. REQUIRES: mutex() is held.
  Outcome<> check() const;

  // Called once, last. Blocks as long as NCCL does, so it needs a thread that may block. `orderly`:
  // no operation is in flight. Otherwise operations in flight are revoked if NCCL can (from 2.28.7
  // on; this also frees a thread stuck in NCCL), then aborted. There is no abort while a thread is
  // in NCCL, since it frees what that thread uses. If the thread does not return, calls `on_stuck`
  // once and waits for it.
  void end(bool orderly, const std::function<void()>& on_stuck);

 private:
  NcclCommunicator(const NcclApi& nccl, std::shared_ptr<Gpu> gpu)
      : nccl_(nccl), gpu_(std::move(gpu)) {}

  const NcclApi& nccl_;
  std::shared_ptr<Gpu> gpu_;
  std::timed_mutex mutex_;
  NcclHandle handle_ = nullptr;
};

}  // namespace muster::worker
