#include "worker_lib/group/group_p2p.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace muster::worker {

void GroupTransfers::add(int peer, std::shared_ptr<WorkState> state) {
  const std::lock_guard lock(mutex_);
  begun_.push_back({peer, std::move(state)});
  if (begun_.size() < prune_at_) return;
  prune();
  prune_at_ = std::max<size_t>(64, begun_.size() * 2);
}

void GroupTransfers::prune() {
  std::erase_if(begun_, [](const Begun& one) { return one.state->outcome().has_value(); });
}

bool GroupTransfers::involves(int peer) {
  if (inside_of(peer) != 0) return true;
  const std::lock_guard lock(mutex_);
  prune();
  return std::ranges::find(begun_, peer, &Begun::peer) != begun_.end();
}

bool GroupTransfers::idle() {
  const auto is_zero = [](const std::atomic<int>& count) { return count == 0; };
  if (!std::ranges::all_of(inside_, is_zero)) return false;
  const std::lock_guard lock(mutex_);
  prune();
  return begun_.empty();
}

// Threads that are inside tell nobody when they leave, which keeps small messages fast; only
// destroy_process_group() looks, and a millisecond more is nothing to it.
void GroupTransfers::wait_idle() {
  while (!idle()) {
    std::shared_ptr<WorkState> first;
    {
      const std::lock_guard lock(mutex_);
      if (!begun_.empty()) first = begun_.front().state;
    }
    if (first != nullptr) {
      first->synchronize(Deadline::max());
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
  }
}

}  // namespace muster::worker
