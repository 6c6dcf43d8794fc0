// A stand-in for the CUDA driver and for NCCL, in one shared library that exports their functions:
// streams are threads, GPU memory is host memory, and the ranks of a communicator are threads of
// one process. What is tested with it is our side: that the library is found and judged, what is
// called in which order and on which stream, that errors, deadlines and aborts come through. It
// says nothing of real GPUs, of NCCL's speed, or of what NCCL does where this is simpler.
//
// The test looks inside and sets what goes wrong through fake_gpu(), which the library exports too.
#pragma once

#include <atomic>
#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

namespace muster::fake {

struct FakeGpu {
  // ---- what it is
  std::atomic<int> gpus{8};
  std::atomic<int> init_error{0};      // Of cuInit.
  std::atomic<bool> same_uuid{false};  // All GPUs are one.
  std::atomic<int> nccl_version{23007};
  std::atomic<bool> has_revoke{true};  // Only counted: false makes ncclCommRevoke fail.

  // ---- what goes wrong
  std::atomic<bool> nobody_joins{false};  // ncclCommInitRankConfig never ends.
  std::atomic<bool> split_hangs{false};   // ncclCommSplit never ends.
  std::atomic<int> init_result{0};        // What ncclCommInitRankConfig ends with.
  std::atomic<int> next_call_result{0};   // Of the next ncclAllReduce.
  std::atomic<int> async_error{0};        // Of every ncclCommGetAsyncError on a blocking one.
  std::atomic<bool> abort_hangs{false};   // ncclCommAbort does not return until this is false.
  std::atomic<bool> calls_hang{false};    // ncclAllReduce does not return unless revoked.
  std::atomic<bool> stream_is_captured{false};  // All streams.
  std::atomic<int> event_error{0};              // Of cuEventQuery.

  // ---- what has happened
  std::atomic<int> aborts{0};
  std::atomic<int> revokes{0};
  std::atomic<int> destroys{0};
  std::atomic<int> communicators{0};  // Alive.
  std::atomic<int> streams{0};        // Alive.
  std::atomic<int> events{0};         // Alive.
  std::atomic<int> allocations{0};    // Alive.
  std::atomic<int> contexts{0};       // Retained.
  std::atomic<int> queries{0};        // Of events.
  std::atomic<int> in_calls{0};       // Threads that hang in ncclAllReduce.
  std::atomic<int> misuses{0};        // No context, a communicator that is gone, a bad argument.

  void note(const std::string& what) {
    const std::lock_guard lock(mutex_);
    log_.push_back(what);
  }
  // What was called on communicators and streams since the last time: "all_reduce int8 3 sum".
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
