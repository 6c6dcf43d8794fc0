#include "agent/output/request_queue.h"

#include <utility>

#include <unistd.h>

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
  const uint64_t one = 1;
  // An eventfd's counter overflows after 2^64 wake-ups; until then this cannot fail or block.
  [[maybe_unused]] const ssize_t n = ::write(event_.get(), &one, sizeof one);
  return true;
}

uint64_t RequestQueue::perform_all() {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t n = ::read(event_.get(), &count, sizeof count);
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
