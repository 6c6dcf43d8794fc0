#include "worker_lib/watch/watch_tree.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker_lib/watch/watch_world.h"

namespace muster::worker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using watch_test::blocks;
using watch_test::News;
using watch_test::SimulatedRank;
using watch_test::WatchWorld;
using Kind = News::Kind;
using namespace std::chrono_literals;

// "died 2" "left 0" "aborted 1 g".
std::string summary(const News& news) {
  static constexpr const char* kNames[] = {"died", "left", "aborted", "stopped"};
  std::string text = kNames[static_cast<size_t>(news.kind)];
  text += " " + std::to_string(news.rank.value);
  return news.group_id.empty() ? text : text + " " + news.group_id;
}

std::vector<std::string> heard(WatchWorld& world, int rank) {
  std::vector<std::string> texts;
  for (const News& news : world[rank].heard)
    texts.push_back(summary(news));
  return texts;
}

WatchWorld started(const std::vector<int>& node_of, uint64_t seed = 1) {
  WatchWorld world(seed, node_of);
  world.begin();
  world.settle();
  for (int rank = 0; rank < world.size(); ++rank)
    EXPECT_TRUE(world[rank].started) << "rank " << rank;
  return world;
}

TEST(WatchTree, AWorldOfOneStartsAndLeavesAlone) {
  WatchWorld world = started({0});
  world.leave(0);
  EXPECT_EQ(world[0].state, SimulatedRank::State::parted);
}

TEST(WatchTree, EveryRankStartsOnceAllAreLinked) {
  for (const int ranks : {2, 3, 5, 16, 17, 40}) {
    for (const int nodes : {1, 2, 3, 5}) {
      if (nodes > ranks) continue;
      WatchWorld world = started(blocks(ranks, nodes));
      for (int rank = 0; rank < ranks; ++rank)
        EXPECT_THAT(world[rank].heard, IsEmpty());
    }
  }
}

TEST(WatchTree, NoRankStartsWhileOneIsMissing) {
  WatchWorld world(7, blocks(6, 2), 10s);
  world[4].stopped = true;
  world.begin();
  world.settle();
  for (int rank = 0; rank < 6; ++rank) {
    EXPECT_FALSE(world[rank].started);
    if (rank == 4) continue;
    ASSERT_TRUE(world[rank].failed) << rank;
    EXPECT_EQ(world[rank].failed->code, ErrorCode::timeout);
  }
  // Its own node knows which rank is missing; the others hear it, or miss the node's first rank.
  EXPECT_THAT(world[3].failed->ranks, ElementsAre(GlobalRank{4}));
  EXPECT_EQ(
      world[3].failed->message,
      "rank 4 (node1, pid 104) did not connect in time; check whether it is stopped or overloaded");
}

// It is killed before it is linked, so no link reports its death.
TEST(WatchTree, ARankKnownToHaveEndedIsNamedByAllAtOnce) {
  for (const int victim : {1, 4, 5}) {
    WatchWorld world(7, blocks(6, 2), 10s);
    const Instant before = world.now();
    world[victim].stopped = true;
    world.begin();
    world.run(10);
    world.kill(victim);
    world.know_ended(victim == 1 ? 0 : 3, victim);
    world.settle();
    EXPECT_LT(world.now() - before, 5s);
    for (int rank = 0; rank < 6; ++rank) {
      if (rank == victim) continue;
      ASSERT_TRUE(world[rank].failed) << rank << " without " << victim;
      EXPECT_EQ(world[rank].failed->code, ErrorCode::peer_failed);
      EXPECT_THAT(world[rank].failed->ranks, ElementsAre(GlobalRank{victim}));
    }
  }
}

TEST(WatchTree, ALinkedRankIsNotDeadUntilItsLinkEnds) {
  WatchWorld world = started(blocks(4, 1));
  world.know_ended(0, 2);
  world.settle();
  EXPECT_THAT(world[0].heard, IsEmpty());
}

TEST(WatchTree, ARankThatCannotTakePartReportsWhy) {
  WatchWorld world(7, blocks(6, 2), 10s);
  const Failure why{ErrorCode::system, "rank 3 cannot connect: Too many open files", {}};
  world[5].stopped = true;
  world.begin();
  world.run(10);
  world.surrender(3, why);
  world.settle();
  for (const int rank : {0, 1, 2, 3, 4}) {
    ASSERT_TRUE(world[rank].failed) << rank;
    EXPECT_EQ(*world[rank].failed, why) << rank;
  }
}

