#include "agent/hang/job_watch.h"

#include <algorithm>
#include <chrono>
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/hang/node_reporter.h"
#include "agent/hang/watch_wire.h"
#include "agent/letter.h"
#include "detector_harness.h"
#include "rendezvous/base/steady_now.h"
#include "tests/wait_for.h"

namespace muster::hang {
namespace {

using std::chrono::milliseconds;

// Node 0 has rank 0, node 1 has rank 1, of one group.
class JobWatchTest : public testing::Test {
 protected:
  JobWatchTest()
      : watch_(io_, Limits(),
               {[this](const Effect& effect) { found_.push_back(to_text(effect)); },
                [this](const std::vector<int>& ranks) { looked_at_ = ranks; },
                [this] {
                  if (ring_) watch_.see(Digested{*ring_});
                },
                [this](int node, std::string payload) {
                  on_send_();
                  sent_.emplace_back(node, payload);
                },
                [this] { ++settled_; },
                [this](const Stragglers& stragglers) { held_up_.push_back(stragglers); }}),
        other_("node-b", 1, 1) {
    watch_.begin({.nodes = 2, .workers = 1, .world_size = 2, .host = "node-a"});
    other_.started(1, 4711, "GPU 1");
  }

  static RankDigest calling(int rank, uint64_t count, Duration ago) {
    RankDigest digest;
    digest.rank = rank;
    digest.generation = 1;
    digest.source = 1;
    digest.at = steady_now();
    GroupDigest& group = digest.groups.emplace_back();
    group.id = group.name = "world";
    group.ranks = {0, 1};
    group.size = 2;
    group.own_rank = rank;
    group.since = steady_now() - std::chrono::seconds(60);
    group.called = count == 0 ? 0 : 1;
    if (count > 0)
      group.calls.push_back({1, sum_of(count), steady_now() - ago, "train.py:88", false});
    return digest;
  }

  // Lets the other node report now.
  void hear(const RankDigest& digest, bool is_last = false) {
    other_.note(steady_now(), Digested{digest});
    const auto message = other_.message(steady_now(), /*at_once=*/true);
    ASSERT_TRUE(message);
    watch_.hear(1, *message, is_last, steady_now());
  }

  std::vector<std::string> sent_of(Letter kind, int node) const {
    std::vector<std::string> contents;
    for (const auto& [to, payload] : sent_) {
      if (to == node && payload.front() == static_cast<char>(kind))
        contents.push_back(payload.substr(1));
    }
    return contents;
  }

