#include "agent/hang/wait_graph.h"

#include <algorithm>
#include <map>
#include <utility>

#include "rendezvous/base/error.h"

namespace muster::hang {
namespace {

using Certainty = Wait::Certainty;

// Senders shown for a receive from any rank to which none will send.
constexpr size_t kSendersShown = 64;

size_t at(int index) {
  return static_cast<size_t>(index);
}

// Finds the ranks that may go on. The others wait forever, or have ended.
class Reduction {
 public:
  // Treatment of ended ranks. With may_come, ranks that are left wait forever because of each
  // other.
  enum class Ended : uint8_t { will_not_come, may_come };

  Reduction(const std::vector<RankState>& ranks, const std::vector<Stall>& stalls,
            const std::vector<Wait>& waits, Ended ended)
      : ranks_(ranks), stalls_(stalls), waits_(waits), ended_(ended), free_(ranks.size()) {
    late_in_.resize(ranks.size());
    needed_by_.resize(ranks.size());
    waits_in_.resize(stalls.size());
    above_.resize(stalls.size());
    missing_.resize(stalls.size());
    stall_is_free_.resize(stalls.size());
  }

  std::vector<bool> run() {
    link();
    begin();
    do {
      spread();
    } while (free_any());
    return std::move(free_);
  }

 private:
  void link() {
    for (size_t s = 0; s < stalls_.size(); ++s) {
      for (const LateRank& late : stalls_[s].late) {
        // A silent one may not be late.
        if (late.standing == Standing::silent) continue;
        late_in_[at(late.rank)].push_back(static_cast<int>(s));
        ++missing_[s];
      }
      if (stalls_[s].below < 0) continue;
      above_[at(stalls_[s].below)].push_back(static_cast<int>(s));
      ++missing_[s];
    }
    for (const Wait& wait : waits_) {
      if (!wait.is_synchronous || wait.certainty == Certainty::none) continue;
      if (wait.certainty == Certainty::one_member && wait.member >= 0)
        needed_by_[at(wait.member)].push_back(wait.rank);
      if (wait.certainty == Certainty::stall) waits_in_[at(wait.stall)].push_back(wait.rank);
    }
  }

  void begin() {
    std::vector<bool> waits(ranks_.size());
    for (const Wait& wait : waits_)
      waits[at(wait.rank)] = true;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (!waits[rank]) free_rank(static_cast<int>(rank));
    }
    for (const Wait& wait : waits_) {
      if (!wait.is_synchronous || wait.certainty == Certainty::none) free_rank(wait.rank);
    }
    for (size_t s = 0; s < stalls_.size(); ++s) {
      if (missing_[s] == 0 && !stalls_[s].is_any) free_stall(static_cast<int>(s));
    }
  }

  void free_rank(int rank) {
    const bool will_not_come = ranks_[at(rank)].code && ended_ == Ended::will_not_come;
    if (free_[at(rank)] || will_not_come) return;
    free_[at(rank)] = true;
    fresh_.push_back(rank);
  }

  void free_stall(int stall) {
    if (stall_is_free_[at(stall)]) return;
    stall_is_free_[at(stall)] = true;
    for (const int rank : waits_in_[at(stall)])
      free_rank(rank);
    for (const int above : above_[at(stall)])
      miss_one_less(above);
  }

  void miss_one_less(int stall) {
    if (--missing_[at(stall)] == 0) free_stall(stall);
  }

  void spread() {
    while (!fresh_.empty()) {
      const int rank = fresh_.back();
      fresh_.pop_back();
      for (const int waiting : needed_by_[at(rank)])
        free_rank(waiting);
      for (const int stall : late_in_[at(rank)])
        miss_one_less(stall);
    }
  }

  // A receive from any rank ends when one of the others sends.
  bool free_any() {
    bool found = false;
    for (size_t s = 0; s < stalls_.size(); ++s) {
      if (!stalls_[s].is_any || stall_is_free_[s]) continue;
      if (!may_be_sent_to(stalls_[s])) continue;
      free_stall(static_cast<int>(s));
      found = true;
    }
    return found;
  }

  bool may_be_sent_to(const Stall& stall) const {
    bool some_live = false;
    for (const Member& member : stall.group->members) {
      if (member.rank < 0 || member.rank == stall.key.rank || ranks_[at(member.rank)].code)
        continue;
      if (free_[at(member.rank)]) return true;
      some_live = true;
    }
    return !some_live && ended_ == Ended::may_come;
  }

