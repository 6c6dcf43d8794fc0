#include "agent/hang/wait_graph.h"

#include <gtest/gtest.h>

#include "tests/unit/agent/hang/detector_harness.h"

namespace muster::hang {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// The ranks of a fake job as the detector sees them, and the graph of their waits.
class Ranks {
 public:
  explicit Ranks(FakeJob& job) : states_(job.ranks.size()) {
    for (size_t rank = 0; rank < states_.size(); ++rank) {
      FakeRank& fake = job.ranks[rank];
      if (fake.records) {
        RankDigest digest = fake.digest;
        digest.at = job.now();
        digest.is_last = fake.code.has_value();
        table_.note(digest, static_cast<int>(states_.size()));
        states_[rank].take(digest, job.now());
      }
      states_[rank].see({.state = fake.life}, job.now(), seconds(1));
      states_[rank].code = fake.code;
    }
    views_ = table_.views(states_);
    found_ = find_stalls(states_, views_, {job.now() + seconds(1), seconds(1), milliseconds(250)});
  }

  const Stalls& stalls() const { return found_; }
  WaitGraph graph() const& { return WaitGraph(states_, found_); }
  WaitGraph graph() && = delete;  // The graph points into this.

 private:
  GroupTable table_;
  std::vector<RankState> states_;
  std::vector<GroupView> views_;
  Stalls found_;
};

std::vector<int> roots_of(const WaitGraph& graph) {
  std::vector<int> ranks;
  for (const WaitGraph::Root& root : graph.roots())
    ranks.push_back(root.rank);
  return ranks;
}

TEST(WaitGraph, StallsOfOneGroupShareTheirLateRanks) {
  FakeJob job(5);
  job.open("world", all_of(5));
  ring::Call gives = call_of(ring::CallKind::broadcast, 0);
  job.call(0, "world", gives);
  job.complete(0, "world");
  job.call(0, "world", kBarrier);
  for (const int rank : {1, 2})
    job.call(rank, "world", gives);
  const Ranks ranks(job);
  ASSERT_EQ(ranks.stalls().stalls.size(), 2U);
  const Stall& first = ranks.stalls().stalls[0];
  const Stall& second = ranks.stalls().stalls[1];
  EXPECT_EQ(first.waiting, (std::vector<int>{1, 2}));
  ASSERT_EQ(first.late.size(), 2U);
  EXPECT_EQ(first.late[0].rank, 3);
  EXPECT_EQ(second.below, 0);
  ASSERT_EQ(second.late.size(), 2U);
  EXPECT_EQ(second.late[0].rank, 1);
  const WaitGraph graph = ranks.graph();
  EXPECT_EQ(roots_of(graph), (std::vector<int>{3, 4}));
  EXPECT_EQ(graph.roots()[0].stalls.size(), 2U);
  EXPECT_EQ(graph.waiting_for({3}), (std::vector<int>{0, 1, 2}));
}

TEST(WaitGraph, RecentWaitsMakeNoGraph) {
  FakeJob job = running_job(3);
  call_without(job, {1});
  Ranks ranks(job);
  EXPECT_FALSE(ranks.stalls().stalls.empty());
  job.pass(seconds(1));
  job.at(0).group("world").calls.back().called = job.now() + milliseconds(900);
  job.at(2).group("world").calls.back().called = job.now() + milliseconds(900);
  EXPECT_TRUE(Ranks(job).stalls().stalls.empty());
}

TEST(WaitGraph, ACertainCircleIsFoundBesideARootThatItAlsoWaitsFor) {
  FakeJob job(4);
  job.open("a", {0, 1, 2});
  job.open("b", {0, 1});
  job.call(0, "a", kBarrier);
  job.call(1, "b", kBarrier);
  const Ranks ranks(job);
  const WaitGraph graph = ranks.graph();
  EXPECT_EQ(roots_of(graph), std::vector<int>{2});
  ASSERT_EQ(graph.circles().size(), 1U);
  EXPECT_EQ(graph.circles()[0].ranks, (std::vector<int>{0, 1}));
  EXPECT_TRUE(graph.circles()[0].is_certain);
}

TEST(WaitGraph, IndependentCirclesAreFoundSeparately) {
  FakeJob job(6);
  job.open("a", {0, 1});
  job.open("b", {0, 1});
  job.open("c", {3, 4, 5});
  job.open("d", {3, 4, 5});
  job.call(0, "a", kBarrier);
  job.call(1, "b", kBarrier);
  job.call(3, "d", kBarrier);
  job.call(4, "c", kBarrier);
  job.call(5, "c", kBarrier);
  const Ranks ranks(job);
  const WaitGraph graph = ranks.graph();
  ASSERT_EQ(graph.circles().size(), 2U);
  EXPECT_EQ(graph.circles()[0].ranks, (std::vector<int>{0, 1}));
  EXPECT_EQ(graph.circles()[1].ranks, (std::vector<int>{3, 4}));
  EXPECT_EQ(graph.waiting_for({3, 4}), std::vector<int>{5});
}

TEST(WaitGraph, ARankThatWaitsInSeveralCallsIsDoomedOnlyIfAllOfThemAre) {
  FakeJob job(3);
  job.open("a", {0, 1});
  job.open("b", {0, 1});
  job.open("c", {0, 2});
  job.call(0, "a", kBarrier);
  job.call(0, "c", kBarrier);
  job.call(1, "b", kBarrier);
  const Ranks ranks(job);
  EXPECT_TRUE(ranks.graph().circles().empty());
  job.call(2, "c", kBarrier);
  job.complete(0, "c");
  job.complete(2, "c");
  job.life(0, LifeState::blocked);
  const Ranks found(job);
  EXPECT_EQ(found.graph().circles().size(), 1U);
}

// Half of a thousand nodes' eight ranks each are late. The graph grows in time and space only
// linearly with its digests.
TEST(WaitGraph, AGraphOfManyRanksIsNoLargerThanTheirDigests) {
  constexpr int kRanks = 8000;
  FakeJob job(kRanks);
  const std::vector<int> everybody = all_of(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    job.open_on(rank, "world", rank == 0 ? everybody : std::vector<int>());
    job.at(rank).digest.groups[0].size = kRanks;
    job.at(rank).digest.groups[0].own_rank = rank;
    if (rank % 2 == 0) job.call(rank, "world", kBarrier);
  }
  const Ranks ranks(job);
  size_t edges = 0;
  for (const Stall& stall : ranks.stalls().stalls)
    edges += stall.late.size() + stall.waiting.size();
  EXPECT_EQ(edges, static_cast<size_t>(kRanks));
  const WaitGraph graph = ranks.graph();
  EXPECT_EQ(graph.roots().size(), static_cast<size_t>(kRanks / 2));
  EXPECT_EQ(graph.waiting_for({1}).size(), static_cast<size_t>(kRanks / 2));
}

}  // namespace
}  // namespace muster::hang
