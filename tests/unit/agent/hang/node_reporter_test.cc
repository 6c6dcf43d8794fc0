// When a node reports, and what.
#include "agent/hang/node_reporter.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/unit/agent/hang/detector_harness.h"

namespace muster::hang {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A node with ranks 8 and 9 of 16, whose rings are read four times a second.
class ReportingNode {
 public:
  explicit ReportingNode(int workers = 2) : reporter_("node-7", 8, workers) {
    for (int rank = 8; rank < 8 + workers; ++rank) {
      FakeRank& one = ranks.emplace_back(rank);
      one.digest.groups.push_back({.id = "world",
                                   .name = "world",
                                   .ranks = all_of(16),
                                   .size = 16,
                                   .own_rank = rank,
                                   .phase = GroupPhase::ready,
                                   .since = now,
                                   .calls = {},
                                   .hashes = {}});
      reporter_.started(rank, 100 + rank, "GPU 1");
    }
  }

  GroupDigest& world(int rank) { return ranks[static_cast<size_t>(rank - 8)].group("world"); }
  void call(int rank, bool completes) {
    GroupDigest& group = world(rank);
    if (completes) group.completed = group.called + 1;
    group.calls.push_back({++group.called, sum_of(8), now, "train.py:1"});
    if (group.calls.size() > 64) group.calls.erase(group.calls.begin());
    if (group.called % 16 != 0) return;
    group.hashes.push_back({group.called, 1000 + group.called});
    if (group.hashes.size() > 8) group.hashes.erase(group.hashes.begin());
  }
  std::string look() {
    now += NodeReporter::kLookEvery;
    for (FakeRank& rank : ranks) {
      if (rank.code) continue;
      rank.digest.at = now;
      reporter_.note(now, Digested{rank.digest});
    }
    return said(reporter_.message(now));
  }
  // Looks until it reports only once a second, and has just done so.
  void settle() { looks(13); }
  // Makes `count` looks and returns what each makes it report, separated by spaces.
  std::string looks(int count) {
    std::string text;
    for (int i = 0; i < count; ++i)
      text += (i == 0 ? "" : " ") + look();
    return text;
  }
  void end(int rank, int code) {
    FakeRank& one = ranks[static_cast<size_t>(rank - 8)];
    one.digest.at = now;
    one.digest.is_last = true;
    one.code = code;
    reporter_.note(now, Digested{one.digest});
    reporter_.note(now, Ended{rank, code});
  }

  // "-": no message; else "full", "same" or "none" for each rank.
  std::string said(const std::optional<std::string>& bytes) {
    if (!bytes) return "-";
    EXPECT_LE(bytes->size(), NodeReporter::kLetterBytesMax);
    last = decode_node_digest(*bytes, now).value();
    std::string text;
    for (const RankNews& news : last.ranks) {
      if (!text.empty()) text += ',';
      text += news.digest ? "full" : news.version == 0 ? "none" : "same";
      if (news.code) text += fmt::format("({})", *news.code);
    }
    return text;
  }

