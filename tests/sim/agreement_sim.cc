#include "tests/sim/agreement_sim.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "rendezvous/base/prng.h"
#include "tests/unit/worker_lib/watch/watch_world.h"

namespace muster::agreesim {
namespace {

using worker::Verdict;
using worker::watch_test::WatchWorld;

constexpr int kStepsMax = 200'000;

struct Team {
  std::string id;
  std::vector<int> members;
  uint64_t rounds = 1;
};

// What one member has done in one group: numbers of agreements.
struct Member {
  uint64_t cast = 0;     // Its last vote.
  uint64_t decided = 0;  // Its last verdict.
};

class Agreeing {
 public:
  Agreeing(uint64_t seed, Tally& tally)
      : shape_(seed * 7919 + 1), world_(seed, nodes(shape_)), tally_(tally) {
    Team all{.id = "world", .members = {}, .rounds = 1 + shape_.below(3)};
    for (int rank = 0; rank < world_.size(); ++rank)
      all.members.push_back(rank);
    Team some{.id = "some", .members = {}, .rounds = 1 + shape_.below(3)};
    for (int rank = 0; rank < world_.size(); ++rank) {
      if (shape_.chance(1, 2)) some.members.push_back(rank);
    }
    teams_ = {all, some};
    members_.resize(teams_.size(), std::vector<Member>(all.members.size()));
  }

  std::optional<std::string> run() {
    world_.begin();
    world_.settle();
    deaths_left_ = shape_.below(static_cast<uint64_t>(world_.size()));
    for (int step = 0; !is_over(); ++step) {
      if (step > kStepsMax) return "ranks wait for ever";
      happen();
      world_.advance();
      if (auto broken = take_verdicts()) return broken;
    }
    world_.settle();
    if (auto broken = take_verdicts()) return broken;
    return check_voters();
  }

 private:
  static std::vector<int> nodes(Prng& shape) {
    const uint64_t ranks = 2 + shape.below(shape.chance(1, 20) ? 30 : 7);
    const uint64_t nodes = 1 + shape.below(4);
    std::vector<int> node_of;
    for (uint64_t rank = 0; rank < ranks; ++rank)
      node_of.push_back(static_cast<int>(shape.below(nodes)));
    return node_of;
  }

  // The members that live and have rounds left.
  bool is_over() {
    for (size_t t = 0; t < teams_.size(); ++t) {
      for (const int rank : teams_[t].members) {
        if (is_there(rank) && of(t, rank).decided < teams_[t].rounds) return false;
      }
    }
    return true;
  }

  // True if it lives, and no other takes it for dead after two broken connections.
  bool is_there(int rank) {
    for (int other = 0; other < world_.size(); ++other) {
      for (const auto& news : world_[other].heard) {
        if (news.rank.value == rank) return false;
      }
    }
    return world_[rank].is_up();
  }

  Member& of(size_t team, int rank) { return members_[team][static_cast<size_t>(rank)]; }

  // Perhaps kills a rank, breaks a connection, or lets a member vote.
  void happen() {
    Prng& prng = world_.prng();
    if (prng.chance(1, 25))
      kill(static_cast<int>(prng.below(static_cast<uint64_t>(world_.size()))));
    const auto size = static_cast<uint64_t>(world_.size());
    if (prng.chance(1, 100))
      world_.cut_between_nodes(static_cast<int>(prng.below(size)),
                               static_cast<int>(prng.below(size)));
    for (size_t t = 0; t < teams_.size(); ++t) {
      const int rank = static_cast<int>(prng.below(size));
      Member& member = of(t, rank);
      const bool may_vote = world_[rank].is_up() &&
                            std::ranges::count(teams_[t].members, rank) > 0 &&
                            member.cast == member.decided && member.cast < teams_[t].rounds;
      if (may_vote) vote(t, rank);
    }
  }

  void kill(int rank) {
    if (deaths_left_ == 0 || !world_[rank].is_up()) return;
    --deaths_left_;
    ++tally_.deaths;
    world_.cut_power(rank);
  }

  void vote(size_t team, int rank) {
    const uint64_t number = ++of(team, rank).cast;
    const uint64_t value = shape_.next() | shape_.next();
    values_[{team, number, rank}] = value;
    world_.cast(rank, {.group_id = teams_[team].id,
                       .members = teams_[team].members,
                       .number = number,
                       .rank = rank,
                       .value = value,
                       .text = "",
                       .verdict = {}});
  }

  std::optional<std::string> take_verdicts() {
    for (int rank = 0; rank < world_.size(); ++rank) {
      for (const auto& decision : std::exchange(world_[rank].decisions, {})) {
        const size_t team = decision.group_id == teams_[0].id ? 0 : 1;
        if (auto broken = take(team, rank, decision.number, decision.verdict)) return broken;
      }
    }
    return std::nullopt;
  }

  std::optional<std::string> take(size_t team, int rank, uint64_t number, const Verdict& verdict) {
    Member& member = of(team, rank);
    if (number != member.decided + 1 || number != member.cast)
      return fmt::format("rank {} got verdict {}, and has voted {} times", rank, number,
                         member.cast);
    member.decided = number;
    ++tally_.decisions;
    // Perhaps no other has it.
    if (world_.prng().chance(1, 10)) kill(rank);
    const auto [known, is_new] = verdicts_.try_emplace({team, number}, verdict);
    if (known->second != verdict) {
      return fmt::format("verdict {} of {} is {:x} of {} voters, and {:x} of {} on rank {}", number,
                         teams_[team].id, known->second.value, known->second.voters.size(),
                         verdict.value, verdict.voters.size(), rank);
    }
    if (!is_new) return std::nullopt;
    uint64_t value = ~uint64_t{0};
    for (const int voter : verdict.voters) {
      const auto cast = values_.find({team, number, voter});
      if (cast == values_.end()) return fmt::format("rank {} had not voted", voter);
      value &= cast->second;
    }
    if (value == verdict.value) return std::nullopt;
    return fmt::format("verdict {} of {} is not that of its voters", number, teams_[team].id);
  }

  std::optional<std::string> check_voters() {
    for (const auto& [which, verdict] : verdicts_) {
      for (const int rank : teams_[which.first].members) {
        if (!is_there(rank) || std::ranges::count(verdict.voters, rank) == 1) continue;
        return fmt::format("rank {} lives, and is no voter of verdict {} of {}", rank, which.second,
                           teams_[which.first].id);
      }
    }
    return std::nullopt;
  }

  Prng shape_;
  WatchWorld world_;
  Tally& tally_;
  std::vector<Team> teams_;
  std::vector<std::vector<Member>> members_;  // By team and rank.
  uint64_t deaths_left_ = 0;
  std::map<std::tuple<size_t, uint64_t, int>, uint64_t> values_;  // By team, number and rank.
  std::map<std::pair<size_t, uint64_t>, Verdict> verdicts_;       // By team and number.
};

}  // namespace

std::optional<std::string> broken_promise(uint64_t seed, Tally& tally) {
  return Agreeing(seed, tally).run();
}

}  // namespace muster::agreesim
