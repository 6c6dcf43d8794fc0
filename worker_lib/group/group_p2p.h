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

#include "worker_lib/group/work_state.h"
#include "worker_lib/operation.h"

namespace muster::worker {

class GroupTransfers {
 public:
  // `size`: of the group. A peer is a group rank, or -1: anybody.
  explicit GroupTransfers(int size) : inside_(static_cast<size_t>(size) + 1) {}

  // A thread is inside of a send or receive as long as this lives.
  class Inside {
   public:
    Inside(GroupTransfers& transfers, int peer) : count_(transfers.inside_of(peer)) { ++count_; }
    ~Inside() { --count_; }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

   private:
    std::atomic<int>& count_;
  };

  // Keeps the state until it is complete.
  void add(int peer, std::shared_ptr<WorkState> state);

  // Whether something waits for this peer itself, or (-1) for anybody.
  bool involves(int peer);
  bool idle();
  // Until nothing is under way; each has a deadline of its own.
  void wait_idle();

 private:
  struct Begun {
    int peer;
    std::shared_ptr<WorkState> state;
  };

  std::atomic<int>& inside_of(int peer) { return inside_[static_cast<size_t>(peer + 1)]; }
  void prune();

  std::vector<std::atomic<int>> inside_;  // By peer + 1.
  std::mutex mutex_;
  std::vector<Begun> begun_;
  size_t prune_at_ = 64;
};

}  // namespace muster::worker
