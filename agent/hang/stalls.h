// The calls that ranks wait in, and the ranks that they wait for: read from one state of the
// digests, in a deterministic order. Pure.
//
//   a rank waits   its synchronous call has not ended, or it has a call in flight and is blocked,
//                  or its device is in that call; or it forms a group
//   late           a member that has not made that call; a peer that has not sent or received; one
//                  that has made it but is stopped, or has ended, before it was complete
//
// Rooted operations let members end early, so calls show which ranks are late, never completions.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "agent/hang/group_table.h"
#include "agent/hang/rank_state.h"
#include "rendezvous/base/time.h"

namespace muster::hang {

struct StallKey {
  enum class Kind : uint8_t { forming, collective, message };

  GroupKey group;
  Kind kind = Kind::collective;
  uint64_t ordinal = 0;     // A message's: by peer and direction.
  bool all_called = false;  // No rank is late.
  // Messages only, `rank` also where nothing shows for whom it waits:
  int rank = -1;  // The rank that waits.
  int peer = -1;  // Group rank; -1: any.
  bool is_recv = false;

  friend auto operator<=>(const StallKey&, const StallKey&) = default;
};

// Returns the rank's messages that the key is of; nullptr: none.
const MessageDigest* find_message(const RankDigest& digest, const StallKey& key);

struct LateRank {
  int rank = 0;
  Standing standing = Standing::known;
  bool is_inside = false;  // True if it has made the call.
};

struct Stall {
  StallKey key;
  const GroupView* group = nullptr;
  ring::Call call;  // Recorded by a waiting rank; kind `unknown`: by none.
  // When the first waiting rank began to wait; if all have called, the last one.
  Instant since{};
  std::vector<int> waiting;    // By rank.
  std::vector<LateRank> late;  // The furthest behind first. Without those of `below`.
  int below = -1;              // The stall of an earlier call, whose late ranks are late here too.
  // Members that have not completed a call that all have made, and whether any has.
  std::vector<int> unfinished;
  bool has_finished = false;
  bool is_any = false;          // A receive from any rank; WaitGraph sets `late`.
  bool hides_a_member = false;  // Waits also for members of which nothing is known.
};

struct Wait {
  enum class Certainty : uint8_t {
    none,        // May end by itself.
    one_member,  // Cannot end without `member`.
    stall,       // Cannot end while any rank is late.
  };

  int rank = 0;
  int stall = 0;
  bool is_synchronous = false;  // False: blocked, presumably in this call, or its device waits.
  Certainty certainty = Certainty::none;
  int member = -1;
};

struct Stalls {
  std::vector<Stall> stalls;  // By group; the collectives of a group by ordinal.
  std::vector<Wait> waits;
  // Ranks whose processes matter, sorted: those with calls pending for min_age, and those for which
  // such calls wait, unless they have ended.
  std::vector<int> involved;
};

struct StallOptions {
  Instant now{};
  Duration look{};     // Time between two samples of a process.
  Duration min_age{};  // Returns nothing if all waits are younger: healthy ranks wait too.
};

// `groups`: by key; the stalls point into it. Cost: the size of the digests, and sorting.
Stalls find_stalls(const std::vector<RankState>& ranks, const std::vector<GroupView>& groups,
                   const StallOptions& options);

}  // namespace muster::hang
