// Sends and receives that are under way in a group: who waits for whom, so that a wait for a rank
// that has left comes to an end, and what must be done before a group may go.
//
// Owned by a group. Any thread may call anything.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "worker_lib/group/pending_at_shutdown.h"
#include "worker_lib/operation.h"
#include "worker_lib/work_state.h"

namespace muster::worker {

class GroupTransfers {
 public:
  // `size`: of the group. A peer is a group rank, or -1: anybody.
  explicit GroupTransfers(int size) : inside_(2 * (static_cast<size_t>(size) + 1)) {}

  // A thread is inside of a send or receive as long as this lives.
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

  // Keeps the state until it is complete.
  void add(const Transfer& transfer, std::shared_ptr<WorkState> state);

  // Whether something waits for this peer itself, or (-1) for anybody.
  bool involves(int peer);
  bool idle();
  std::vector<PendingTransfer> pending();
  // Of those, what a thread of the program waits for.
  std::vector<PendingTransfer> awaited();
  // A while, and at most until what was begun first is complete.
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

  std::vector<std::atomic<int>> inside_;  // By 2 * (peer + 1) + is_send.
  std::mutex mutex_;
  std::vector<Begun> begun_;
  size_t prune_at_ = 64;
};

}  // namespace muster::worker
