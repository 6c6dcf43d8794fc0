// An NCCL communicator, from the first contact between the ranks to its end.
//
// Only a non-blocking communicator can be set up with a deadline, but each operation on it starts a
// thread inside NCCL (its group.cc), which costs more than the operation. So the ranks meet in a
// non-blocking communicator, split off a blocking one with the same members, and release the first.
//
// Owned by an NcclCore. Calls on one communicator must not overlap: callers hold mutex() around
// them. The exception is end(), which may find a thread stuck in NCCL.
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

  // Blocks until all ranks have joined. Fails with timeout, `interrupted`'s failure, or backend and
  // NCCL's reason. On failure another thread, which may outlast the call, aborts the set-up.
  static Outcome<std::unique_ptr<NcclCommunicator>> join(const Options& options);

  NcclCommunicator(NcclCommunicator&&) = delete;
  // REQUIRES: end() has returned, or a leak is acceptable.
  ~NcclCommunicator() = default;

  NcclHandle handle() const { return handle_; }
  const NcclApi& nccl() const { return nccl_; }
  const std::shared_ptr<Gpu>& gpu() const { return gpu_; }
  std::timed_mutex& mutex() { return mutex_; }

  // Fails with code backend if NCCL reports an asynchronous error. REQUIRES: mutex() is held.
  Outcome<> check() const;

  // Called once, last, on a thread that may block as long as NCCL does. `orderly`: no operation is
  // in flight. Otherwise revokes operations in flight if NCCL can (from 2.28.7 on; this also frees
  // a thread stuck in NCCL), then aborts them. Never aborts while a thread is in NCCL, since that
  // frees what the thread uses; if the thread does not return, calls `on_stuck` once and waits.
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
