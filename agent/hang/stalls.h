// The calls that ranks wait in, and for whom: read from one state of the digests, in an order that
// depends on nothing else. Pure.
//
//   a rank waits   its synchronous call has not ended, or it has a call in flight and is blocked,
//                  or its device is in that call; or it forms a group
//   late           a member that has not made that call; a peer that has not sent or received; one
//                  that has made it but is stopped, or has ended, before it was complete
//
// Rooted operations let members end early, so only calls tell who is late, never completions.
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
  uint64_t ordinal = 0;     // Of a message: by its peer and direction.
  bool all_called = false;  // Nobody is late.
  // Of a message:
  int rank = -1;  // That waits.
  int peer = -1;  // Group rank; -1: any.
  bool is_recv = false;

  friend auto operator<=>(const StallKey&, const StallKey&) = default;
};

struct LateRank {
  int rank = 0;
  Standing standing = Standing::known;
  bool is_inside = false;  // It has made the call.
};

struct Stall {
  StallKey key;
  const GroupView* group = nullptr;
  ring::Call call;  // As one of those that wait recorded it; of an unknown kind: none did.
  // When the first of those that wait began to; if all have called, the last one.
  Instant since{};
  std::vector<int> waiting;    // By rank.
  std::vector<LateRank> late;  // The furthest behind first. Without those of `below`.
  int below = -1;              // The stall of an earlier call, whose late ranks are late here too.
  // If all have called: those that have not completed it, and whether another one has.
  std::vector<int> unfinished;
  bool has_finished = false;
  bool is_any = false;          // A receive from any rank: `late` is the WaitGraph's to find.
  bool hides_a_member = false;  // It also waits for members of which nothing is known.
};

struct Wait {
  enum class Certainty : uint8_t {
    none,        // It may end by itself.
    one_member,  // It cannot end without `member`.
    stall,       // It cannot end while anybody is late.
  };

  int rank = 0;
  int stall = 0;
  bool is_synchronous = false;  // Else the rank is blocked, presumably in this call, or not at all.
  Certainty certainty = Certainty::none;
  int member = -1;
};

struct Stalls {
  std::vector<Stall> stalls;  // By group; the collectives of a group by ordinal.
  std::vector<Wait> waits;
  // Ranks with calls that have been pending for min_age, and those for which such calls wait,
  // unless they have ended: what their processes do matters. By rank.
  std::vector<int> involved;
};

struct StallOptions {
  Instant now{};
  Duration look{};     // Between two looks at a process.
  Duration min_age{};  // If all waits are younger, none is returned: healthy ranks wait as well.
};

// `groups`: by key. The stalls point into it. Cost: the size of the digests, and sorting.
Stalls find_stalls(const std::vector<RankState>& ranks, const std::vector<GroupView>& groups,
                   const StallOptions& options);

}  // namespace muster::hang
