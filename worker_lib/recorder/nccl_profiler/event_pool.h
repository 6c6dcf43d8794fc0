// The events that NCCL has begun and not ended, and those that its later events name as parents:
// fixed memory, taken in turn. Any thread; no lock, no allocation.
//
// A handle is an address in the event's own bytes, whose offset is the event's generation: one of
// an event that is over is known by it until its slot was used 128 times more. So NCCL may name an
// event long after its end, as channels of kernels do, and addresses of other profilers or
// processes (PXN) do no harm.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "rendezvous/ring/ring_writer.h"

namespace muster::nccl {

inline constexpr size_t kEventBytes = 128;

struct alignas(kEventBytes) Event {
  std::atomic<uint32_t> generation = 0;
  std::atomic<bool> is_in_use = false;
  bool has_channels = false;
  std::atomic<int> channels_left = 0;  // Of its kernel, on the GPU.
  uint64_t type = 0;
  void* theirs = nullptr;  // The handle of the chained profiler.
  void* parent = nullptr;  // As NCCL gave it.
  ring::Pending pending = {};
};
static_assert(sizeof(Event) == kEventBytes);

class EventPool {
 public:
  // nullptr: too many are in use.
  Event* take();
  // It stays what it is until it is taken again.
  static void release(Event& event) { event.is_in_use.store(false, std::memory_order_release); }

  void* handle_of(Event& event) const;
  bool owns(const void* handle) const;
  // nullptr: it is over and its memory another one's, or it never was.
  Event* find(const void* handle);

 private:
  std::array<Event, 1024> events_;
  std::atomic<uint64_t> next_ = 0;
};

}  // namespace muster::nccl
