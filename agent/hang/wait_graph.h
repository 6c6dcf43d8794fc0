// The wait graph: ranks wait for stalls, and stalls for late ranks.
//
//   rank 3 ──▶ all_reduce #7 of 'tp' ──▶ rank 2 ──▶ broadcast #4 of 'pp' ──▶ rank 0
//
// Stalls of one group share their late members (a member that has not made a call has not made the
// next one either), so the graph is as large as the digests, not as the pairs of ranks.
//
//   root      a late rank that waits in no stall
//   circle    ranks that wait for each other, and reach no root unless it is certain
//   certain   found by reduction: a rank that waits in nothing may go on, and so may one that waits
//             for such ranks only; the others will wait forever. Calls that need not wait for all
//             members, and waits that are only presumed, may always go on.
//
// A receive from any rank waits for no single one, unless all others, or all but one, will wait
// forever or have ended. Holt, "Some deadlock properties of computer systems", 1972. Built anew for
// each evaluation. Pure.
#pragma once

#include <vector>

#include "agent/hang/stalls.h"

namespace muster::hang {

class WaitGraph {
 public:
  // `ranks` and what the stalls point to must outlive it.
  WaitGraph(const std::vector<RankState>& ranks, Stalls found);

  const std::vector<Stall>& stalls() const { return stalls_; }
  const Stall& stall(int index) const { return stalls_[static_cast<size_t>(index)]; }
  bool waits(int rank) const { return !waits_of_[static_cast<size_t>(rank)].empty(); }

  struct LateIn {
    int stall = 0;
    LateRank late;
  };
  struct Root {
    int rank = 0;
    std::vector<LateIn> stalls;  // Stalls that wait for it directly.
  };
  const std::vector<Root>& roots() const { return roots_; }  // By rank.

  struct Circle {
    std::vector<int> ranks;   // Each waits for the next one, the last for the first.
    std::vector<int> stalls;  // The stalls in which they do.
    bool is_certain = false;
  };
  const std::vector<Circle>& circles() const { return circles_; }

  // Ranks that wait for these or in this stall (-1: none), directly or through others, without
  // `ranks`. Sorted.
  std::vector<int> waiting_for(const std::vector<int>& ranks, int stall = -1) const;
  // Adds the living ranks that receives from any rank wait for to a sorted list.
  void involve_senders(std::vector<int>& involved) const;
  // True if the rank's wait in the stall cannot end without the member.
  bool is_certain(int rank, int stall, int member) const;

 private:
  void link();
  void settle_any();
  void find_roots();
  struct Reached {
    std::vector<bool> ranks;
    std::vector<bool> stalls;
  };
  void find_circles();
  void find_circles(const std::vector<bool>& within, bool is_certain, Reached& reached);
  Circle circle_from(int rank, const std::vector<bool>& within) const;
  int next_of(const Wait& wait, const std::vector<bool>& within) const;
  void reach(Reached& reached, const std::vector<int>& ranks, int stall = -1) const;
  Reached nothing_reached() const;
  const Wait& wait(int index) const { return waits_[static_cast<size_t>(index)]; }

  const std::vector<RankState>& ranks_;
  std::vector<Stall> stalls_;
  std::vector<Wait> waits_;
  std::vector<std::vector<int>> waits_of_;    // Waits by rank.
  std::vector<std::vector<LateIn>> late_in_;  // By rank; without the stalls above.
  std::vector<std::vector<int>> waits_in_;    // Waits by stall.
  std::vector<std::vector<int>> above_;       // By stall: those above it.
  std::vector<bool> may_go_on_;               // By rank.
  std::vector<Root> roots_;
  std::vector<Circle> circles_;
};

}  // namespace muster::hang
