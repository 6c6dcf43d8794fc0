// The groups of a job, assembled from the digests of their members: which ranks belong to each, and
// what each member shows of it. Contradictory records count as silence of that member, never as
// evidence against another one. Owned by the detector. Pure.
//
// A group is identified by its id and the generation of the recording process: a worker's second
// process may form groups of the same names.
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
  known,   // Shows the group.
  absent,  // Records and has not opened the group.
  silent,  // Records nothing, or an impossible state of the group.
  left,    // Has shown the group and no longer does.
};

struct Member {
  int rank = -1;  // -1: unknown.
  Standing standing = Standing::silent;
  const GroupDigest* digest = nullptr;  // Set if known, maybe also if silent.

  bool is_ready() const { return digest != nullptr && digest->phase == GroupPhase::ready; }
  uint64_t called() const { return digest == nullptr ? 0 : digest->called; }
  uint64_t completed() const { return digest == nullptr ? 0 : digest->completed; }
};

// Valid until the next digest.
struct GroupView {
  const GroupKey* key = nullptr;
  GroupName name;                 // A nameless one's is that of the only group of the same members.
  std::vector<Member> members;    // By group rank.
  bool has_failed = false;        // True if it failed on a member; the library has reported it.
  bool has_unknown = false;       // True if the ranks of some members are unknown.
  std::vector<int> silent_ranks;  // Sorted.
};

class GroupTable {
 public:
  // Remembers the members of the digest's groups; removes their lists and impossible groups from
  // it. Cost: the size of the digest.
  void note(RankDigest& digest, int world_size);

  // Returns all groups that a digest shows, by key; forgets the others.
  std::vector<GroupView> views(const std::vector<RankState>& ranks);
  // Returns the group's name in the newest views; its id if unknown.
  GroupName name_of(const std::string& id) const;
  // True if the rank has a group of these members by an id that others use for another group, as
  // after a call of new_group() that not all ranks have made.
  bool has_another(int rank, const GroupView& view) const;
  bool knows(const GroupKey& key) const { return groups_.contains(key); }
  bool knows(const std::string& id) const { return find(id) != nullptr; }

 private:
  struct Group {
    GroupName name;
    GroupName shown_name;
    int size = 0;
    std::vector<int> ranks;                                 // Empty: unknown.
    std::set<int> seen;                                     // Ranks that have ever shown it.
    std::vector<std::pair<int, const GroupDigest*>> shown;  // Only within views().
  };
  bool accept(const RankDigest& digest, GroupDigest& group, int world_size);
  const Group* find(const std::string& id) const;
  static GroupView view_of(const GroupKey& key, const Group& group,
                           const std::vector<RankState>& ranks);

  std::map<GroupKey, Group> groups_;
  std::map<int, std::vector<int>> misfits_;  // By rank: members of such a group.
};

// Returns true if no member can end the call before all have made it. In rooted operations, and
// where a part may be empty, some can.
bool needs_all(const ring::Call& call);

const CallDigest* find_call(const GroupDigest& group, uint64_t ordinal);

// nullptr: the rank's newest digest does not show the group.
const GroupDigest* find_group(const RankState& rank, const GroupKey& key);

// Sets `completed` of device calls whose ends are not seen: of NCCL's, a plugin only
// learns of the launch. A call that needs a member cannot be complete before that member has made
// it, nor can a later one, since a device performs a group's calls in order. So `completed` becomes
// the last call that may be complete; for members that wait for none, `called`. Whether a call that
// all have made is queued, stuck or complete on some cannot be seen, and no rank is accused of it.
// A receive waits for its send; a send waits for nothing, since it may be buffered. Repeat after
// each change of a digest.
void settle_unseen(std::vector<RankState>& ranks);

}  // namespace muster::hang
