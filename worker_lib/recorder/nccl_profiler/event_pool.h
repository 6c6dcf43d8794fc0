// The events that NCCL has begun and not ended, and those that its later events name as parents:
// fixed memory, taken in turn. Any thread; no lock, no allocation.
//
// A handle is an address within the event's bytes; its offset is the event's generation. So a stale
// handle is recognised until its slot has been reused 128 times: NCCL may name an event long after
// its end, as channels of kernels do. Addresses from other profilers or processes (PXN) do no harm.
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

}  // namespace muster::nccl
