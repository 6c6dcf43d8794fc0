// The groups of a job, put together from the digests of their members: who is in it, and what each
// member says of it. What cannot be true is taken for silence of that member, never as evidence
// against another one. Owned by the detector. Pure.
//
// A group is known by its id and by the generation of the process that records it: a second process
// of a worker may form groups of the same names.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "agent/hang/rank_state.h"

namespace muster::hang {

struct GroupKey {
  std::string id;
  uint64_t generation = 0;

  friend auto operator<=>(const GroupKey&, const GroupKey&) = default;
};

enum class Standing : uint8_t {
  known,   // It shows the group.
  absent,  // It records, and has not opened the group.
  silent,  // It records nothing, or what it records of the group cannot be true.
  left,    // It has shown the group, and no longer does.
};

struct Member {
  int rank = -1;  // -1: not known.
  Standing standing = Standing::silent;
  const GroupDigest* digest = nullptr;  // Not null if it is known; may be if it is silent.

  // Whether the group is open there for calls.
  bool is_ready() const { return digest != nullptr && digest->phase == GroupPhase::ready; }
  uint64_t called() const { return digest == nullptr ? 0 : digest->called; }
  uint64_t completed() const { return digest == nullptr ? 0 : digest->completed; }
};

// Valid until the next digest.
struct GroupView {
  const GroupKey* key = nullptr;
  std::string name;               // Of one without, that of the only group of the same members.
  std::vector<Member> members;    // By group rank.
  bool has_failed = false;        // On a member, so the library has told the program.
  bool has_unknown = false;       // Of some members only the number is known.
  std::vector<int> silent_ranks;  // Sorted.
};

class GroupTable {
 public:
  // Remembers the members of its groups, and takes their lists and the impossible groups out of it.
  // Cost: the size of the digest.
  void note(RankDigest& digest, int world_size);

  // All groups that a digest shows, by key. Forgets the others.
  std::vector<GroupView> views(const std::vector<RankState>& ranks);
  // What the newest views call the group of that id; of an unknown one the id.
  std::string name_of(const std::string& id) const;
  bool knows(const GroupKey& key) const { return groups_.contains(key); }
  bool knows(const std::string& id) const {
    const auto found = groups_.lower_bound(GroupKey{id, 0});
    return found != groups_.end() && found->first.id == id;
  }

 private:
  struct Group {
    std::string name;
    std::string shown_name;
    int size = 0;
    std::vector<int> ranks;                                 // Empty: unknown.
    std::set<int> seen;                                     // Ranks that have ever shown it.
    std::vector<std::pair<int, const GroupDigest*>> shown;  // Only within views().
  };
  bool accept(const RankDigest& digest, GroupDigest& group, int world_size);
  static GroupView view_of(const GroupKey& key, const Group& group,
                           const std::vector<RankState>& ranks);

  std::map<GroupKey, Group> groups_;
};

// Whether no member can end the call before all have made it, so that each of them waits for all
// others. In rooted operations, and where a part may be empty, some end early.
bool needs_all(const ring::Call& call);

// The record of a call; nullptr: there is none.
const CallDigest* find_call(const GroupDigest& group, uint64_t ordinal);

// Settles calls on a device whose ends are not seen (unseen.cc): of NCCL's, a plugin learns that
// they are launched, and no more. What is known is that a call which needs a member cannot be
// complete before that member has made it, nor what was called behind it, since a device performs a
// group's calls in order. So a digest's `completed` becomes, for each such group, the last call
// that may be complete: of the members that wait for nobody, `called`. Whether a call that all have
// made is queued, runs without progress or has ended on some cannot be told, and nobody is accused
// of it. Again after each change of a digest. A receive waits for its send; a send waits for
// nobody, since it may be buffered.
void settle_unseen(std::vector<RankState>& ranks);

}  // namespace muster::hang
