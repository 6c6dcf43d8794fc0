// The events for the detector that other nodes' messages become.
#include "agent/hang/remote_nodes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/unit/agent/hang/detector_harness.h"

namespace muster::hang {
namespace {

using std::chrono::milliseconds;

Instant after(int time) {
  return Instant{milliseconds(1'000'000 + time)};
}

// Without a digest, the one of the same version still holds.
RankNews news_of(int rank, uint64_t version, int time, bool has_digest) {
  RankNews news;
  news.rank = rank;
  news.version = version;
  news.at = after(time);
  if (!has_digest) return news;
  news.digest.emplace();
  news.digest->rank = rank;
  news.digest->at = after(time);
  return news;
}
RankNews full(int rank, uint64_t version, int time) {
  return news_of(rank, version, time, true);
}
RankNews same(int rank, uint64_t version, int time) {
  return news_of(rank, version, time, false);
}

struct EventText {
  std::string operator()(const Digested& one) const {
    return fmt::format("digest {} {}{}", one.digest.rank,
                       (one.digest.at - after(0)) / milliseconds(1),
                       one.digest.is_last ? " last" : "");
  }
  std::string operator()(const Confirmed& one) const {
    return fmt::format("confirmed {} {}", one.rank, (one.at - after(0)) / milliseconds(1));
  }
  std::string operator()(const LifeSeen& one) const { return fmt::format("life {}", one.rank); }
  std::string operator()(const Ended& one) const {
    return fmt::format("ended {} {}", one.rank, one.code);
  }
  std::string operator()(const Suspended&) const { return "suspended"; }
  std::string operator()(const Resumed&) const { return "resumed"; }
  std::string operator()(const Jumped&) const { return "jumped"; }
  std::string operator()(const auto&) const { return "?"; }
};

// The detector's node has ranks 0 and 1 of 8.
class Others {
 public:
  std::string take(int node, const std::vector<RankNews>& ranks) {
    return take_digest(node, {.host = fmt::format("node-{}", node), .ranks = ranks});
  }
  std::string take_digest(int node, const NodeDigest& digest) {
    std::vector<std::string> texts;
    for (const Event& event : nodes.take(node, digest))
      texts.push_back(std::visit(EventText{}, event));
    return fmt::format("{}", fmt::join(texts, " | "));
  }

