// Which members leave a group, or have left it, by destroy_process_group(). Such a rank has taken
// part in all of its own operations, while slower ranks may still be in the last of them: those
// complete. Operations that they begin later can never complete and are refused at once. So a
// leaving rank announces for each group how many operations it has performed (its notice), which
// sends and receives it waits for, again when that changes, and then that it leaves.
//
// Ranks that wait there for each other see from that when a message can no longer arrive: a leaving
// rank begins nothing new, so a receive for which it has no send in flight, or a send for which it
// has no receive, never completes.
//
// Owned by a group. Any thread may call anything.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "worker_lib/failure.h"
#include "worker_lib/members.h"
#include "worker_lib/watch/departure.h"

namespace muster::worker {

class GroupShutdown {
 public:
  explicit GroupShutdown(const Members& members) : members_(members) {}

  void gave_notice(int member, const OperationCounts& performed);
  // `member` announces what it waits for: the announcement with the highest number counts.
  void waits_for(int member, uint64_t number, std::vector<PendingTransfer> transfers);
  // `begun`: what this rank has begun. That is the limit if the member gave no notice: it dropped
  // its handle of the group before it left, so it takes part in nothing that begins from now on.
  // Returns whether it gave notice.
  bool left(int member, const OperationCounts& begun);

  // A failure that names the departed members that take no part in operation `number` of the queue;
  // nullopt: there are none. One load if none departed before it.
  std::optional<Failure> missing_in(size_t queue, uint64_t number) const {
    if (number <= limits_[queue].load()) return std::nullopt;
    return missing_slow(queue, number);
  }
  // Whether the member has left; -1: all others have. One load while none leaves.
  bool gone(int member) const { return any_leaves_.load() && gone_slow(member); }
  // Whether the member has announced what it waits for, or has left. The same.
  bool is_leaving(int member) const { return any_leaves_.load() && is_leaving_slow(member); }
  // The failure of a call that needs the member (-1: any).
  Failure failure_of(int member) const;

  // Whether the peer may still complete `mine`: it is not leaving, has a matching transfer in
  // flight, or a message may still be on its way (kLastMessage).
  bool can_complete(const PendingTransfer& mine) const;
  // Whether a leaving member still has a send in flight, to any rank.
  bool sends(int member) const;

 private:
  struct Departure {
    std::optional<OperationCounts> performed;
    std::optional<uint64_t> number;  // That of the announcement of `transfers`.
    std::vector<PendingTransfer> transfers;
    std::chrono::steady_clock::time_point since;  // When it may last have sent this rank something.
    bool left = false;
  };

  // These with mutex_ held.
  void limit(Departure& departure, const OperationCounts& performed);
  void wait_for(Departure& departure, uint64_t number, std::vector<PendingTransfer> transfers);
  bool can_complete_with(int member, const PendingTransfer& mine) const;

  bool gone_slow(int member) const;
  bool is_leaving_slow(int member) const;
  std::optional<Failure> missing_slow(size_t queue, uint64_t number) const;

  const Members& members_;
  // The fewest operations that a departed member has performed.
  std::array<std::atomic<uint64_t>, kCollectiveQueues> limits_{UINT64_MAX, UINT64_MAX};
  std::atomic<bool> any_leaves_{false};
  mutable std::mutex mutex_;
  std::map<int, Departure> departures_;
};

}  // namespace muster::worker
