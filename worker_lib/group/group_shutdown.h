// Members that leave a group, or have left it, by destroy_process_group(). Such a rank has taken
// part in all of its own operations, while slower ranks may still be in the last of them: those
// complete. Operations that these begin later can never complete and are refused at once. So a
// leaving rank announces for each group how many operations it has performed (its notice), then
// which sends and receives it waits for, again on each change, and then that it leaves.
//
// Leaving ranks that wait for each other see from that when a message can no longer arrive: a
// leaving rank begins nothing new, so a receive for which it has no send in flight, or a send for
// which it has no receive, never completes. Owned by a group; any thread may call anything.
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
  // Notes the transfers that `member` waits for; the highest `number` counts.
  void note_waits(int member, uint64_t number, std::vector<PendingTransfer> transfers);
  // Notes that `member` left; returns true if it gave notice. Else it dropped its handle before,
  // takes part in nothing from now on, and this rank's `begun` is the limit.
  bool note_left(int member, const OperationCounts& begun);

  // Returns a failure that names the departed members that take no part in operation `number` of
  // the queue; nullopt: none. One load if none departed before it.
  std::optional<Failure> missing_in(size_t queue, uint64_t number) const {
    if (number <= limits_[queue].load()) return std::nullopt;
    return missing_slow(queue, number);
  }
  // True if the member has left; -1: if all others have. One load while none leaves.
  bool has_left(int member) const { return any_leaves_.load() && has_left_slow(member); }
  // True if the member is leaving or has left. One load while none leaves.
  bool is_leaving(int member) const { return any_leaves_.load() && is_leaving_slow(member); }
  // Returns the failure of a call that needs the member (-1: any).
  Failure failure_of(int member) const;

  // True if the peer may still complete `mine`: it is not leaving, has a matching transfer in
  // flight, or a message may still be on its way (kLastMessage).
  bool can_complete(const PendingTransfer& mine) const;
  // True if a leaving member still has a send in flight, to any rank.
  bool is_still_sending(int member) const;

 private:
  struct Departure {
    std::optional<OperationCounts> performed;
    std::optional<uint64_t> number;  // The announcement's that brought `transfers`.
    std::vector<PendingTransfer> transfers;
    // Latest time at which it may have sent to this rank.
    std::chrono::steady_clock::time_point last_send_to_us;
    bool left = false;
  };

  // REQUIRES: mutex_ is held.
  void limit(Departure& departure, const OperationCounts& performed);
  void wait_for(Departure& departure, uint64_t number, std::vector<PendingTransfer> transfers);
  bool can_complete_with(int member, const PendingTransfer& mine) const;

  bool has_left_slow(int member) const;
  bool is_leaving_slow(int member) const;
  std::optional<Failure> missing_slow(size_t queue, uint64_t number) const;

  const Members& members_;
  // The fewest operations performed by any departed member.
  std::array<std::atomic<uint64_t>, kCollectiveQueues> limits_{UINT64_MAX, UINT64_MAX};
  std::atomic<bool> any_leaves_{false};
  mutable std::mutex mutex_;
  std::map<int, Departure> departures_;
};

}  // namespace muster::worker