  Instant now{seconds(1000)};
  std::vector<FakeRank> ranks;
  NodeDigest last;
  NodeReporter reporter_;
};

TEST(NodeReporter, ReportsOnceASecondWhileNoRankWaits) {
  ReportingNode node;
  EXPECT_EQ(node.looks(10), "full,full - - - full,full - - - full,full -");
  EXPECT_EQ(node.last.host, "node-7");
  EXPECT_EQ(node.last.ranks[1].pid, 109);
  EXPECT_EQ(node.last.ranks[1].device, "GPU 1");
}

TEST(NodeReporter, ReportsAtEachLookWhileACallIsPending) {
  ReportingNode node;
  node.settle();
  node.call(8, false);
  EXPECT_EQ(node.looks(4), "full,same full,same full,same full,full");
  EXPECT_EQ(node.looks(4), "same,same same,same same,same full,full");
  node.world(8).completed = 1;
  EXPECT_EQ(node.looks(4), "- - - full,full");
}

// Each look converts a ring's times anew, between two clocks.
TEST(NodeReporter, ShiftedTimesOfTheSameCallsAreNoChange) {
  ReportingNode node;
  node.call(8, false);
  node.settle();
  node.world(8).since += std::chrono::microseconds(3);
  node.world(8).calls.back().called -= std::chrono::microseconds(2);
  EXPECT_EQ(node.looks(2), "same,same same,same");
}

TEST(NodeReporter, FormingGroupsAndPendingMessagesAreWaitsToo) {
  ReportingNode node;
  node.settle();
  node.world(8).phase = GroupPhase::forming;
  node.world(8).since = node.now;
  EXPECT_EQ(node.looks(2), "full,same full,same");
  node.world(8).phase = GroupPhase::ready;
  EXPECT_EQ(node.looks(4), "- - - full,full");
  node.ranks[1].digest.messages.push_back({.group = "world",
                                           .peer = 3,
                                           .is_recv = true,
                                           .called = 1,
                                           .called_at = node.now,
                                           .site = ""});
  EXPECT_EQ(node.looks(2), "full,full full,full");
}

TEST(NodeReporter, RanksThatTheDetectorWantsAreReportedUntilTheRequestExpires) {
  ReportingNode node;
  node.settle();
  node.reporter_.want(node.now, {3, 9});
  EXPECT_EQ(node.reporter_.wanted(node.now), std::vector{9});
  node.reporter_.note(node.now, LifeSeen{9, {.state = LifeState::blocked}});
  node.reporter_.note(node.now, LifeSeen{8, {.state = LifeState::blocked}});
  EXPECT_EQ(node.looks(2), "same,same same,same");
  EXPECT_FALSE(node.last.ranks[0].life);
  ASSERT_TRUE(node.last.ranks[1].life);
  EXPECT_EQ(node.last.ranks[1].life->life.state, LifeState::blocked);
  EXPECT_EQ(node.last.ranks[1].life->at, node.now - milliseconds(500));
  node.looks(18);
  EXPECT_TRUE(node.reporter_.wanted(node.now).empty());
  EXPECT_EQ(node.looks(5), "- - full,full - -");
}

TEST(NodeReporter, AnEndIsReportedAtOnceAndRepeated) {
  ReportingNode node;
  node.settle();
  node.call(8, false);
  node.end(8, 3);
  EXPECT_EQ(node.said(node.reporter_.message(node.now)), "full(3),same");
  EXPECT_TRUE(node.last.ranks[0].digest->is_last);
  EXPECT_EQ(node.looks(4), "- - - full(3),full");
  node.settle();
  EXPECT_EQ(node.looks(4), "- - full(3),full -");
  EXPECT_TRUE(node.last.ranks[0].digest->is_last);
}

TEST(NodeReporter, ASuspensionOrAClockJumpIsReportedAtOnce) {
  ReportingNode node;
  node.settle();
  node.reporter_.note(node.now, Suspended{});
  EXPECT_EQ(node.looks(2), "same,same -");
  EXPECT_TRUE(node.last.is_suspended);
  node.reporter_.note(node.now, Resumed{});
  node.reporter_.note(node.now, Jumped{});
  EXPECT_EQ(node.looks(2), "same,same -");
  EXPECT_FALSE(node.last.is_suspended);
  EXPECT_EQ(node.last.jumps, 1U);
}

TEST(NodeReporter, ARequestedReportIsSentAtOnce) {
  ReportingNode node;
  node.settle();
  node.reporter_.heard(7);
  EXPECT_EQ(node.said(node.reporter_.message(node.now, true)), "same,same");
  EXPECT_EQ(node.last.heard, 7U);
}

TEST(NodeReporter, IgnoresRanksOfOtherNodes) {
  ReportingNode node;
  node.settle();
  RankDigest other;
  other.rank = 7;
  node.reporter_.note(node.now, Digested{other});
  node.reporter_.note(node.now, Ended{10, 1});
  EXPECT_EQ(node.looks(4), "- - - full,full");
  EXPECT_EQ(node.last.ranks.size(), 2U);
}

TEST(NodeReporter, ARepetitionHoldsTheLastCallsAndThoseInFlight) {
  ReportingNode node;
  const auto told = [&node] {
    const std::optional<RankDigest>& digest = node.last.ranks[0].digest;
    return digest ? static_cast<int>(digest->groups[0].calls.size()) : -1;
  };
  for (int i = 0; i < 60; ++i)
    node.call(8, i < 30);
  node.look();
  EXPECT_EQ(told(), 60);
  EXPECT_EQ(node.looks(7), "full,full full,full full,full same,same same,same same,same full,full");
  EXPECT_EQ(told(), 30);
  node.world(8).completed = 60;
  node.looks(4);
  EXPECT_EQ(told(), 60);
  node.looks(16);
  EXPECT_EQ(told(), 16);
}

std::vector<uint64_t> ordinals(const RankNews& news) {
  std::vector<uint64_t> found;
  for (const HashDigest& hash : news.digest->groups[0].hashes)
    found.push_back(hash.ordinal);
  return found;
}

// 32 hashes a second, of which a ring shows eight.
TEST(NodeReporter, HashesOfAllLooksAreThinnedByPowersOfTwo) {
  ReportingNode node;
  node.look();
  for (int look = 0; look < 4; ++look) {
    for (int i = 0; i < 128; ++i)
      node.call(8, true);
    node.look();
  }
  EXPECT_EQ(ordinals(node.last.ranks[0]), (std::vector<uint64_t>{256, 384, 448, 480, 496, 512}));
  EXPECT_EQ(node.last.ranks[0].digest->groups[0].hashes.back().hash, 1512U);
  // They are repeated until there are newer ones.
  node.looks(4);
  EXPECT_EQ(ordinals(node.last.ranks[0]).front(), 256U);
  for (int i = 0; i < 16; ++i)
    node.call(8, true);
  node.looks(4);
  EXPECT_EQ(ordinals(node.last.ranks[0]), (std::vector<uint64_t>{256, 384, 448, 480, 512, 528}));
  for (int i = 0; i < 16; ++i)
    node.call(8, true);
  node.looks(4);
  EXPECT_EQ(ordinals(node.last.ranks[0]), (std::vector<uint64_t>{512, 528, 544}));
}

TEST(NodeReporter, AwaitsTheJudgementOfAllRecordingRanksOnceAllHaveEnded) {
  ReportingNode node(3);
  node.look();
  node.end(8, 0);
  node.end(9, 0);
  EXPECT_FALSE(node.reporter_.judged({8}));
  EXPECT_FALSE(node.reporter_.awaits_judgement()) << "rank 10 still runs";
  node.reporter_.note(node.now, Ended{10, 0});
  EXPECT_TRUE(node.reporter_.awaits_judgement());
  EXPECT_FALSE(node.reporter_.judged({8})) << "rank 8 was judged before";
  EXPECT_FALSE(node.reporter_.judged({7, 11}));
  EXPECT_TRUE(node.reporter_.judged({8, 9})) << "a rank is missing";
  EXPECT_FALSE(node.reporter_.judged({8, 9, 10}));
  EXPECT_FALSE(node.reporter_.awaits_judgement());
}

TEST(NodeReporter, RanksThatRecordNothingAwaitNoJudgement) {
  NodeReporter reporter("node-7", 8, 2);
  reporter.note(Instant(), Ended{8, 0});
  reporter.note(Instant(), Ended{9, 0});
  EXPECT_FALSE(reporter.awaits_judgement());
}

// Ranks in different states, with unrelated sites.
TEST(NodeReporter, RanksThatDoNotFitAreSentWithTheNextMessages) {
  ReportingNode node(8);
  for (int rank = 8; rank < 16; ++rank) {
    for (int i = 0; i < 64; ++i) {
      node.call(rank, true);
      node.world(rank).calls.back().site = fmt::format("rank {} {:60}", rank, i);
    }
  }
  std::set<int> said;
  for (int i = 0; i < 3; ++i) {
    node.look();
    EXPECT_LT(node.last.ranks.size(), 8U);
    for (const RankNews& news : node.last.ranks) {
      if (news.digest) said.insert(news.rank);
    }
  }
  EXPECT_EQ(said.size(), 8U);
}

TEST(NodeReporter, ARankTooLargeForAMessageIsSentWithFewerCallsAndMembers) {
  ReportingNode node(1);
  GroupDigest& world = node.world(8);
  for (int i = 0; i < 7000; ++i)
    world.ranks.push_back(i * i);
  for (int i = 0; i < 64; ++i) {
    node.call(8, i < 63);
    world.calls.back().site = std::string(250, static_cast<char>('a' + i));
  }
  for (int i = 0; i < 60; ++i) {
    GroupDigest other = node.world(8);
    other.id = std::string(120, static_cast<char>('A' + i));
    other.phase = i % 2 == 0 ? GroupPhase::closed : GroupPhase::ready;
    node.ranks[0].digest.groups.push_back(other);
  }
  EXPECT_EQ(node.look(), "full");
  const std::vector<GroupDigest>& said = node.last.ranks[0].digest->groups;
  EXPECT_EQ(said.size(), 61U);
  EXPECT_TRUE(said[0].ranks.empty());
  ASSERT_EQ(said[0].calls.size(), 1U);
  EXPECT_EQ(said[0].calls[0].ordinal, 64U);
}

// A group left out would look as if the rank had not opened it.
TEST(NodeReporter, ARankThatCannotFitIsSentWithoutADigest) {
  ReportingNode node(2);
  for (int i = 0; i < 120; ++i) {
    GroupDigest other = node.world(8);
    other.id = fmt::format("{:120}", i);
    other.name = fmt::format("{:121}", i);
    node.ranks[0].digest.groups.push_back(other);
  }
  EXPECT_EQ(node.looks(7), "none full none full none full none");
}

}  // namespace
}  // namespace muster::hang
