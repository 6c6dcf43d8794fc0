// Waits for keys of the job's store: which ranks wait and which are to set the key, and when that
// is reported.
#include "agent/hang/key_waits.h"

#include <gtest/gtest.h>

#include "tests/unit/agent/hang/detector_harness.h"

namespace muster::hang {
namespace {

using std::chrono::seconds;

constexpr int kPort = 29400;

// The client's process id is its rank; 99: not a rank.
int rank_of(const KeyClient& client) {
  return client.pid == 99 ? -1 : client.pid;
}

// The wait of ranks for "/go/<number>"; `creators` of its siblings 0, 1, ...
AwaitedKeys wait_for(int number, const std::vector<int>& waiting,
                     const std::vector<int>& creators) {
  AwaitedKeys wait;
  AwaitedKey key{.name = fmt::format("/go/{}", number)};
  for (size_t i = 0; i < creators.size(); ++i)
    key.siblings.push_back({4, number, static_cast<int>(i), {.pid = creators[i]}});
  wait.keys.push_back(key);
  for (const int rank : waiting)
    wait.waiting.push_back({.pid = rank});
  return wait;
}

std::vector<int> late_in(const AwaitedKeys& wait, int world_size) {
  return key_wait_of(wait, rank_of, world_size).late;
}

TEST(KeyWait, SiblingsShowWhichRankIsToSetAKey) {
  using Ranks = std::vector<int>;
  EXPECT_EQ(late_in(wait_for(2, {0, 1}, {0, 1}), 4), Ranks{2});
  EXPECT_EQ(late_in(wait_for(1, {0}, {0}), 2), Ranks{1});
  // It may as well be the number of a step.
  EXPECT_EQ(late_in(wait_for(1, {0}, {0}), 4), Ranks{});
  EXPECT_EQ(late_in(wait_for(2, {1}, {0, 0}), 4), Ranks{});
  EXPECT_EQ(late_in(wait_for(2, {0, 2}, {0, 1}), 4), Ranks{});
  EXPECT_EQ(late_in(wait_for(4, {0}, {0, 1}), 4), Ranks{});
  // A client that is no rank shows nothing.
  EXPECT_EQ(late_in(wait_for(3, {0}, {0, 1, 99}), 4), Ranks{3});
  EXPECT_EQ(late_in(wait_for(3, {0}, {0, 99, 99}), 4), Ranks{});
}

TEST(KeyWait, AllMissingKeysCount) {
  AwaitedKeys wait = wait_for(2, {0, 99}, {0, 1});
  wait.keys.push_back(wait_for(3, {}, {0, 1}).keys.front());
  wait.more = 5;
  const KeyWait known = key_wait_of(wait, rank_of, 4);
  EXPECT_EQ(known.key, "go/2");
  EXPECT_EQ(known.more, 6u);
  EXPECT_EQ(known.waiting, std::vector<int>{0});
  EXPECT_EQ(known.late, (std::vector<int>{2, 3}));
}

class WaitingJob : public testing::Test {
 protected:
  // Ranks 0 and 1 wait at the store for a key, rank 2 for its user.
  WaitingJob() {
    for (const int rank : {0, 1}) {
      job.life(rank, LifeState::asking);
      job.at(rank).waits_at = "socket:10.0.0.1:29400";
    }
    job.life(2, LifeState::prompting);
  }

  // The store tells every second.
  void pass(int seconds_passed, const KeyWait& wait) {
    for (int i = 0; i < seconds_passed; ++i) {
      job.step(KeysAwaited{kPort, {wait}});
      job.pass(seconds(1));
    }
  }

  std::string said() {
    std::string text;
    if (const auto* const notice = job.last<Notice>())
      text = notice_text(notice->finding, [](int) { return RankPlace(); });
    job.effects.clear();
    return text;
  }

  FakeJob job{3};
  KeyWait wait{.key = "go/2", .waiting = {0, 1}, .late = {2}};
};

TEST_F(WaitingJob, IsToldOnceAfterTenSeconds) {
  pass(9, wait);
  EXPECT_EQ(said(), "");
  pass(4, wait);
  EXPECT_EQ(said(),
            "ranks 0-1 have waited 10.0 s for the key 'go/2' in the job's store, which rank 2 "
            "has not set; rank 2 is waiting for its user in ");
  pass(60, wait);
  EXPECT_EQ(job.said(), "");
  job.step(KeysAwaited{kPort, {{.key = "go/2", .exists = true}}});
  EXPECT_EQ(job.said(), "came 2");
}

TEST_F(WaitingJob, NamesTheOthersWhereNothingShowsWhoIsToSetTheKey) {
  wait.late.clear();
  pass(12, wait);
  const auto* const notice = job.last<Notice>();
  ASSERT_NE(notice, nullptr);
  EXPECT_EQ(named(notice->finding), std::vector<int>{2});
  EXPECT_EQ(notice->finding.confidence, Confidence::low);
  EXPECT_EQ(said(),
            "ranks 0-1 have waited 10.0 s for the key 'go/2' in the job's store, which no rank "
            "has set; rank 2 is waiting for its user in ");
  job.step(KeysAwaited{kPort, {{.key = "go/2"}}});
  EXPECT_EQ(job.said(), "gave up ");
}

TEST_F(WaitingJob, AShortOrRepeatedWaitIsNotTold) {
  for (int i = 0; i < 5; ++i) {
    pass(8, wait);
    job.step(KeysAwaited{kPort, {{.key = "go/2", .exists = true}}});
  }
  EXPECT_EQ(job.said(), "");
}

// Libraries keep threads that wait for keys as long as the job runs.
TEST_F(WaitingJob, AThreadThatWaitsBesideTheMainOneIsNotTold) {
  job.life(0, LifeState::running);
  job.at(1).waits_at = "pipe:";
  pass(30, wait);
  EXPECT_EQ(job.said(), "");
}

TEST_F(WaitingJob, AWaitInARecordedCallIsToldAsThat) {
  job.open("world", {0, 1, 2});
  job.all({0, 1, 2}, "world", sum_of(8));
  job.pass(seconds(1));
  for (const int rank : {0, 1}) {
    job.call(rank, "world", sum_of(8));
    job.life(rank, LifeState::asking);
  }
  pass(15, wait);
  EXPECT_EQ(job.said(), fmt::format("notice busy 2 <- 0-1 {} time high", kSum));
}

TEST_F(WaitingJob, IsNotJudged) {
  job.life(2, LifeState::blocked);
  pass(2000, wait);
  EXPECT_EQ(job.said(),
            "notice never_entered 2 <- 0-1 the key 'go/2' in the job's store #0  time high");
}

}  // namespace
}  // namespace muster::hang