TEST(WatchTree, EveryRankHearsOfADeathOnce) {
  for (const int victim : {0, 1, 3, 5}) {
    WatchWorld world = started(blocks(6, 2));
    world.kill(victim);
    world.settle();
    for (int rank = 0; rank < 6; ++rank) {
      if (rank == victim) continue;
      EXPECT_THAT(heard(world, rank), ElementsAre("died " + std::to_string(victim))) << rank;
      const Failure& failure = world[rank].heard[0].failure;
      EXPECT_EQ(failure.code, ErrorCode::peer_failed);
      EXPECT_THAT(failure.ranks, ElementsAre(GlobalRank{victim}));
      EXPECT_THAT(failure.message, HasSubstr("rank " + std::to_string(victim) + " (node"));
      EXPECT_THAT(failure.message, HasSubstr(") died; its own output may say why"));
    }
  }
}

TEST(WatchTree, ADeathWithinANodeIsBelievedAtOnce) {
  WatchWorld world = started(blocks(8, 2));
  const Instant before = world.now();
  world.kill(2);
  world.settle();
  EXPECT_LT(world.now() - before, watch::kDoubt);
}

TEST(WatchTree, ARankThatLeavesIsNotReportedDead) {
  for (const int leaver : {0, 2, 3, 4}) {
    WatchWorld world = started(blocks(6, 2));
    world.leave(leaver);
    world.settle();
    EXPECT_EQ(world[leaver].state, SimulatedRank::State::parted);
    EXPECT_GT(world.expected_ends(), 0U);
    for (int rank = 0; rank < 6; ++rank) {
      if (rank == leaver) continue;
      EXPECT_THAT(heard(world, rank), ElementsAre("left " + std::to_string(leaver))) << rank;
    }
  }
}

TEST(WatchTree, TheTreeHoldsTogetherWhileItsFirstRanksLeave) {
  for (const int ranks : {6, 36}) {
    WatchWorld world = started(blocks(ranks, 3));
    for (const int leaver : {0, ranks / 3, 1, 2 * ranks / 3}) {
      world.leave(leaver);
      world.settle();
    }
    world.kill(ranks / 3 + 1);
    world.settle();
    EXPECT_EQ(heard(world, ranks - 1).back(), "died " + std::to_string(ranks / 3 + 1));
    EXPECT_EQ(world[ranks - 1].heard.size(), 5U);
  }
}

TEST(WatchTree, AnAbortedGroupIsReportedToAllOtherRanks) {
  WatchWorld world = started(blocks(5, 2));
  world.abort(4, "g1");
  world.abort(4, "g1");
  world.abort(4, "g2");
  world.settle();
  EXPECT_THAT(world[4].heard, IsEmpty()) << "the rank that aborts knows";
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_THAT(heard(world, rank), ElementsAre("aborted 4 g1", "aborted 4 g2"));
    EXPECT_EQ(world[rank].heard[0].failure, (Failure{ErrorCode::aborted, "enough"}));
  }
}

TEST(WatchTree, AStoppedRankIsNotReportedDeadAndBlocksNoOther) {
  WatchWorld world = started(blocks(4, 1));
  world[0].stopped = true;
  world.kill(2);
  world.settle();
  EXPECT_THAT(heard(world, 1), ElementsAre("died 2"));
  EXPECT_THAT(heard(world, 3), ElementsAre("died 2"));
  world[0].stopped = false;
  world.settle();
  EXPECT_THAT(heard(world, 0), ElementsAre("died 2"));
}

TEST(WatchTree, ABrokenConnectionBetweenNodesIsRestored) {
  WatchWorld world = started(blocks(4, 2));
  world.cut(0, 2);
  world.settle();
  world.abort(3, "g");
  world.settle();
  for (const int rank : {0, 1, 2})
    EXPECT_THAT(heard(world, rank), ElementsAre("aborted 3 g"));
  EXPECT_THAT(world[3].heard, IsEmpty());
}

