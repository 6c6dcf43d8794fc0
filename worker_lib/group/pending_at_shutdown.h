// The sends and receives that ranks in destroy_process_group() still have in flight, so that ranks
// that wait there for each other see when a message can no longer arrive: a leaving rank begins
// nothing new, so a receive for which it has no send in flight, or a send for which it has no
// receive, never completes.
//
// Such a rank announces for all its groups which sends and receives it waits for, and again when
// that changes; a rank that has left has none. Owned by a group; any thread may call anything.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "worker_lib/watch/departure.h"

namespace muster::worker {

class PendingAtShutdown {
 public:
  // `size`: of the group; `me`: which member this is.
  PendingAtShutdown(int size, int me) : size_(size), me_(me) {}

  // Of the announcements of a member, the one with the highest number counts.
  void heard(int member, uint64_t number, std::vector<PendingTransfer> transfers);
  void left(int member);

  // Whether the peer may still complete `mine`: it is not leaving, has a matching transfer in
  // flight, or a message may still be on its way (kLastMessage).
  bool can_complete(const PendingTransfer& mine) const;
  // Whether the member has announced that it leaves. One load while none has.
  bool is_leaving(int member) const { return any_.load() && is_leaving_slow(member); }
  // Whether a leaving member still has a send in flight, to any rank.
  bool sends(int member) const;

 private:
  struct Member {
    uint64_t number = 0;
    std::chrono::steady_clock::time_point since;  // When it may last have sent this rank something.
    std::vector<PendingTransfer> transfers;
  };
  bool can_complete_with(int member, const PendingTransfer& mine) const;
  bool is_leaving_slow(int member) const;

  const int size_;
  const int me_;
  std::atomic<bool> any_{false};
  mutable std::mutex mutex_;
  std::map<int, Member> members_;
};

}  // namespace muster::worker
