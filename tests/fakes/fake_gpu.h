// A replacement for the CUDA driver and NCCL, in one shared library that exports their functions:
// streams are threads, GPU memory is host memory, and the ranks of a communicator are threads of
// one process. It tests muster's side: that the library is found and checked, which calls are made
// in which order and on which stream, and that errors, deadlines and aborts are handled. It shows
// nothing about real GPUs, NCCL's speed, or behaviour of NCCL that the fake leaves out.
//
// Tests inspect it and inject failures through fake_gpu(), which the library exports too.
#pragma once

#include <atomic>
#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

namespace muster::fake {

struct FakeGpu {
  // ---- configuration
  std::atomic<int> gpus{8};
  std::atomic<int> init_error{0};      // Result of cuInit.
  std::atomic<bool> same_uuid{false};  // All GPUs have one UUID.
  std::atomic<int> nccl_version{23007};
  std::atomic<bool> has_revoke{true};  // If false, ncclCommRevoke is counted but fails.

  // ---- failures
  std::atomic<bool> nobody_joins{false};  // ncclCommInitRankConfig never completes.
  std::atomic<bool> split_hangs{false};   // ncclCommSplit never completes.
  std::atomic<int> init_result{0};        // Final result of ncclCommInitRankConfig.
  std::atomic<int> next_call_result{0};   // Result of the next ncclAllReduce.
  std::atomic<int> async_error{0};        // From ncclCommGetAsyncError on blocking communicators.
  std::atomic<bool> abort_hangs{false};   // ncclCommAbort does not return until this is false.
  std::atomic<bool> calls_hang{false};    // ncclAllReduce does not return unless revoked.
  std::atomic<bool> stream_is_captured{false};  // Holds for all streams.
  std::atomic<int> event_error{0};              // Result of cuEventQuery.

  // ---- counters
  std::atomic<int> aborts{0};
  std::atomic<int> revokes{0};
  std::atomic<int> destroys{0};
  std::atomic<int> communicators{0};  // Alive.
  std::atomic<int> streams{0};        // Alive.
  std::atomic<int> events{0};         // Alive.
  std::atomic<int> allocations{0};    // Alive.
  std::atomic<int> contexts{0};       // Retained.
  std::atomic<int> queries{0};        // Event queries.
  std::atomic<int> in_calls{0};       // Threads that hang in ncclAllReduce.
  std::atomic<int> misuses{0};        // No context, a destroyed communicator, a bad argument.

  void note(const std::string& what) {
    const std::lock_guard lock(mutex_);
    log_.push_back(what);
  }
  // The calls on communicators and streams since the last take_log(): "all_reduce int8 3 sum".
  std::vector<std::string> take_log() {
    const std::lock_guard lock(mutex_);
    return std::move(log_);
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> log_;
};

}  // namespace muster::fake

extern "C" muster::fake::FakeGpu* fake_gpu();
