#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "agent/hang/group_table.h"
#include "rendezvous/base/text.h"

namespace muster::hang {
namespace {

// One group as its members show it.
struct Shown {
  std::map<int, GroupDigest*> members;  // By group rank.
  // The last call that all ready members have made.
  uint64_t called_by_all = std::numeric_limits<uint64_t>::max();
  std::map<std::pair<int, int>, uint64_t> sent;  // Messages, by sender and receiver.
};
using ShownGroups = std::map<GroupKey, Shown>;

bool has_not_called(const GroupDigest& member, uint64_t ordinal) {
  return member.phase == GroupPhase::ready && member.called < ordinal;
}

bool cannot_be_complete(const CallDigest& made, int own_rank, const Shown& shown) {
  const ring::Call& call = made.call;
  const ring::RootRole root = row_of(call.kind).root;
  const bool is_taker = root == ring::RootRole::takes && call.root == own_rank;
  if (needs_all(call) || (is_taker && call.count > 0)) return shown.called_by_all < made.ordinal;
  if (root != ring::RootRole::gives || call.root == own_rank || call.count == 0) return false;
  const auto giver = shown.members.find(call.root);
  return giver != shown.members.end() && has_not_called(*giver->second, made.ordinal);
}

void settle_calls(const Shown& shown) {
  for (const auto& [own_rank, group] : shown.members) {
    if (!group->completion_is_unseen) continue;
    group->completed = group->called;
    for (const CallDigest& made : group->calls) {
      if (made.ordinal <= group->completed && cannot_be_complete(made, own_rank, shown))
        group->completed = made.ordinal - 1;
    }
  }
}

void for_each_unseen_message(std::vector<RankState>& ranks, ShownGroups& groups, auto&& act) {
  for (RankState& rank : ranks) {
    if (!rank.digest) continue;
    const GroupDigest* group = nullptr;
    auto shown = groups.end();
    for (MessageDigest& message : rank.digest->messages) {
      if (!message.completion_is_unseen) continue;
      if (group == nullptr || group->id != message.group) {  // Messages come group by group.
        group = find_group(*rank.digest, message.group);
        if (group == nullptr) continue;
        shown = groups.find({group->id, rank.digest->generation});
      }
      if (shown != groups.end()) act(message, shown->second, group->own_rank);
    }
  }
}

void settle_messages(std::vector<RankState>& ranks, ShownGroups& groups) {
  for_each_unseen_message(ranks, groups, [](MessageDigest& message, Shown& shown, int own_rank) {
    message.completed = message.called;
    if (!message.is_recv) shown.sent[{own_rank, message.peer}] = message.called;
  });
  for_each_unseen_message(ranks, groups, [](MessageDigest& message, Shown& shown, int own_rank) {
    if (!message.is_recv || !shown.members.contains(message.peer)) return;
    const auto found = shown.sent.find({message.peer, own_rank});
    message.completed = std::min(message.called, found == shown.sent.end() ? 0 : found->second);
  });
}

}  // namespace

void settle_unseen(std::vector<RankState>& ranks) {
  ShownGroups groups;
  for (RankState& rank : ranks) {
    if (!rank.digest) continue;
    for (GroupDigest& group : rank.digest->groups) {
      if (!group.is_on_device) continue;
      Shown& shown = groups[{group.id, rank.digest->generation}];
      if (!shown.members.emplace(group.own_rank, &group).second) continue;
      if (group.phase == GroupPhase::ready)
        shown.called_by_all = std::min(shown.called_by_all, group.called);
    }
  }
  if (groups.empty()) return;
  for (const auto& [key, shown] : groups)
    settle_calls(shown);
  settle_messages(ranks, groups);
}

}  // namespace muster::hang