  const std::vector<RankState>& ranks_;
  const std::vector<Stall>& stalls_;
  const std::vector<Wait>& waits_;
  const Ended ended_;
  std::vector<bool> free_;
  std::vector<int> fresh_;  // Free, and not yet spread.
  std::vector<std::vector<int>> late_in_;
  std::vector<std::vector<int>> needed_by_;  // Ranks that need this one.
  std::vector<std::vector<int>> waits_in_;   // Ranks that cannot end before their stall.
  std::vector<std::vector<int>> above_;
  std::vector<size_t> missing_;
  std::vector<bool> stall_is_free_;
};

}  // namespace

WaitGraph::WaitGraph(const std::vector<RankState>& ranks, Stalls found)
    : ranks_(ranks),
      stalls_(std::move(found.stalls)),
      waits_(std::move(found.waits)),
      waits_of_(ranks.size()),
      late_in_(ranks.size()),
      waits_in_(stalls_.size()),
      above_(stalls_.size()) {
  if (stalls_.empty()) return;
  may_go_on_ = Reduction(ranks_, stalls_, waits_, Reduction::Ended::will_not_come).run();
  settle_any();
  link();
  find_roots();
  find_circles();
}

// Finds for whom receives from any rank wait.
void WaitGraph::settle_any() {
  for (Stall& stall : stalls_) {
    if (!stall.is_any || stall.hides_a_member) continue;
    std::vector<LateRank> able;
    std::vector<LateRank> unable;
    for (const Member& member : stall.group->members) {
      if (member.rank == stall.key.rank || member.standing == Standing::left) continue;
      std::vector<LateRank>& those = may_go_on_[at(member.rank)] ? able : unable;
      if (those.size() < kSendersShown) those.push_back({member.rank, member.standing});
    }
    if (able.size() > 1) continue;
    stall.late = able.empty() ? std::move(unable) : std::move(able);
  }
}

void WaitGraph::link() {
  for (size_t s = 0; s < stalls_.size(); ++s) {
    for (const LateRank& late : stalls_[s].late)
      late_in_[at(late.rank)].push_back({static_cast<int>(s), late});
    if (stalls_[s].below >= 0) above_[at(stalls_[s].below)].push_back(static_cast<int>(s));
  }
  for (size_t w = 0; w < waits_.size(); ++w) {
    waits_of_[at(waits_[w].rank)].push_back(static_cast<int>(w));
    waits_in_[at(waits_[w].stall)].push_back(static_cast<int>(w));
  }
}

void WaitGraph::find_roots() {
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (late_in_[rank].empty() || !waits_of_[rank].empty()) continue;
    Root& root = roots_.emplace_back(Root{static_cast<int>(rank), late_in_[rank]});
    for (size_t i = 0; i < root.stalls.size(); ++i) {
      const LateIn below = root.stalls[i];
      for (const int above : above_[at(below.stall)])
        root.stalls.push_back({above, below.late});
    }
  }
}

WaitGraph::Reached WaitGraph::nothing_reached() const {
  return {std::vector<bool>(ranks_.size()), std::vector<bool>(stalls_.size())};
}

// Marks these and what waits for them.
void WaitGraph::reach(Reached& reached, const std::vector<int>& ranks, int stall) const {
  std::vector<int> fresh_ranks;
  std::vector<int> fresh_stalls;
  const auto mark = [](std::vector<bool>& marks, std::vector<int>& fresh, int which) {
    if (marks[at(which)]) return;
    marks[at(which)] = true;
    fresh.push_back(which);
  };
  for (const int rank : ranks)
    mark(reached.ranks, fresh_ranks, rank);
  if (stall >= 0) mark(reached.stalls, fresh_stalls, stall);
  while (!fresh_ranks.empty() || !fresh_stalls.empty()) {
    if (!fresh_ranks.empty()) {
      const int rank = fresh_ranks.back();
      fresh_ranks.pop_back();
      for (const LateIn& late_in : late_in_[at(rank)])
        mark(reached.stalls, fresh_stalls, late_in.stall);
      continue;
    }
    const int one = fresh_stalls.back();
    fresh_stalls.pop_back();
    for (const int in : waits_in_[at(one)])
      mark(reached.ranks, fresh_ranks, wait(in).rank);
    for (const int above : above_[at(one)])
      mark(reached.stalls, fresh_stalls, above);
  }
}

