// Who left a group in order, and after which operation. A rank that calls destroy_process_group()
// has taken part in all of its own operations, while slower ranks may still be in the last of them:
// those go on. What they begin after it can never be completed and is refused at once. So a rank
// that leaves says for each group how many operations it has performed (its notice), and then
// that it leaves.
//
// Owned by a group. Any thread may call anything.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "worker_lib/failure.h"
#include "worker_lib/members.h"

namespace muster::worker {

// Host memory and GPU memory have a queue each, whose operations are counted apart.
inline constexpr size_t kCollectiveQueues = 2;
using OperationCounts = std::array<uint64_t, kCollectiveQueues>;

// What a leaving rank has performed in one group.
struct ShutdownNotice {
  std::string group_id;
  OperationCounts performed{};
  friend bool operator==(const ShutdownNotice&, const ShutdownNotice&) = default;
};

// The watch passes notices on as if they were groups given up with this id.
inline constexpr const char* kShutdownNoticeId = "notice";

// In texts of at most `bytes_max` (what the watch does not cut). Ids that contain ' ' or ';' are
// left out: there are none.
std::vector<std::string> encode_notices(std::span<const ShutdownNotice> notices, size_t bytes_max);
// The one for this group; nothing where there is none. Hostile texts give nothing.
std::optional<ShutdownNotice> find_notice(std::string_view text, std::string_view group_id);

class GroupShutdown {
 public:
  explicit GroupShutdown(const Members& members) : members_(members) {}

  void gave_notice(int member, const OperationCounts& performed);
  // `begun`: what this rank has begun. Counts where the member gave no notice: its handle of the
  // group was gone before it left, so it has taken part in nothing that begins from now on.
  // False: it said none.
  bool left(int member, const OperationCounts& begun);

  // Whether operation `number` of the queue is one that a member who left has not taken part in;
  // the failure names it. One load where all is well.
  std::optional<Failure> missing_in(size_t queue, uint64_t number) const {
    if (number <= limits_[queue].load()) return std::nullopt;
    return missing_slow(queue, number);
  }
  // Whether the member has left; of -1: all others. One load where nobody has.
  bool gone(int member) const { return any_left_.load() && gone_slow(member); }
  // What a call that needs the member (-1: any) fails with.
  Failure failure_of(int member) const;

 private:
  struct Departed {
    int member;
    bool left;  // Else it has only given notice so far.
    OperationCounts performed;
  };

  Departed* find(int member);
  const Departed* find(int member) const;
  void limit(const Departed& departed);
  bool gone_slow(int member) const;
  std::optional<Failure> missing_slow(size_t queue, uint64_t number) const;

  const Members& members_;
  // The least that a departed member has performed.
  std::array<std::atomic<uint64_t>, kCollectiveQueues> limits_{UINT64_MAX, UINT64_MAX};
  std::atomic<bool> any_left_{false};
  mutable std::mutex mutex_;
  std::vector<Departed> departed_;
};

}  // namespace muster::worker
