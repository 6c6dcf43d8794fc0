// Calls on a device whose completion is not seen (NCCL's, by its plugin): what they prove, and what
// they do not.
#include <ctime>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "agent/hang/detector.h"
#include "agent/hang/group_table.h"
#include "tests/unit/agent/hang/detector_harness.h"

namespace muster::hang {
namespace {

using std::chrono::seconds;

constexpr auto kNext = "all_reduce of 8 float32 #2 world";

ring::Call on_device(ring::CallKind kind, int root = -1) {
  ring::Call call = call_of(kind, root);
  call.is_synchronous = false;
  return call;
}
ring::Call sum_on_device() {
  return on_device(ring::CallKind::all_reduce);
}

// Processes in a call spin until their GPU is done, so they do not look blocked.
FakeJob device_job(int world) {
  FakeJob job(world);
  job.open("world", all_of(world));
  for (int rank = 0; rank < world; ++rank) {
    job.at(rank).group("world").is_on_device = true;
    job.at(rank).group("world").completion_is_unseen = true;
    job.call(rank, "world", sum_on_device());
  }
  return job;
}

void call_on_others(FakeJob& job, int late, const ring::Call& call) {
  for (FakeRank& rank : job.ranks) {
    if (rank.digest.rank != late) job.call(rank.digest.rank, "world", call);
  }
}

void send_on_device(FakeJob& job, int rank, int peer, bool is_recv) {
  job.message(rank, "world", peer, is_recv, /*completed=*/false, /*is_synchronous=*/false);
  job.at(rank).digest.messages.back().is_on_device = true;
  job.at(rank).digest.messages.back().completion_is_unseen = true;
}

TEST(DetectorUnseen, ARankThatHasNotMadeACallIsNamed) {
  FakeJob job = device_job(3);
  job.life(1, LifeState::blocked);
  call_on_others(job, 1, sum_on_device());
  job.pass(seconds(16));
  EXPECT_EQ(job.said(), notice_and_verdict("never_entered 1 <- 0,2", kNext));
  job.call(1, "world", sum_on_device());
  job.pass(seconds(2));
  EXPECT_EQ(job.said(), "withdrawn 1, limit 24.0 s");
}

TEST(DetectorUnseen, TheFirstCallThatTheLateRankHasNotMadeIsNamed) {
  FakeJob job = device_job(3);
  job.life(1, LifeState::blocked);
  for (int i = 0; i < 5; ++i)
    call_on_others(job, 1, sum_on_device());
  job.pass(seconds(16));
  EXPECT_EQ(job.verdict().operation.ordinal, 2U);
}

TEST(DetectorUnseen, ACallThatAllRanksHaveMadeAccusesNone) {
  FakeJob job = device_job(3);
  for (const int rank : {0, 2})
    job.life(rank, LifeState::blocked);
  job.pass(seconds(700));
  EXPECT_EQ(job.said(), "");
}

TEST(DetectorUnseen, AnEarlyExitIsProven) {
  FakeJob job = device_job(3);
  call_on_others(job, 1, sum_on_device());
  job.end(1, 0);
  job.pass(seconds(3));
  EXPECT_EQ(job.said(), fmt::format("verdict exited 1 <- 0,2 {} proof high", kNext));
}

TEST(DetectorUnseen, NoRankWaitsInACallThatMayEndWithoutTheLateRank) {
  for (const ring::Call& call :
       {on_device(ring::CallKind::broadcast, 0), on_device(ring::CallKind::reduce, 1),
        on_device(ring::CallKind::unknown)}) {
    FakeJob job = device_job(3);
    job.life(1, LifeState::blocked);
    call_on_others(job, 1, call);
    job.pass(seconds(700));
    EXPECT_EQ(job.said(), "") << describe(call);
  }
}

TEST(DetectorUnseen, MembersWaitForASendingRootAndAReceivingRootForAllMembers) {
  const std::pair<ring::Call, std::vector<int>> rows[] = {
      {on_device(ring::CallKind::broadcast, 1), {0, 2}},
      {on_device(ring::CallKind::reduce, 0), {0}}};
  for (const auto& [call, waiting] : rows) {
    FakeJob job = device_job(3);
    job.life(1, LifeState::blocked);
    call_on_others(job, 1, call);
    job.pass(seconds(16));
    EXPECT_EQ(job.verdict().waiting, waiting);
  }
}

// Each may be about to make the other call while its GPU performs the first.
TEST(DetectorUnseen, CallsOfTwoGroupsInDifferentOrdersProveNoCircle) {
  FakeJob job = device_job(2);
  job.open("tp", {0, 1});
  for (FakeRank& rank : job.ranks) {
    rank.group("tp").is_on_device = true;
    rank.group("tp").completion_is_unseen = true;
  }
  job.call(0, "world", sum_on_device());
  job.call(1, "tp", sum_on_device());
  job.pass(seconds(9));
  EXPECT_EQ(job.said(), "");
  job.call(1, "world", sum_on_device());
  job.call(0, "tp", sum_on_device());
  job.pass(seconds(700));
  EXPECT_EQ(job.said(), "");
}

TEST(DetectorUnseen, AReceiveWaitsForItsSendButASendWaitsForNoRank) {
  FakeJob job = device_job(3);
  send_on_device(job, 0, 2, /*is_recv=*/false);
  send_on_device(job, 0, 1, /*is_recv=*/true);
  job.life(1, LifeState::blocked);
  job.pass(seconds(16));
  EXPECT_EQ(job.said(), notice_and_verdict("never_entered 1 <- 0", "recv from rank 1 #0 world"));
  send_on_device(job, 1, 0, /*is_recv=*/false);
  job.pass(seconds(2));
  EXPECT_EQ(job.said(), "withdrawn 1, limit 24.0 s");
}

TEST(DetectorUnseen, AReceiveFromAnUnknownPeerAccusesNoRank) {
  FakeJob job = device_job(2);
  send_on_device(job, 0, 1, /*is_recv=*/true);
  job.at(1).digest.groups.clear();
  job.life(1, LifeState::blocked);
  job.pass(seconds(700));
  EXPECT_EQ(job.said(), "");
}

TEST(DetectorUnseen, AStartedKernelThatDoesNotEndIsNoticed) {
  enum class Other : uint8_t { is_queued, has_started, has_finished };
  const std::pair<Other, const char*> rows[] = {
      {Other::is_queued, " <- 0"}, {Other::has_started, " <- 0-1"}, {Other::has_finished, "0 <- "}};
  for (const auto& [other, ranks] : rows) {
    FakeJob job = device_job(2);
    job.at(0).group("world").completion_is_unseen = false;
    job.at(1).group("world").completion_is_unseen = other == Other::is_queued;
    if (other == Other::has_finished) job.complete(1, "world");
    job.pass(seconds(11));
    EXPECT_EQ(job.said(), fmt::format("notice incomplete {} all_reduce of 8 float32 #1 world "
                                      "time high",
                                      ranks));
  }
}

TEST(DetectorUnseen, AMismatchIsProven) {
  FakeJob job = device_job(3);
  call_on_others(job, 1, sum_on_device());
  ring::Call other = sum_on_device();
  other.count = 9;
  job.call(1, "world", other);
  job.pass(seconds(2));
  EXPECT_EQ(job.said(), fmt::format("verdict signature 1 <- 0,2 {} proof high", kNext));
}

// 8,192 members with 16 calls each: examining all members for each call would take seconds.
TEST(DetectorUnseen, AllMembersOfALargeGroupAreExaminedInOnePass) {
  constexpr int kMembers = 8192;
  std::vector<RankState> ranks(kMembers);
  for (int rank = 0; rank < kMembers; ++rank) {
    GroupDigest group;
    group.id = "world";
    group.own_rank = rank;
    group.called = 16;
    group.is_on_device = true;
    group.completion_is_unseen = true;
    for (uint64_t ordinal = 1; ordinal <= group.called; ++ordinal)
      group.calls.push_back({ordinal, sum_on_device(), {}, {}});
    RankDigest& digest = ranks[static_cast<size_t>(rank)].digest.emplace();
    digest.groups.push_back(std::move(group));
  }
  const std::clock_t began = std::clock();
  settle_unseen(ranks);
  EXPECT_LT(std::clock() - began, 2 * CLOCKS_PER_SEC);
  EXPECT_EQ(ranks[7].digest->groups[0].completed, 16U);
}

TEST(DetectorUnseen, InvalidRingContentIsHarmless) {
  std::vector<RankState> ranks(2);
  ranks[1].digest.emplace();
  ranks[1].digest->messages.push_back({.group = "none", .completion_is_unseen = true, .site = {}});
  GroupDigest group;
  group.id = "world";
  group.called = 3;
  group.completion_is_unseen = true;
  group.calls.push_back({0, sum_on_device(), {}, {}});
  ranks[1].digest->groups.push_back(group);
  ranks[1].digest->messages.push_back(
      {.group = "world", .is_recv = true, .called = 2, .completion_is_unseen = true, .site = {}});
  settle_unseen(ranks);
  EXPECT_EQ(ranks[1].digest->groups[0].completed, 0U);
}

}  // namespace
}  // namespace muster::hang
