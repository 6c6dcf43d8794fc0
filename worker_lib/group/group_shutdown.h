// Which members left a group by destroy_process_group(), and after which operation. Such a rank has
// taken part in all of its own operations, while slower ranks may still be in the last of them:
// those complete. Operations that they begin later can never complete and are refused at once. So a
// leaving rank announces for each group how many operations it has performed (its notice), and then
// that it leaves.
//
// Owned by a group. Any thread may call anything.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
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
  // Whether the member has left; -1: all others have. One load while none has left.
  bool gone(int member) const { return any_left_.load() && gone_slow(member); }
  // The failure of a call that needs the member (-1: any).
  Failure failure_of(int member) const;

 private:
  struct Departed {
    int member;
    bool left;  // Otherwise it has only given notice so far.
    OperationCounts performed;
  };

  void limit(const Departed& departed);
  bool gone_slow(int member) const;
  std::optional<Failure> missing_slow(size_t queue, uint64_t number) const;

  const Members& members_;
  // The fewest operations that a departed member has performed.
  std::array<std::atomic<uint64_t>, kCollectiveQueues> limits_{UINT64_MAX, UINT64_MAX};
  std::atomic<bool> any_left_{false};
  mutable std::mutex mutex_;
  std::vector<Departed> departed_;
};

}  // namespace muster::worker