TEST(WatchTree, ADeathDuringTheSetUpFailsItForAll) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    WatchWorld world(seed, blocks(6, 2));
    world.begin();
    world.run(static_cast<int>(seed % 20));
    bool somebody_started = false;
    for (int rank = 0; rank < 6; ++rank)
      somebody_started |= world[rank].started;
    world.kill(4);
    world.settle();
    for (int rank = 0; rank < 6; ++rank) {
      if (rank == 4 || somebody_started) continue;
      ASSERT_TRUE(world[rank].failed.has_value() != world[rank].started) << seed;
      if (world[rank].started) continue;
      EXPECT_THAT(world[rank].failed->ranks, ElementsAre(GlobalRank{4}));
    }
  }
}

TEST(WatchTree, AllMayLeaveAtOnce) {
  for (const int nodes : {1, 3}) {
    WatchWorld world = started(blocks(24, nodes));
    for (int rank = 0; rank < 24; ++rank)
      world.leave(rank);
    world.settle();
    for (int rank = 0; rank < 24; ++rank) {
      EXPECT_EQ(world[rank].state, SimulatedRank::State::parted);
      EXPECT_LE(world[rank].parted_at - world[rank].left_at, watch::kPart);
    }
  }
}

TEST(WatchTree, ReportsTheStopOfARankThatEnded) {
  WatchWorld world = started(blocks(4, 2));
  world.stop(2, {ErrorCode::stopped, "the job was told to end (SIGTERM)"});
  world.settle();
  EXPECT_THAT(world[0].heard, IsEmpty());
  world.kill(2);
  world.settle();
  for (const int rank : {0, 1, 3}) {
    ASSERT_THAT(heard(world, rank), ElementsAre("died 2"));
    EXPECT_EQ(world[rank].heard[0].failure,
              (Failure{ErrorCode::peer_failed,
                       "rank 2 (node1, pid 102) ended: the job was told to end (SIGTERM)",
                       {{2}}}));
  }
}

TEST(WatchTree, ARankStoppedByTheLauncherIsNotBlamed) {
  const Failure reason{ErrorCode::peer_failed, "node 1 was lost"};
  WatchWorld world = started(blocks(4, 2));
  world.stop(0, reason);
  world.kill(0);
  world.settle();
  for (const int rank : {1, 2, 3}) {
    ASSERT_THAT(heard(world, rank), ElementsAre("died 0"));
    EXPECT_EQ(world[rank].heard[0].failure, reason);
  }
}

TEST(WatchTree, ARankThatEndsBecauseOfAnotherIsNotBlamed) {
  const Failure why{ErrorCode::timeout, "rank 1 gave up on the group: rank 3 is stopped", {{3}}};
  WatchWorld world = started(blocks(6, 3));
  world.abort(1, "0-1,3.1", why);
  world.settle();
  // A member, a rank outside the group, the culprit, and later on the rank that gave up.
  for (const int rank : {0, 4, 3})
    world.kill(rank);
  world.settle();
  world.pass(watch::kAftermath);
  world.kill(1);
  world.settle();
  std::map<int, Failure> deaths;
  for (const News& news : world[2].heard) {
    if (news.kind == Kind::died) deaths[news.rank.value] = news.failure;
  }
  EXPECT_EQ(deaths[0], (Failure{ErrorCode::peer_failed,
                                "rank 0 (node0, pid 100) ended after this: " + why.message,
                                {{3}}}));
  EXPECT_EQ(deaths[4].ranks, std::vector<GlobalRank>{{4}});
  EXPECT_EQ(deaths[3].ranks, std::vector<GlobalRank>{{3}});
  EXPECT_EQ(deaths[1].ranks, std::vector<GlobalRank>{{1}}) << "it may be something else by now";
}

TEST(WatchTree, TheDeathOfOneBlamedRankNamesAllBlamedRanks) {
  WatchWorld world = started(blocks(2, 2));
  world.abort(0, "world", {ErrorCode::timeout, "the ranks 0, 1 wait for each other", {{0}, {1}}});
  world.kill(0);
  world.settle();
  EXPECT_EQ(world[1].heard.back().kind, Kind::died);
  EXPECT_EQ(world[1].heard.back().failure.ranks, (std::vector<GlobalRank>{{0}, {1}}));
}

TEST(WatchTree, ADeathAfterAFailureOfTheWorldHasItsReason) {
  WatchWorld world = started(blocks(4, 2));
  world.abort(1, "world", {ErrorCode::mismatch, "rank 3 called barrier", {{3}}});
  world.abort(2, "2-3.1", {ErrorCode::aborted, "enough", {{2}}});
  world.kill(2);
  world.settle();
  EXPECT_EQ(world[0].heard.back().failure.ranks, std::vector<GlobalRank>{{3}})
      << "the first counts";
}

