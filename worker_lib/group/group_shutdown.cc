#include "worker_lib/group/group_shutdown.h"

#include <algorithm>
#include <string>

namespace muster::worker {

void GroupShutdown::limit(const Departed& departed) {
  for (size_t i = 0; i < kCollectiveQueues; ++i) {
    limits_[i].store(std::min(limits_[i].load(), departed.performed[i]));
  }
}

void GroupShutdown::gave_notice(int member, const OperationCounts& performed) {
  const std::lock_guard lock(mutex_);
  if (std::ranges::count(departed_, member, &Departed::member) > 0) return;
  departed_.push_back({member, false, performed});
  limit(departed_.back());
}

bool GroupShutdown::left(int member, const OperationCounts& begun) {
  const std::lock_guard lock(mutex_);
  any_left_ = true;
  const auto known = std::ranges::find(departed_, member, &Departed::member);
  if (known != departed_.end()) {
    known->left = true;
    return true;
  }
  departed_.push_back({member, true, begun});
  limit(departed_.back());
  return false;
}

bool GroupShutdown::gone_slow(int member) const {
  const std::lock_guard lock(mutex_);
  const auto counts = [&](const Departed& one) {
    return one.left && (member < 0 || one.member == member);
  };
  return std::ranges::count_if(departed_, counts) == (member < 0 ? members_.size() - 1 : 1);
}

Failure GroupShutdown::failure_of(int member) const {
  Failure failure{ErrorCode::peer_failed, "all other ranks", {}};
  for (int i = 0; i < members_.size(); ++i) {
    if (i == member || (member < 0 && i != members_.me)) failure.ranks.push_back(members_[i].rank);
  }
  std::ranges::sort(failure.ranks);
  if (member >= 0) failure.message = describe(members_[member]);
  failure.message += " left (destroy_process_group)";
  return failure;
}

std::optional<Failure> GroupShutdown::missing_slow(size_t queue, uint64_t number) const {
  const std::lock_guard lock(mutex_);
  std::string who;
  Failure failure{ErrorCode::peer_failed, {}, {}};
  for (const Departed& departed : departed_) {
    if (departed.performed[queue] >= number) continue;
    const Peer& peer = members_[departed.member];
    if (!who.empty()) who += ", ";
    who += describe(peer);
    failure.ranks.push_back(peer.rank);
  }
  if (failure.ranks.empty()) return std::nullopt;
  std::ranges::sort(failure.ranks);
  failure.message = who + " left (destroy_process_group) before this operation";
  return failure;
}

}  // namespace muster::worker
