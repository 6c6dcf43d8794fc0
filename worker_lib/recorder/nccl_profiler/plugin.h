// muster's NCCL profiler: one per process, for any interface version. It writes NCCL's events to
// the rank's ring (rendezvous/ring/), which it owns or shares with Python's hook, and passes on to
// the user's own profiler the events that it asks for.
//
//   MUSTER_RECORD_FD            the ring; nothing is recorded without one, or if another process or
//                               muster's worker library records
//   MUSTER_RECORD_KERNELS       set: also records starts and ends of kernels (KernelCh)
//   MUSTER_NCCL_PROFILER_CHAIN  NCCL_PROFILER_PLUGIN as set by the user
//
// It fails no call of NCCL: if there is nothing to do its activation mask is 0, and NCCL stops
// calling it. Between init() and finalize() it makes no system call, takes no lock and allocates
// nothing, except in the first call of a communicator of version 3.
#pragma once

#include <memory>
#include <mutex>

#include "worker_lib/recorder/nccl_profiler/communicator.h"
#include "worker_lib/recorder/nccl_profiler/event_pool.h"

namespace muster::nccl {

class Plugin {
 public:
  // Never destroyed: NCCL's threads may call until the process ends.
  static Plugin& of_process();

  // Returns nullptr if there is no memory. `mask`: NCCL's activation mask, one per process.
  Communicator* init(int version, int* mask, const InitFacts& facts) noexcept;
  void start(Communicator& communicator, void** handle, void* descriptor, const EventFacts& facts);
  void stop(void* handle);
  void record_state(void* handle, int state, void* arguments);
  void finalize(Communicator* communicator);

 private:
  void begin(int version, const InitFacts& facts);
  void attach();
  int own_mask() const;
  int whole_mask() const;
  bool records(uint64_t type) const;
  void record(Communicator& communicator, Event& event, const EventFacts& facts);
  void record_task(Communicator& communicator, Event& event, const EventFacts& facts);
  void forward(const Communicator& communicator, void** handle, void* descriptor,
               const EventFacts& facts);
  void follow_their_mask();

  std::mutex mutex_;
  bool has_begun_ = false;
  int version_ = 0;
  bool has_kernels_ = false;
  std::atomic<int*> mask_ = nullptr;
  std::atomic<int> told_mask_ = 0;
  std::unique_ptr<ring::RingWriter> writer_;
  std::unique_ptr<EventPool> events_;
  ChainedProfiler chained_;
};

}  // namespace muster::nccl
