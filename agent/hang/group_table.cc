#include "agent/hang/group_table.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "agent/report/text.h"

namespace muster::hang {
namespace {

std::string members_text(std::vector<int> ranks) {
  constexpr size_t kRangesShown = 4;
  std::ranges::sort(ranks);
  const auto repeated = std::ranges::unique(ranks);
  ranks.erase(repeated.begin(), repeated.end());
  return rank_ranges(ranks, kRangesShown);
}

// Checks the counters, the own place, and that members are ranks of the job, as all `known` are.
bool is_sound(const GroupDigest& group, int rank, const std::vector<int>& known, int world_size) {
  if (group.size <= 0 || group.own_rank < 0 || group.own_rank >= group.size) return false;
  if (group.completed > group.called) return false;
  if (group.ranks.empty()) return true;
  if (group.ranks.size() != static_cast<size_t>(group.size)) return false;
  if (group.ranks[static_cast<size_t>(group.own_rank)] != rank) return false;
  if (group.ranks == known) return true;
  return std::ranges::all_of(group.ranks,
                             [&](int member) { return member >= 0 && member < world_size; });
}

Standing standing_of(int rank, const GroupKey& key, const std::set<int>& seen,
                     const std::vector<RankState>& ranks) {
  const std::optional<RankDigest>& digest = ranks[static_cast<size_t>(rank)].digest;
  if (!digest) return Standing::silent;
  return seen.contains(rank) || digest->generation > key.generation ? Standing::left
                                                                    : Standing::absent;
}

// Silences a member that others disprove: a call that needs it has ended elsewhere, so it has made
// that call. In groups of more than two, two must show that, since one may hold anything.
void silence_the_disproved(GroupView& view) {
  const Member* most = nullptr;
  const Member* second = nullptr;
  for (const Member& member : view.members) {
    if (member.digest == nullptr) continue;
    if (most == nullptr || member.completed() > most->completed()) {
      second = std::exchange(most, &member);
    } else if (second == nullptr || member.completed() > second->completed()) {
      second = &member;
    }
  }
  const Member* const witness = view.members.size() > 2 ? second : most;
  if (witness == nullptr) return;
  for (Member& member : view.members) {
    if (member.standing != Standing::known || member.called() >= witness->completed()) continue;
    const CallDigest* missed = find_call(*witness->digest, member.called() + 1);
    if (missed == nullptr) missed = find_call(*most->digest, member.called() + 1);
    if (missed != nullptr && missed->has_failed) continue;  // Failed there without that member.
    if (missed == nullptr || needs_all(missed->call)) member.standing = Standing::silent;
  }
}

bool is_nameless(const GroupView& view) {
  return view.name.text == view.key->id;
}

// NCCL numbers its communicators. Names each after the only named group of the same members without
// recorded calls (those that do not go to NCCL), unless several match.
void name_by_members(std::vector<GroupView>& views) {
  struct Alike {
    const GroupName* name = nullptr;
    int named = 0;
    GroupView* nameless = nullptr;
    int without = 0;
  };
  std::map<std::pair<uint64_t, std::vector<int>>, Alike> by_members;
  for (GroupView& view : views) {
    if (view.has_unknown) continue;
    const auto has_calls = [](const Member& member) { return member.called() > 0; };
    const bool is_named = !is_nameless(view);
    if (is_named && std::ranges::any_of(view.members, has_calls)) continue;
    std::vector<int> ranks;
    for (const Member& member : view.members)
      ranks.push_back(member.rank);
    Alike& alike = by_members[{view.key->generation, std::move(ranks)}];
    is_named ? ++alike.named : ++alike.without;
    is_named ? void(alike.name = &view.name) : void(alike.nameless = &view);
  }
  for (const auto& [members, alike] : by_members)
    if (alike.named == 1 && alike.without == 1) alike.nameless->name = *alike.name;
}

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

bool needs_all(const ring::Call& call) {
  const ring::CallRow& row = row_of(call.kind);
  if (row.kind == ring::CallKind::unknown || has_root(row.kind) || is_message(row.kind))
    return false;
  return row.in == ring::Extent::none || (!call.is_v && call.count > 0);
}

const CallDigest* find_call(const GroupDigest& group, uint64_t ordinal) {
  const auto found = std::ranges::find(group.calls, ordinal, &CallDigest::ordinal);
  return found == group.calls.end() ? nullptr : &*found;
}

const GroupDigest* find_group(const RankState& rank, const GroupKey& key) {
  if (!rank.digest || rank.digest->generation != key.generation) return nullptr;
  return find_group(*rank.digest, key.id);
}

void GroupTable::note(RankDigest& digest, int world_size) {
  std::set<std::string> ids;
  misfits_.erase(digest.rank);
  std::erase_if(digest.groups, [&](GroupDigest& group) {
    return !ids.insert(group.id).second || !accept(digest, group, world_size);
  });
}

bool GroupTable::accept(const RankDigest& digest, GroupDigest& group, int world_size) {
  const GroupKey key{group.id, digest.generation};
  const auto found = groups_.find(key);
  static const std::vector<int> kNone;
  if (!is_sound(group, digest.rank, found == groups_.end() ? kNone : found->second.ranks,
                world_size)) {
    if (found != groups_.end()) found->second.seen.insert(digest.rank);
    return false;
  }
  Group& known = found == groups_.end() ? groups_[key] : found->second;
  known.seen.insert(digest.rank);
  if (known.size == 0) {
    known.name.text = known.shown_name.text = group.name.empty() ? group.id : group.name;
    known.size = group.size;
  }
  if (known.ranks.empty() && known.size == group.size) {
    known.ranks = group.ranks;
    if (group.size < world_size)
      known.name.ranks = known.shown_name.ranks = members_text(group.ranks);
  }
  const bool agrees = group.ranks.empty() || group.ranks == known.ranks;
  if (!agrees && group.phase != GroupPhase::closed) misfits_[digest.rank] = group.ranks;
  std::vector<int>().swap(group.ranks);
  if (known.size != group.size || !agrees) return false;
  return known.ranks.empty() || known.ranks[static_cast<size_t>(group.own_rank)] == digest.rank;
}

std::vector<GroupView> GroupTable::views(const std::vector<RankState>& ranks) {
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (!ranks[rank].digest) continue;
    for (const GroupDigest& group : ranks[rank].digest->groups) {
      const auto found = groups_.find(GroupKey{group.id, ranks[rank].digest->generation});
      if (found != groups_.end()) found->second.shown.emplace_back(static_cast<int>(rank), &group);
    }
  }
  std::erase_if(groups_, [](const auto& entry) { return entry.second.shown.empty(); });
  std::vector<GroupView> views;
  for (auto& [key, group] : groups_) {
    views.push_back(view_of(key, group, ranks));
    group.shown.clear();
  }
  name_by_members(views);
  for (const GroupView& view : views)
    groups_[*view.key].shown_name = view.name;
  return views;
}

bool GroupTable::has_another(int rank, const GroupView& view) const {
  const auto found = misfits_.find(rank);
  return found != misfits_.end() &&
         std::ranges::equal(found->second, view.members, {}, {}, &Member::rank);
}

GroupName GroupTable::name_of(const std::string& id) const {
  const Group* const known = find(id);
  return known == nullptr ? GroupName{id, {}} : known->shown_name;
}

const GroupTable::Group* GroupTable::find(const std::string& id) const {
  const auto found = groups_.lower_bound(GroupKey{id, 0});
  return found != groups_.end() && found->first.id == id ? &found->second : nullptr;
}

GroupView GroupTable::view_of(const GroupKey& key, const Group& group,
                              const std::vector<RankState>& ranks) {
  GroupView view;
  view.key = &key;
  view.name = group.name;
  view.members.resize(static_cast<size_t>(group.size));
  for (size_t i = 0; i < group.ranks.size(); ++i) {
    view.members[i].rank = group.ranks[i];
    view.members[i].standing = standing_of(group.ranks[i], key, group.seen, ranks);
  }
  for (const auto& [rank, digest] : group.shown) {
    view.members[static_cast<size_t>(digest->own_rank)] = {rank, Standing::known, digest};
    view.has_failed |= digest->phase == GroupPhase::failed;
  }
  silence_the_disproved(view);
  for (const Member& member : view.members) {
    view.has_unknown |= member.rank < 0;
    if (member.rank >= 0 && member.standing == Standing::silent)
      view.silent_ranks.push_back(member.rank);
  }
  std::ranges::sort(view.silent_ranks);
  return view;
}

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
