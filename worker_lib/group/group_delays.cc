#include "worker_lib/group/group_delays.h"

#include <algorithm>
#include <utility>

#include "worker_lib/quiet_thread.h"

namespace muster::worker {

GroupDelays::~GroupDelays() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void GroupDelays::after(std::chrono::milliseconds wait, std::function<void()> act) {
  const std::lock_guard lock(mutex_);
  entries_.push_back({std::chrono::steady_clock::now() + wait, std::move(act)});
  if (!thread_.joinable()) {
    Outcome<std::thread> thread = start_quiet_thread([this] { work_off(); });
    // Without the thread, waits end at their own deadlines instead of earlier.
    if (thread) thread_ = std::move(*thread);
  }
  changed_.notify_all();
}

void GroupDelays::work_off() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    const auto next = std::ranges::min_element(entries_, {}, &Entry::at);
    if (next == entries_.end()) {
      changed_.wait(lock);
    } else if (const Deadline at = next->at; at > std::chrono::steady_clock::now()) {
      changed_.wait_until(lock, at);
    } else {
      const std::function<void()> act = std::move(next->act);
      entries_.erase(next);
      lock.unlock();
      act();
      lock.lock();
    }
  }
}

}  // namespace muster::worker
