#include "worker_lib/group/group_shutdown.h"

#include <algorithm>
#include <string>
#include <utility>

namespace muster::worker {
namespace {

bool tags_fit(int a, int b) {
  return a == b || a == PendingTransfer::kAnyTag || b == PendingTransfer::kAnyTag;
}

}  // namespace

void GroupShutdown::limit(Departure& departure, const OperationCounts& performed) {
  departure.performed = performed;
  for (size_t i = 0; i < kCollectiveQueues; ++i)
    limits_[i].store(std::min(limits_[i].load(), performed[i]));
}

void GroupShutdown::gave_notice(int member, const OperationCounts& performed) {
  const std::lock_guard lock(mutex_);
  Departure& departure = departures_[member];
  if (!departure.performed) limit(departure, performed);
}

void GroupShutdown::wait_for(Departure& departure, uint64_t number,
                             std::vector<PendingTransfer> transfers) {
  // Messages to this rank, sent before or in flight until now, may still be on their way.
  const bool sent = std::ranges::any_of(departure.transfers, [&](const PendingTransfer& theirs) {
    return theirs.kind == OpKind::send && theirs.peer == members_.me;
  });
  if (!departure.number || sent) departure.last_send_to_us = std::chrono::steady_clock::now();
  departure.number = number;
  departure.transfers = std::move(transfers);
  any_leaves_ = true;
}

void GroupShutdown::note_waits(int member, uint64_t number,
                               std::vector<PendingTransfer> transfers) {
  const std::lock_guard lock(mutex_);
  Departure& departure = departures_[member];
  if (departure.number.value_or(0) < number) wait_for(departure, number, std::move(transfers));
}

bool GroupShutdown::note_left(int member, const OperationCounts& begun) {
  const std::lock_guard lock(mutex_);
  Departure& departure = departures_[member];
  departure.left = true;
  wait_for(departure, UINT64_MAX, {});
  const bool gave_notice = departure.performed.has_value();
  if (!gave_notice) limit(departure, begun);
  return gave_notice;
}

bool GroupShutdown::has_left_slow(int member) const {
  const std::lock_guard lock(mutex_);
  const auto counts = [&](const auto& one) {
    return one.second.left && (member < 0 || one.first == member);
  };
  return std::ranges::count_if(departures_, counts) == (member < 0 ? members_.size() - 1 : 1);
}

bool GroupShutdown::is_leaving_slow(int member) const {
  const std::lock_guard lock(mutex_);
  const auto known = departures_.find(member);
  return known != departures_.end() && known->second.number.has_value();
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
  for (const auto& [member, departure] : departures_) {
    if (!departure.performed || (*departure.performed)[queue] >= number) continue;
    if (!who.empty()) who += ", ";
    who += describe(members_[member]);
    failure.ranks.push_back(members_[member].rank);
  }
  if (failure.ranks.empty()) return std::nullopt;
  std::ranges::sort(failure.ranks);
  failure.message = who + " left (destroy_process_group) before this operation";
  return failure;
}

bool GroupShutdown::can_complete_with(int member, const PendingTransfer& mine) const {
  const auto known = departures_.find(member);
  if (known == departures_.end() || !known->second.number) return true;
  const Departure& other = known->second;
  if (std::chrono::steady_clock::now() - other.last_send_to_us < kLastMessage) return true;
  return std::ranges::any_of(other.transfers, [&](const PendingTransfer& theirs) {
    return theirs.kind != mine.kind && (theirs.peer == members_.me || theirs.peer < 0) &&
           tags_fit(theirs.tag, mine.tag);
  });
}

bool GroupShutdown::can_complete(const PendingTransfer& mine) const {
  const std::lock_guard lock(mutex_);
  if (mine.peer >= 0) return can_complete_with(mine.peer, mine);
  for (int member = 0; member < members_.size(); ++member) {
    if (member != members_.me && can_complete_with(member, mine)) return true;
  }
  return false;
}

bool GroupShutdown::is_still_sending(int member) const {
  const std::lock_guard lock(mutex_);
  const auto known = departures_.find(member);
  return known != departures_.end() &&
         std::ranges::find(known->second.transfers, OpKind::send, &PendingTransfer::kind) !=
             known->second.transfers.end();
}

}  // namespace muster::worker