  RemoteNodes nodes{8, 0, 2};
};

TEST(RemoteNodes, ADigestHoldsAsLongAsItIsConfirmed) {
  Others others;
  EXPECT_EQ(others.take(1, {full(2, 1, 0), full(3, 1, 0)}), "digest 2 0 | digest 3 0");
  EXPECT_EQ(others.take(1, {same(2, 1, 250), full(3, 2, 250)}), "confirmed 2 250 | digest 3 250");
  // The same version again confirms the digest.
  EXPECT_EQ(others.take(1, {full(2, 1, 500), same(3, 2, 500)}),
            "confirmed 2 500 | confirmed 3 500");
}

TEST(RemoteNodes, AnUnknownVersionConfirmsNothing) {
  Others others;
  EXPECT_EQ(others.take(1, {same(2, 1, 0)}), "");
  EXPECT_EQ(others.take(1, {full(2, 1, 250)}), "digest 2 250");
  EXPECT_EQ(others.take(1, {same(2, 2, 500)}), "");  // The digest of version 2 was lost.
  EXPECT_EQ(others.take(1, {same(2, 1, 750)}), "confirmed 2 750");
}

TEST(RemoteNodes, LateAndRepeatedMessagesAreIgnored) {
  Others others;
  others.take(1, {full(2, 2, 500)});
  EXPECT_EQ(others.take(1, {full(2, 1, 250)}), "");
  EXPECT_EQ(others.take(1, {same(2, 1, 900)}), "");
  EXPECT_EQ(others.take(1, {full(2, 2, 500)}), "");
  EXPECT_EQ(others.take(1, {same(2, 2, 400)}), "");
}

// The detector drops such a digest, so nothing may confirm it.
TEST(RemoteNodes, ADigestThatIsNotNewerIsAwaitedAgain) {
  Others others;
  others.take(1, {full(2, 1, 500)});
  EXPECT_EQ(others.take(1, {full(2, 2, 490)}), "");
  EXPECT_EQ(others.take(1, {same(2, 2, 740)}), "");
  EXPECT_EQ(others.take(1, {full(2, 2, 990)}), "digest 2 990");
}

TEST(RemoteNodes, AnEndIsPassedOnOnceAfterTheLastDigestAndAllUpdates) {
  Others others;
  others.take(1, {full(2, 1, 0), full(3, 1, 0)});
  RankNews ended = same(2, 2, 250);
  ended.code = 1;
  EXPECT_EQ(others.take(1, {ended, full(3, 2, 250)}), "digest 3 250");
  ended = full(2, 2, 250);
  ended.digest->is_last = true;
  ended.code = 1;
  RankNews waiting = same(3, 2, 500);
  waiting.life = RankLife{{.state = LifeState::blocked}, after(500)};
  EXPECT_EQ(others.take(1, {ended, waiting}),
            "digest 2 250 last | confirmed 3 500 | life 3 | ended 2 1");
  EXPECT_EQ(others.take(1, {ended, waiting}), "");
}

TEST(RemoteNodes, ARankThatRecordsNothingEndsWithoutADigest) {
  Others others;
  RankNews ended = same(2, 0, 0);
  ended.code = 0;
  EXPECT_EQ(others.take(1, {ended}), "ended 2 0");
}

TEST(RemoteNodes, KnowsWhichRanksEndedOnceTheirLastDigestCame) {
  Others others;
  const auto ended = [](RankNews news) {
    news.code = 0;
    return news;
  };
  others.take(1, {ended(full(2, 1, 0)), ended(same(3, 1, 0)), full(4, 1, 0)});
  others.take(2, {ended(full(5, 1, 0))});
  EXPECT_EQ(others.nodes.ended_on(1), std::vector<int>{2});
  others.take(1, {ended(full(3, 1, 0))});
  EXPECT_EQ(others.nodes.ended_on(1), (std::vector<int>{2, 3}));
  EXPECT_EQ(others.nodes.ended_on(3), std::vector<int>());
}

TEST(RemoteNodes, ANodeReportsOnlyItsOwnRanks) {
  Others others;
  others.take(1, {full(2, 1, 0)});
  RankNews ended = full(2, 2, 500);
  ended.code = 9;
  EXPECT_EQ(others.take(2, {full(1, 1, 0), ended, full(3, 1, 0), full(8, 1, 0)}), "digest 3 0");
  EXPECT_EQ(others.nodes.place_of(2)->node_rank, 1);
  EXPECT_EQ(others.nodes.place_of(3)->host, "node-2");
  EXPECT_EQ(others.nodes.place_of(1), nullptr);
  EXPECT_EQ(others.nodes.place_of(4), nullptr);
  EXPECT_EQ(others.nodes.place_of(-1), nullptr);
  EXPECT_EQ(others.nodes.place_of(8), nullptr);
  EXPECT_EQ(others.nodes.by_node({0, 2, 3, 5}),
            (std::map<int, std::vector<int>>{{1, {2}}, {2, {3}}}));
}

TEST(RemoteNodes, TheJobIsSuspendedWhileANodeSaysSo) {
  Others others;
  NodeDigest suspended{.host = "", .is_suspended = true, .ranks = {}};
  const NodeDigest running;
  EXPECT_EQ(others.take_digest(1, suspended), "suspended");
  EXPECT_EQ(others.take_digest(2, suspended), "");
  EXPECT_EQ(others.take_digest(1, running), "");
  EXPECT_EQ(others.take_digest(1, running), "");
  EXPECT_EQ(others.take_digest(2, running), "resumed");
}

TEST(RemoteNodes, AJumpOfANodesClockIsPassedOnOnce) {
  Others others;
  EXPECT_EQ(others.take_digest(1, {.host = "", .jumps = 2, .ranks = {full(2, 1, 0)}}),
            "jumped | digest 2 0");
  EXPECT_EQ(others.take_digest(1, {.host = "", .jumps = 2, .ranks = {}}), "");
  EXPECT_EQ(others.take_digest(1, {.host = "", .jumps = 1, .ranks = {}}), "");
  EXPECT_EQ(others.take_digest(2, {.host = "", .jumps = 1, .ranks = {}}), "jumped");
}

TEST(RemoteNodes, KnowsWhatEachNodeHasHeard) {
  Others others;
  others.take_digest(1, {.host = "", .heard = 4, .ranks = {}});
  others.take_digest(1, {.host = "", .heard = 3, .ranks = {}});
  EXPECT_EQ(others.nodes.heard_by(1), 4U);
  EXPECT_EQ(others.nodes.heard_by(2), 0U);
}

}  // namespace
}  // namespace muster::hang
