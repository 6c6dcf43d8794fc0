#include "worker_lib/group/pending_at_shutdown.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace muster::worker {
namespace {

bool tags_fit(int a, int b) {
  return a == b || a == PendingTransfer::kAnyTag || b == PendingTransfer::kAnyTag;
}

}  // namespace

void PendingAtShutdown::heard(int member, uint64_t number, std::vector<PendingTransfer> transfers) {
  const std::lock_guard lock(mutex_);
  const auto [at, is_new] = members_.try_emplace(member);
  Member& known = at->second;
  if (!is_new && known.number >= number) return;
  // What it sent to this rank before, or had in flight until now, may still be on its way.
  const bool sent = std::ranges::any_of(known.transfers, [&](const PendingTransfer& theirs) {
    return theirs.kind == OpKind::send && theirs.peer == me_;
  });
  if (is_new || sent) known.since = std::chrono::steady_clock::now();
  known.number = number;
  known.transfers = std::move(transfers);
  any_ = true;
}

bool PendingAtShutdown::is_leaving_slow(int member) const {
  const std::lock_guard lock(mutex_);
  return members_.contains(member);
}

void PendingAtShutdown::left(int member) {
  heard(member, std::numeric_limits<uint64_t>::max(), {});
}

bool PendingAtShutdown::can_complete_with(int member, const PendingTransfer& mine) const {
  const auto known = members_.find(member);
  if (known == members_.end()) return true;
  const Member& other = known->second;
  if (std::chrono::steady_clock::now() - other.since < kLastMessage) return true;
  return std::ranges::any_of(other.transfers, [&](const PendingTransfer& theirs) {
    return theirs.kind != mine.kind && (theirs.peer == me_ || theirs.peer < 0) &&
           tags_fit(theirs.tag, mine.tag);
  });
}

bool PendingAtShutdown::can_complete(const PendingTransfer& mine) const {
  const std::lock_guard lock(mutex_);
  if (mine.peer >= 0) return can_complete_with(mine.peer, mine);
  for (int member = 0; member < size_; ++member) {
    if (member != me_ && can_complete_with(member, mine)) return true;
  }
  return false;
}

bool PendingAtShutdown::sends(int member) const {
  const std::lock_guard lock(mutex_);
  const auto known = members_.find(member);
  return known != members_.end() &&
         std::ranges::find(known->second.transfers, OpKind::send, &PendingTransfer::kind) !=
             known->second.transfers.end();
}

}  // namespace muster::worker
