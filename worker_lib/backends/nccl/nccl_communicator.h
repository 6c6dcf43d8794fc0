// A communicator of NCCL, from the first word between the ranks to its end.
//
// Made twice over: NCCL can be waited for with a deadline, and given up, only while a communicator
// is non-blocking; but every operation on a non-blocking one starts a thread inside NCCL (its
// group.cc), which costs more than the operation. So the ranks meet in a non-blocking one, split a
// blocking one with the same members off it, and let the first go.
//
// Owned by an NcclCore. NCCL's calls on one communicator exclude each other: mutex() is held around
// them, save by end(), which may find somebody stuck in there.
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

  // Blocks until all ranks have joined. Fails with timeout, what `interrupted` says, or backend
  // with NCCL's reason. What was begun is aborted on a thread of its own, which may outlast the
  // call.
  static Outcome<std::unique_ptr<NcclCommunicator>> join(const Options& options);

  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;
  // REQUIRES: end() has returned, or nobody minds a leak.
  ~NcclCommunicator() = default;

  NcclHandle handle() const { return handle_; }
  const NcclApi& nccl() const { return nccl_; }
  const std::shared_ptr<Gpu>& gpu() const { return gpu_; }
  std::timed_mutex& mutex() { return mutex_; }

  // What has gone wrong inside NCCL since; a failure of code backend. REQUIRES: mutex() is held.
  Outcome<> check() const;

  // Once, the last call. Blocks as long as NCCL does, so it needs a thread that can be spared.
  // `orderly`: nothing is under way. Else what is under way is stopped: revoked where NCCL can
  // (from 2.28.7 on; that also gets a caller out who is stuck in NCCL), then aborted. While
  // somebody is in NCCL it is not: an abort frees what he works on. Then `on_stuck` is called once,
  // and he is waited for.
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
