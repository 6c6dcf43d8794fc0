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

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "rendezvous/ring/ring_writer.h"
#include "worker_lib/recorder/nccl_profiler/communicator.h"

namespace muster::nccl {

// ---- the events that NCCL has begun and not ended, and those that its later events name as
// parents: fixed memory, taken in turn. Any thread; no lock, no allocation.
//
// A handle is an address within the event's bytes; its offset is the event's generation. So a stale
// handle is recognised until its slot has been reused 128 times: NCCL may name an event long after
// its end, as channels of kernels do. Addresses from other profilers or processes (PXN) do no harm.

inline constexpr size_t kEventBytes = 128;

struct alignas(kEventBytes) Event {
  std::atomic<uint32_t> generation = 0;
  std::atomic<bool> is_in_use = false;
  bool has_channels = false;
  std::atomic<int> channels_left = 0;  // Channels of its kernel still running on the GPU.
  uint64_t type = 0;
  void* theirs = nullptr;  // Handle of the chained profiler.
  void* parent = nullptr;  // Handle given by NCCL.
  ring::Pending pending = {};
};
static_assert(sizeof(Event) == kEventBytes);

class EventPool {
 public:
  // Returns nullptr if too many are in use.
  Event* take();
  // The event keeps its contents until it is taken again.
  static void release(Event& event) { event.is_in_use.store(false, std::memory_order_release); }

  void* handle_of(Event& event) const;
  bool owns(const void* handle) const;
  // Returns nullptr if the handle is not ours or its memory now holds another event.
  Event* find(const void* handle);

 private:
  std::array<Event, 1024> events_;
  std::atomic<uint64_t> next_ = 0;
};

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
  int whole_mask() const { return own_mask() | (chained_ ? chained_.mask() : 0); }
  bool records(uint64_t type) const { return (static_cast<uint64_t>(own_mask()) & type) != 0; }
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
