#include "agent/output/request_queue.h"

#include <utility>

#include "rendezvous/base/event_fd.h"

namespace muster {

bool RequestQueue::push(Request request, size_t text_bytes) {
  {
    const std::lock_guard lock(mutex_);
    if (text_bytes_ + text_bytes > kTextMax) {
      refused_++;
      return false;
    }
    text_bytes_ += text_bytes;
    entries_.push_back({text_bytes, std::move(request)});
  }
  raise_event(event_.get());
  return true;
}

uint64_t RequestQueue::perform_all() {
  drain_event(event_.get());
  std::vector<Entry> entries;
  {
    const std::lock_guard lock(mutex_);
    entries.swap(entries_);
  }
  for (Entry& entry : entries) {
    entry.request();
    if (entry.text_bytes == 0) continue;
    const std::lock_guard lock(mutex_);
    text_bytes_ -= entry.text_bytes;
  }
  const std::lock_guard lock(mutex_);
  return std::exchange(refused_, 0);
}

}  // namespace muster
