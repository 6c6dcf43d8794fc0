// Our operations as NCCL calls: which function, type and blocks. Every operation is enqueued on a
// stream; nothing waits for completion.
#pragma once

#include <string>
#include <vector>

#include "worker_lib/backends/nccl/cuda_driver.h"
#include "worker_lib/backends/nccl/nccl_library.h"
#include "worker_lib/failure.h"
#include "worker_lib/operation.h"

namespace muster::worker {

// The communicator and stream that the calls use.
struct NcclTarget {
  const NcclApi& nccl;
  NcclHandle comm;
  CudaStream stream;
  int rank;
  int ranks;
  std::byte* barrier_word;  // Four bytes of GPU memory that barriers reduce.
};

// Returns the reason if NCCL cannot do such an operation at all; else empty.
std::string nccl_refuses(const Operation& operation);
std::string nccl_refuses(const Transfer& transfer);

// Enqueues the operation. Fails with code backend. REQUIRES: nccl_refuses() is empty.
Outcome<> put_on_stream(const NcclTarget& target, const Operation& operation);
// Enqueues all transfers in one NCCL group, so that no order can deadlock.
Outcome<> put_on_stream(const NcclTarget& target, const std::vector<Transfer>& transfers);

}  // namespace muster::worker