std::vector<int> WaitGraph::waiting_for(const std::vector<int>& ranks, int stall) const {
  Reached reached = nothing_reached();
  reach(reached, ranks, stall);
  for (const int rank : ranks)
    reached.ranks[at(rank)] = false;
  std::vector<int> waiting;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (reached.ranks[rank]) waiting.push_back(static_cast<int>(rank));
  }
  return waiting;
}

void WaitGraph::involve_senders(std::vector<int>& involved) const {
  for (const Stall& stall : stalls_) {
    for (const LateRank& late : stall.is_any ? stall.late : std::vector<LateRank>()) {
      const auto place = std::ranges::lower_bound(involved, late.rank);
      const bool is_in = place != involved.end() && *place == late.rank;
      if (!is_in && !ranks_[at(late.rank)].code) involved.insert(place, late.rank);
    }
  }
}

bool WaitGraph::is_certain(int rank, int stall, int member) const {
  return std::ranges::any_of(waits_of_[at(rank)], [&](int index) {
    const Wait& one = wait(index);
    if (one.stall != stall) return false;
    return one.certainty == Certainty::one_member ? one.member == member
                                                  : one.certainty == Certainty::stall;
  });
}

// Certain ones first. That some of their ranks may also wait for roots changes nothing.
void WaitGraph::find_circles() {
  std::vector<bool> within = Reduction(ranks_, stalls_, waits_, Reduction::Ended::may_come).run();
  within.flip();
  Reached reached = nothing_reached();
  find_circles(within, true, reached);
  for (const Root& root : roots_)
    reach(reached, {root.rank});
  for (size_t s = 0; s < stalls_.size(); ++s) {
    const Stall& one = stalls_[s];
    const bool leads_nowhere = one.late.empty() && one.below < 0;
    if (leads_nowhere || one.hides_a_member) reach(reached, {}, static_cast<int>(s));
  }
  for (size_t rank = 0; rank < ranks_.size(); ++rank)
    within[rank] = waits(static_cast<int>(rank)) && !reached.ranks[rank];
  find_circles(within, false, reached);
}

// REQUIRES: each of the ranks `within` waits for another one of them.
void WaitGraph::find_circles(const std::vector<bool>& within, bool is_certain, Reached& reached) {
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (!within[rank] || reached.ranks[rank]) continue;
    Circle& circle = circles_.emplace_back(circle_from(static_cast<int>(rank), within));
    circle.is_certain = is_certain;
    reach(reached, circle.ranks);
  }
}

WaitGraph::Circle WaitGraph::circle_from(int rank, const std::vector<bool>& within) const {
  Circle circle;
  std::map<int, size_t> met;
  while (!met.contains(rank)) {
    met[rank] = circle.ranks.size();
    circle.ranks.push_back(rank);
    int next = -1;
    for (const int index : waits_of_[at(rank)]) {
      next = next_of(wait(index), within);
      if (next < 0) continue;
      circle.stalls.push_back(wait(index).stall);
      break;
    }
    CHECK(next >= 0);
    rank = next;
  }
  // Drops what leads into the circle, and begins with the lowest rank.
  const auto skipped = static_cast<ptrdiff_t>(met[rank]);
  circle.ranks.erase(circle.ranks.begin(), circle.ranks.begin() + skipped);
  circle.stalls.erase(circle.stalls.begin(), circle.stalls.begin() + skipped);
  const auto lowest = std::ranges::min_element(circle.ranks) - circle.ranks.begin();
  std::ranges::rotate(circle.ranks, circle.ranks.begin() + lowest);
  std::ranges::rotate(circle.stalls, circle.stalls.begin() + lowest);
  return circle;
}

// The furthest behind of those `within` for which the rank waits; -1: none.
int WaitGraph::next_of(const Wait& wait, const std::vector<bool>& within) const {
  if (wait.certainty == Certainty::one_member && within[at(wait.member)]) return wait.member;
  for (int s = wait.stall; s >= 0; s = stall(s).below) {
    for (const LateRank& late : stall(s).late) {
      if (within[at(late.rank)]) return late.rank;
    }
  }
  return -1;
}

}  // namespace muster::hang