  boost::asio::io_context io_;
  std::vector<std::string> found_;
  std::vector<int> looked_at_;
  std::vector<std::pair<int, std::string>> sent_;
  std::function<void()> on_send_ = [] {};
  int settled_ = 0;
  std::vector<Stragglers> held_up_;
  std::optional<RankDigest> ring_;  // Read now from the local rank.
  JobWatch watch_;
  NodeReporter other_;
};

TEST_F(JobWatchTest, AFailureIsExplainedByACallThatArrivesLater) {
  watch_.see(Digested{calling(0, 8, {})});
  watch_.see(Ended{0, -6});
  EXPECT_TRUE(watch_.is_settling());
  EXPECT_TRUE(found_.empty());
  hear(calling(1, 16, {}));
  EXPECT_TRUE(watch_.is_settling()) << "the node may report more";
  hear(calling(1, 16, {}), /*is_last=*/true);
  EXPECT_FALSE(watch_.is_settling());
  EXPECT_EQ(settled_, 1);
  EXPECT_EQ(found_.size(), 2U);
  EXPECT_TRUE(found_.at(0).starts_with("verdict signature 0,1 tie")) << found_.at(0);
  EXPECT_EQ(found_.at(1), "explained by 1");
}

// The local ranks' rings were last read up to a quarter of a second ago.
TEST_F(JobWatchTest, ARemoteFailureIsExplainedByAnUnreadCallOfALocalRank) {
  hear(calling(1, 16, {}));
  ring_ = calling(0, 8, {});
  other_.note(steady_now(), Ended{1, -6});
  watch_.hear(1, other_.message(steady_now(), true).value(), /*is_last=*/true, steady_now());
  EXPECT_EQ(settled_, 1);
  EXPECT_EQ(found_.back(), "explained by 1");
}

TEST_F(JobWatchTest, ANodeIsAnsweredOnlyAfterItsLastCallsAreCompared) {
  watch_.see(Digested{calling(0, 8, {})});
  watch_.see(Ended{0, 0});
  hear(calling(1, 16, {}));
  EXPECT_EQ(sent_of(Letter::heard, 1), std::vector<std::string>());
  other_.note(steady_now(), Ended{1, 0});
  size_t found_by_then = 0;
  on_send_ = [&] { found_by_then = found_.size(); };
  hear(calling(1, 16, {}), /*is_last=*/true);
  EXPECT_EQ(found_by_then, 1U);
  EXPECT_TRUE(found_.at(0).starts_with("verdict signature 0,1 tie")) << found_.at(0);
  EXPECT_EQ(sent_of(Letter::heard, 1), std::vector<std::string>{encode_ranks({1})});
  // The answer was lost.
  hear(calling(1, 16, {}), /*is_last=*/true);
  EXPECT_EQ(sent_of(Letter::heard, 1).size(), 2U);
}

TEST_F(JobWatchTest, ASilentNodeDelaysTheVerdictOnlyBriefly) {
  watch_.see(Digested{calling(0, 8, {})});
  watch_.see(Ended{0, 1});
  watch_.end();
  EXPECT_TRUE(watch_.is_settling());
  io_.run();
  EXPECT_FALSE(watch_.is_settling());
  EXPECT_EQ(settled_, 1);
  EXPECT_TRUE(found_.empty());
}

TEST_F(JobWatchTest, ASingleNodeDoesNotWait) {
  watch_.begin({.nodes = 1, .workers = 2, .world_size = 2, .host = "node-a"});
  watch_.see(Digested{calling(0, 8, {})});
  watch_.see(Digested{calling(1, 16, {})});
  watch_.see(Ended{0, -6});
  EXPECT_FALSE(watch_.is_settling());
  EXPECT_EQ(found_.back(), "explained by 1");
}

TEST_F(JobWatchTest, TheNextAttemptEndsTheWaitForAnExplanation) {
  watch_.see(Ended{0, 1});
  watch_.begin({.nodes = 2, .workers = 1, .world_size = 2, .host = "node-a"});
  EXPECT_FALSE(watch_.is_settling());
  EXPECT_EQ(settled_, 1);
}

// Rank 0 waits for rank 1, which is on the other node.
TEST_F(JobWatchTest, TheOtherNodeLearnsWhichRanksToSampleUntilNoRankWaits) {
  watch_.see(Digested{calling(0, 8, std::chrono::seconds(5))});
  hear(calling(1, 0, {}));
  test::pause_for(milliseconds(260), "evaluations are 250 ms apart");
  watch_.see(Digested{calling(0, 8, std::chrono::seconds(5))});
  hear(calling(1, 0, {}));
  EXPECT_EQ(looked_at_, (std::vector<int>{0, 1}));
  ASSERT_FALSE(sent_of(Letter::watch, 1).empty());
  EXPECT_EQ(decode_ranks(sent_of(Letter::watch, 1).back(), 0, 9), std::vector<int>{1});
  ASSERT_NE(watch_.place_of(1), nullptr);
  EXPECT_EQ(watch_.place_of(1)->host, "node-b");
  EXPECT_EQ(watch_.place_of(1)->pid, 4711);

  test::pause_for(milliseconds(260), "evaluations are 250 ms apart");
  RankDigest done = calling(0, 8, std::chrono::seconds(5));
  done.groups[0].completed = 1;
  watch_.see(Digested{done});
  hear(calling(1, 8, {}));
  EXPECT_TRUE(looked_at_.empty());
  EXPECT_EQ(sent_of(Letter::watch, 1).back(), "");
}

TEST_F(JobWatchTest, FindingsAreResentToANodeThatHasNotHeardThem) {
  watch_.publish("first");
  EXPECT_EQ(sent_of(Letter::finding, -1).size(), 1U);
  watch_.publish("second");
  other_.heard(1);
  hear(calling(1, 0, {}));
  const std::vector<std::string> again = sent_of(Letter::finding, 1);
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(decode_news(again[0])->news, "second");
  EXPECT_EQ(decode_news(again[0])->number, 2U);
  other_.heard(2);
  hear(calling(1, 0, {}));
  EXPECT_EQ(sent_of(Letter::finding, 1).size(), 1U) << "no finding is left to resend";
}

TEST_F(JobWatchTest, ANodeThatMissedTooMuchGetsTheNewestFindings) {
  for (int i = 1; i <= 100; ++i)
    watch_.publish(std::to_string(i));
  hear(calling(1, 0, {}));
  const std::vector<std::string> again = sent_of(Letter::finding, 1);
  ASSERT_FALSE(again.empty());
  const auto first = decode_news(again.front());
  EXPECT_EQ(first->number, first->oldest);
  EXPECT_EQ(first->news, "37") << "the oldest of the 64 kept";
  other_.heard(99);
  hear(calling(1, 0, {}));
  EXPECT_EQ(decode_news(sent_of(Letter::finding, 1).back())->news, "100");
}

TEST_F(JobWatchTest, IsSuspendedWhileAnyNodeIs) {
  const auto is_judging = [this] {
    found_.clear();
    watch_.see(Digested{calling(0, 8, {})});
    hear(calling(1, 16, {}));
    test::pause_for(milliseconds(450), "a mismatch is settled then");
    watch_.see(Digested{calling(0, 8, {})});
    hear(calling(1, 16, {}));
    return !found_.empty();
  };
  watch_.see(Suspended{});
  other_.note(steady_now(), Suspended{});
  hear(calling(1, 0, {}));
  watch_.see(Resumed{});
  EXPECT_FALSE(is_judging()) << "the other node is still suspended";
  watch_.see(Suspended{});
  other_.note(steady_now(), Resumed{});
  EXPECT_FALSE(is_judging()) << "this node is still suspended";
  watch_.see(Resumed{});
  EXPECT_TRUE(is_judging());
}

TEST_F(JobWatchTest, GarbageIsIgnored) {
  watch_.hear(1, "garbage", true, steady_now());
  watch_.see(Ended{0, 1});
  EXPECT_TRUE(watch_.is_settling()) << "garbage is no last message";
}

TEST_F(JobWatchTest, TheEndReportsTheStragglers) {
  hear(calling(1, 8, milliseconds(0)));
  const Instant began = steady_now() - std::chrono::seconds(100);
  const auto part = [&](uint64_t call, int rank, Duration late) {
    const Instant at = began + call * std::chrono::seconds(1) + late;
    return Arrivals{.group = "world",
                    .name = "world",
                    .ordinal = call + 2,
                    .number = call + 2 + StragglerTable::kStartCalls,
                    .size = 2,
                    .ranks = 1,
                    .mean = at,
                    .last_rank = rank,
                    .last = at};
  };
  for (uint64_t call = 0; call < 100; ++call) {
    watch_.arrived(0, {part(call, 0, milliseconds(0))}, Duration(0));
    watch_.arrived(1, {part(call, 0, milliseconds(900))}, Duration(0));  // Not a rank of node 1.
    watch_.arrived(1, {part(call, 1, milliseconds(300))}, milliseconds(100));
  }
  EXPECT_THAT(held_up_, testing::IsEmpty());
  watch_.end();
  ASSERT_EQ(held_up_.size(), 1U);
  ASSERT_EQ(held_up_[0].ranks.size(), 1U);
  EXPECT_EQ(held_up_[0].ranks[0].rank, 1);
  EXPECT_NEAR(held_up_[0].ranks[0].share, 0.2, 0.01);
}

}  // namespace
}  // namespace muster::hang
