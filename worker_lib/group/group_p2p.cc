#include "worker_lib/group/group_p2p.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace muster::worker {

void GroupTransfers::add(const Transfer& transfer, std::shared_ptr<WorkState> state) {
  const std::lock_guard lock(mutex_);
  begun_.push_back({{transfer.kind, transfer.peer, transfer.tag}, std::move(state)});
  if (begun_.size() < prune_at_) return;
  prune();
  prune_at_ = std::max<size_t>(64, begun_.size() * 2);
}

void GroupTransfers::prune() {
  std::erase_if(begun_, [](const Begun& one) {
    return one.state->outcome().has_value() && !one.state->is_awaited();
  });
}

bool GroupTransfers::involves(int peer) {
  if (inside_of(OpKind::send, peer) != 0 || inside_of(OpKind::recv, peer) != 0) return true;
  const std::lock_guard lock(mutex_);
  prune();
  return std::ranges::any_of(begun_, [&](const Begun& one) { return one.what.peer == peer; });
}

bool GroupTransfers::idle() {
  const auto is_zero = [](const std::atomic<int>& count) { return count == 0; };
  if (!std::ranges::all_of(inside_, is_zero)) return false;
  const std::lock_guard lock(mutex_);
  prune();
  return begun_.empty();
}

std::vector<PendingTransfer> GroupTransfers::of_threads_inside() const {
  std::vector<PendingTransfer> all;
  for (size_t i = 0; i < inside_.size(); ++i) {
    if (inside_[i] == 0) continue;
    all.push_back({i % 2 == 1 ? OpKind::send : OpKind::recv, static_cast<int>(i / 2) - 1,
                   PendingTransfer::kAnyTag});
  }
  return all;
}

std::vector<PendingTransfer> GroupTransfers::pending() {
  std::vector<PendingTransfer> all = of_threads_inside();
  const std::lock_guard lock(mutex_);
  prune();
  for (const Begun& one : begun_)
    all.push_back(one.what);
  std::ranges::sort(all);
  all.erase(std::ranges::unique(all).begin(), all.end());
  return all;
}

std::vector<PendingTransfer> GroupTransfers::awaited() {
  std::vector<PendingTransfer> all = of_threads_inside();
  const std::lock_guard lock(mutex_);
  for (const Begun& one : begun_) {
    if (one.state->is_awaited()) all.push_back(one.what);
  }
  return all;
}

// Polls: threads that return from a send or receive notify no waiter, which keeps small messages
// fast, and in destroy_process_group() an extra millisecond does not matter.
void GroupTransfers::wait_some() {
  constexpr std::chrono::milliseconds kInside{1};
  constexpr std::chrono::milliseconds kBegun{5};
  std::shared_ptr<WorkState> first;
  {
    const std::lock_guard lock(mutex_);
    if (!begun_.empty()) first = begun_.front().state;
  }
  if (first != nullptr) {
    first->synchronize(std::chrono::steady_clock::now() + kBegun);
  } else {
    std::this_thread::sleep_for(kInside);
  }
}

}  // namespace muster::worker
