#include "worker_lib/recorder/nccl_profiler/event_pool.h"

namespace muster::nccl {
namespace {

constexpr int kTriesToTake = 16;

size_t offset_of(uint32_t generation) {
  return generation % kEventBytes;
}

}  // namespace

Event* EventPool::take() {
  for (int tries = 0; tries < kTriesToTake; ++tries) {
    Event& event = events_[next_.fetch_add(1, std::memory_order_relaxed) % events_.size()];
    if (event.is_in_use.exchange(true, std::memory_order_acquire)) continue;
    event.generation.fetch_add(1, std::memory_order_relaxed);
    event.channels_left.store(0, std::memory_order_relaxed);
    event.type = 0;
    event.has_channels = false;
    event.theirs = event.parent = nullptr;
    event.pending = {};
    return &event;
  }
  return nullptr;
}

void* EventPool::handle_of(Event& event) const {
  return reinterpret_cast<std::byte*>(&event) + offset_of(event.generation);
}

bool EventPool::owns(const void* handle) const {
  const auto at = reinterpret_cast<uintptr_t>(handle);
  const auto begin = reinterpret_cast<uintptr_t>(events_.data());
  return at >= begin && at - begin < sizeof events_;
}

Event* EventPool::find(const void* handle) {
  if (!owns(handle)) return nullptr;
  const size_t at =
      reinterpret_cast<uintptr_t>(handle) - reinterpret_cast<uintptr_t>(events_.data());
  Event& event = events_[at / kEventBytes];
  return offset_of(event.generation) == at % kEventBytes ? &event : nullptr;
}

}  // namespace muster::nccl
