#include "rendezvous/net/half_open.h"

#include <array>
#include <limits>

#include "rendezvous/base/error.h"

namespace muster {
namespace {

constexpr size_t kWeightOfSilence = 4;

}  // namespace

IpAddress machine_of(const IpAddress& address) {
  if (address.is_loopback()) return IpAddress::loopback_v4();
  if (!address.is_v6()) return address;
  std::array<uint8_t, 16> bytes = address.bytes();
  for (size_t i = 8; i < bytes.size(); ++i)
    bytes[i] = 0;
  return IpAddress::v6(bytes, address.scope());
}

HalfOpen::Rank HalfOpen::rank_of(const Group& group, const std::set<Id>& members) {
  const size_t weight = group.second ? members.size() : kWeightOfSilence * members.size();
  return {weight, std::numeric_limits<Id>::max() - *members.begin(), group};
}

void HalfOpen::enter(Id id, const Group& group) {
  std::set<Id>& members = groups_[group];
  if (!members.empty()) ranks_.erase(rank_of(group, members));
  members.insert(id);
  ranks_.insert(rank_of(group, members));
}

void HalfOpen::leave(Id id, const Group& group) {
  const auto found = groups_.find(group);
  std::set<Id>& members = found->second;
  ranks_.erase(rank_of(group, members));
  members.erase(id);
  if (members.empty()) {
    groups_.erase(found);
  } else {
    ranks_.insert(rank_of(group, members));
  }
}

void HalfOpen::add(Id id, const IpAddress& address, Instant now) {
  CHECK(entries_.empty() || entries_.rbegin()->first < id);
  const Group group{machine_of(address), false};
  entries_.emplace(id, Known{{address, now}, group});
  enter(id, group);
}

void HalfOpen::said_agent(Id id) {
  const auto found = entries_.find(id);
  if (found == entries_.end() || found->second.group.second) return;
  leave(id, found->second.group);
  found->second.group.second = true;
  enter(id, found->second.group);
}

void HalfOpen::remove(Id id) {
  const auto found = entries_.find(id);
  if (found == entries_.end()) return;
  leave(id, found->second.group);
  entries_.erase(found);
}

std::optional<std::pair<HalfOpen::Id, HalfOpen::Entry>> HalfOpen::next_out() const {
  if (ranks_.empty()) return std::nullopt;
  const Id id = std::numeric_limits<Id>::max() - std::get<1>(*ranks_.rbegin());
  return std::pair(id, entries_.at(id).entry);
}

}  // namespace muster