// ---- random events

struct Tally {
  int worlds = 0, deaths = 0, leaves = 0, aborts = 0;
  uint64_t messages = 0;
};

struct Fates {
  std::set<int> killed, left;
  std::set<std::pair<int, std::string>> told;
};

// Kills ranks, lets them leave and aborts groups at random moments; at least one rank stays.
Fates torment(WatchWorld& world, Tally& tally) {
  Fates fates;
  const auto happenings = 1 + world.prng().below(8);
  for (uint64_t i = 0; i < happenings; ++i) {
    world.run(static_cast<int>(world.prng().below(60)));
    const int rank = static_cast<int>(world.prng().below(static_cast<uint64_t>(world.size())));
    if (!world[rank].is_up() || world[rank].leaves) continue;
    const auto what = world.prng().below(3);
    if (what == 0) {
      const std::string group = "g" + std::to_string(i);
      world.abort(rank, group);
      fates.told.emplace(rank, group);
      ++tally.aborts;
    } else if (fates.killed.size() + fates.left.size() + 1 < static_cast<size_t>(world.size())) {
      what == 1 ? world.kill(rank) : world.leave(rank);
      (what == 1 ? fates.killed : fates.left).insert(rank);
      ++(what == 1 ? tally.deaths : tally.leaves);
    }
  }
  world.settle();
  return fates;
}

void check_survivor(WatchWorld& world, int rank, const Fates& fates) {
  std::map<int, Kind> gone;
  std::set<std::pair<int, std::string>> aborted;
  for (const News& news : world[rank].heard) {
    if (news.kind == Kind::aborted) {
      EXPECT_TRUE(aborted.emplace(news.rank.value, news.group_id).second) << "twice";
    } else {
      EXPECT_TRUE(gone.emplace(news.rank.value, news.kind).second) << "twice";
    }
  }
  for (const auto& [other, kind] : gone) {
    const bool killed = fates.killed.contains(other);
    EXPECT_TRUE(killed || fates.left.contains(other)) << "rank " << other << " is there";
    EXPECT_EQ(kind == Kind::died, killed) << "rank " << other;
  }
  EXPECT_EQ(gone.size(), fates.killed.size() + fates.left.size());
  for (const auto& [teller, group] : fates.told) {
    if (teller == rank || fates.killed.contains(teller)) continue;
    EXPECT_TRUE(aborted.contains({teller, group})) << "of rank " << teller;
  }
}

TEST(WatchTree, SurvivorsAgreeOnDeathsAndDeparturesInRandomRuns) {
  const char* const wanted = std::getenv("MUSTER_WATCH_SEEDS");
  const uint64_t seeds = wanted == nullptr ? 3000 : std::strtoull(wanted, nullptr, 10);
  Tally tally;
  for (uint64_t seed = 0; seed < seeds && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Prng shape(seed * 7919 + 1);
    const int ranks = 2 + static_cast<int>(shape.below(seed % 10 == 0 ? 40 : 8));
    std::vector<int> node_of;
    const uint64_t nodes = 1 + shape.below(4);
    for (int rank = 0; rank < ranks; ++rank)
      node_of.push_back(static_cast<int>(shape.below(nodes)));
    WatchWorld world = started(node_of, seed);
    const Fates fates = torment(world, tally);
    for (int rank = 0; rank < ranks; ++rank) {
      SCOPED_TRACE("rank " + std::to_string(rank));
      if (fates.left.contains(rank)) {
        EXPECT_EQ(world[rank].state, SimulatedRank::State::parted);
        EXPECT_LE(world[rank].parted_at - world[rank].left_at, watch::kPart + 1ms);
      } else if (!fates.killed.contains(rank)) {
        check_survivor(world, rank, fates);
      }
    }
    ++tally.worlds;
    tally.messages += world.messages();
  }
  std::printf("%d worlds, %d deaths, %d leaves, %d groups given up, %llu messages\n", tally.worlds,
              tally.deaths, tally.leaves, tally.aborts,
              static_cast<unsigned long long>(tally.messages));
}

}  // namespace
}  // namespace muster::worker
