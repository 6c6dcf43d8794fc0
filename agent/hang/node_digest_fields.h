// The fields of a NodeDigest in the order in which they are sent: the writer (node_digest.cc) and
// the reader (node_digest_decode.cc) walk the same functions. Pure.
//
// Numbers are varints (7 bits a byte, the lowest first), signed ones zigzag. Bytes that often
// repeat go through a table: 0 and new ones, or the place of earlier ones. A digest that says what
// that of an earlier rank says refers to it, and its own instants follow as differences.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "agent/hang/node_digest.h"
#include "rendezvous/base/fields.h"

namespace muster::hang {

// Of a message; what is longer is cut, or left out.
struct NewsBounds {
  static constexpr size_t kRanks = 4096;
  static constexpr size_t kGroups = 128;  // Of a rank, as the next one.
  static constexpr size_t kMessages = 2048;
  static constexpr size_t kCalls = 64;  // Of a group, as the next one.
  static constexpr size_t kHashes = 64;
  static constexpr size_t kTextBytes = 256;
  static constexpr size_t kMembers = 1'000'000;  // Of all lists together.
  static constexpr size_t kDecodedBytes = size_t{16} * 1024 * 1024;
  static constexpr int64_t kMicroseconds = int64_t{1} << 50;  // Of an age.
};

// Calls without an age take the oldest one of their group.
inline bool is_dated(const GroupDigest& group, size_t call) {
  constexpr size_t kCallsDated = 4;
  return group.calls[call].ordinal > group.completed || call + kCallsDated >= group.calls.size();
}

inline bool is_under_way(const MessageDigest& message) {
  return message.completed < message.called;
}

void walk_signature(auto& a, Like<CallDigest> auto& made) {
  auto& call = made.call;
  a.one_of(call.kind, ring::CallKind::allocate_shared);
  a.one_of(call.type, ring::ElementType::boolean);
  a.one_of(call.reduction, ring::Reduction::premultiplied_sum);
  a.flags(call.is_v, call.is_synchronous, made.has_failed);
  a.integer(call.root);
  a.integer(call.count);
}

void walk_group(auto& a, Like<GroupDigest> auto& group) {
  a.text(group.id);
  a.text(group.name);
  a.members(group.ranks);
  a.integer(group.size);
  a.one_of(group.phase, GroupPhase::closed);
  a.integer(group.called);
  a.integer(group.completed);
  a.flags(group.completion_is_late, group.completion_is_unknown, group.is_on_device,
          group.completion_is_unseen);
  uint64_t last = group.called;
  a.list(group.calls, NewsBounds::kCalls, [&](auto& made) {
    a.ordinal(made.ordinal, last);
    a.signature(made);
    a.text(made.site);
  });
  last = group.called;
  a.list(group.hashes, NewsBounds::kHashes, [&](auto& hash) {
    a.ordinal(hash.ordinal, last);
    a.fixed(hash.hash);
  });
}

// Whether two digests say the same but for times and their own places in the groups. Records of the
// same calls may be read with slightly different times.
inline bool say_alike(const RankDigest& a, const RankDigest& b) {
  const auto same_call = [](const CallDigest& x, const CallDigest& y) {
    return x.ordinal == y.ordinal && x.call == y.call && x.site == y.site &&
           x.has_failed == y.has_failed;
  };
  const auto same_group = [&](const GroupDigest& x, const GroupDigest& y) {
    return x.called == y.called && x.completed == y.completed && x.phase == y.phase &&
           x.completion_is_late == y.completion_is_late &&
           x.completion_is_unknown == y.completion_is_unknown && x.is_on_device == y.is_on_device &&
           x.completion_is_unseen == y.completion_is_unseen && x.size == y.size && x.id == y.id &&
           x.name == y.name && std::ranges::equal(x.calls, y.calls, same_call) &&
           x.hashes == y.hashes && x.ranks == y.ranks;
  };
  const auto same_message = [](const MessageDigest& x, const MessageDigest& y) {
    return x.called == y.called && x.completed == y.completed && x.peer == y.peer &&
           x.is_recv == y.is_recv && x.is_synchronous == y.is_synchronous && x.group == y.group &&
           x.site == y.site;
  };
  return a.generation == b.generation && a.source == b.source && a.has_failed == b.has_failed &&
         a.is_last == b.is_last && a.section == b.section &&
         std::ranges::equal(a.groups, b.groups, same_group) &&
         std::ranges::equal(a.messages, b.messages, same_message);
}

// What ranks in one state have in common.
void walk_shape(auto& a, Like<RankDigest> auto& digest) {
  a.integer(digest.generation);
  a.integer(digest.source);
  a.flags(digest.has_failed, digest.is_last);
  a.text(digest.section);
  a.list(digest.groups, NewsBounds::kGroups, [&](auto& group) { walk_group(a, group); });
  a.list(digest.messages, NewsBounds::kMessages, [&](auto& message) {
    a.text(message.group);
    a.integer(message.peer);
    a.flags(message.is_recv, message.is_synchronous, message.is_on_device,
            message.completion_is_unseen);
    a.integer(message.called);
    a.integer(message.completed);
    a.text(message.site);
  });
}

// The rest, as the difference to a digest of the same shape, if there is one.
void walk_rest(auto& a, Like<RankDigest> auto& digest, const RankDigest* like) {
  for (size_t g = 0; g < digest.groups.size(); ++g) {
    auto& group = digest.groups[g];
    const GroupDigest* const other = like == nullptr ? nullptr : &like->groups[g];
    a.difference(group.own_rank, other == nullptr ? 0 : other->own_rank);
    a.age(group.since, other == nullptr ? nullptr : &other->since);
    for (size_t i = 0; i < group.calls.size(); ++i) {
      if (is_dated(group, i))
        a.age(group.calls[i].called, other == nullptr ? nullptr : &other->calls[i].called);
    }
  }
  for (size_t i = 0; i < digest.messages.size(); ++i) {
    if (is_under_way(digest.messages[i]))
      a.age(digest.messages[i].called_at, like == nullptr ? nullptr : &like->messages[i].called_at);
  }
}

void walk_life(auto& a, Like<RankLife> auto& life) {
  a.one_of(life.state, LifeState::unknown);
  a.text(life.words);
  a.age(life.at, nullptr);
}

void walk_head(auto& a, Like<NodeDigest> auto& digest) {
  a.text(digest.host);
  a.integer(digest.heard);
  a.integer(digest.jumps);
  a.flags(digest.is_suspended);
}

inline size_t members_in(const RankDigest& digest) {
  size_t count = 0;
  for (const GroupDigest& group : digest.groups)
    count += group.ranks.size();
  return count;
}

inline void forget_members(RankDigest& digest) {
  for (GroupDigest& group : digest.groups)
    std::vector<int>().swap(group.ranks);
}

}  // namespace muster::hang
