#include "agent/hang/unseen.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "agent/hang/group_table.h"
#include "rendezvous/base/text.h"

namespace muster::hang {
namespace {

// The members of one group that show it, by group rank.
using ShownMembers = std::map<int, GroupDigest*>;
using ShownGroups = std::map<GroupKey, ShownMembers>;

bool cannot_be_complete(const CallDigest& made, int own_rank, const ShownMembers& members) {
  using enum ring::CallKind;
  const ring::Call& call = made.call;
  const auto has_not_called = [&](const auto& member) {
    return member.second->phase == GroupPhase::ready && member.second->called < made.ordinal;
  };
  const bool is_taker = is_one_of(call.kind, {reduce, gather}) && call.root == own_rank;
  if (needs_all(call) || (is_taker && call.count > 0))
    return std::ranges::any_of(members, has_not_called);
  if (!is_one_of(call.kind, {broadcast, scatter}) || call.root == own_rank || call.count == 0)
    return false;
  const auto giver = members.find(call.root);
  return giver != members.end() && has_not_called(*giver);
}

void settle_calls(const ShownMembers& members) {
  for (const auto& [own_rank, group] : members) {
    if (!group->completion_is_unseen) continue;
    group->completed = group->called;
    for (const CallDigest& made : group->calls) {
      if (made.ordinal <= group->completed && cannot_be_complete(made, own_rank, members))
        group->completed = made.ordinal - 1;
    }
  }
}

void settle_messages(std::vector<RankState>& ranks, const ShownGroups& groups) {
  std::map<std::tuple<GroupKey, int, int>, uint64_t> sent;  // By group, sender and receiver.
  const auto for_each_unseen = [&](auto&& act) {
    for (RankState& rank : ranks) {
      if (!rank.digest) continue;
      for (MessageDigest& message : rank.digest->messages) {
        if (!message.completion_is_unseen) continue;
        const GroupDigest* const group = find_group(*rank.digest, message.group);
        if (group == nullptr) continue;
        act(message, GroupKey{group->id, rank.digest->generation}, group->own_rank);
      }
    }
  };
  for_each_unseen([&](MessageDigest& message, const GroupKey& key, int own_rank) {
    message.completed = message.called;
    if (!message.is_recv) sent[{key, own_rank, message.peer}] = message.called;
  });
  for_each_unseen([&](MessageDigest& message, const GroupKey& key, int own_rank) {
    const auto group = groups.find(key);
    if (!message.is_recv || group == groups.end() || !group->second.contains(message.peer)) return;
    const auto found = sent.find({key, message.peer, own_rank});
    message.completed = std::min(message.called, found == sent.end() ? 0 : found->second);
  });
}

}  // namespace

void settle_unseen(std::vector<RankState>& ranks) {
  ShownGroups groups;
  for (RankState& rank : ranks) {
    if (!rank.digest) continue;
    for (GroupDigest& group : rank.digest->groups) {
      if (group.is_on_device)
        groups[{group.id, rank.digest->generation}].emplace(group.own_rank, &group);
    }
  }
  if (groups.empty()) return;
  for (const auto& [key, members] : groups)
    settle_calls(members);
  settle_messages(ranks, groups);
}

}  // namespace muster::hang
