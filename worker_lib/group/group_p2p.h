// A group's sends and receives in flight: which peer each waits for, so that a wait for a rank that
// has left can be ended, and what must complete before the group may be destroyed. Owned by a
// group; any thread may call anything.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "worker_lib/operation.h"
#include "worker_lib/watch/departure.h"
#include "worker_lib/work_state.h"

namespace muster::worker {

class GroupTransfers {
 public:
  // `size`: the group's. A peer is a group rank; -1: any peer.
  explicit GroupTransfers(int size) : inside_(2 * (static_cast<size_t>(size) + 1)) {}

  // Marks its thread as inside a send or receive.
  class Inside {
   public:
    Inside(GroupTransfers& transfers, OpKind kind, int peer)
        : count_(transfers.inside_of(kind, peer)) {
      ++count_;
    }
    ~Inside() { --count_; }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

   private:
    std::atomic<int>& count_;
  };

  // Keeps `state` until it is complete.
  void add(const Transfer& transfer, std::shared_ptr<WorkState> state);

  // True if a message with this peer is in flight; -1: if a receive from any peer is.
  bool involves(int peer);
  bool idle();
  // Sorted, without duplicates.
  std::vector<PendingTransfer> pending();
  // Transfers that a thread of the program waits for.
  std::vector<PendingTransfer> awaited();
  // Waits a few milliseconds, at most until the oldest transfer is complete.
  void wait_some();

 private:
  struct Begun {
    PendingTransfer what;
    std::shared_ptr<WorkState> state;
  };

  std::atomic<int>& inside_of(OpKind kind, int peer) {
    return inside_[2 * static_cast<size_t>(peer + 1) + (kind == OpKind::send ? 1 : 0)];
  }
  void prune();
  std::vector<PendingTransfer> of_threads_inside() const;

  std::vector<std::atomic<int>> inside_;  // Index: 2 * (peer + 1) + is_send.
  std::mutex mutex_;
  std::vector<Begun> begun_;
  size_t prune_at_ = 64;
};

}  // namespace muster::worker
