// Which ranks the detector names if ranks wait for each other over groups and messages.
#include <gtest/gtest.h>

#include "agent/hang/detector.h"
#include "tests/unit/agent/hang/detector_harness.h"

namespace muster::hang {
namespace {

using std::chrono::seconds;

// ---- the root

TEST(DetectorGraph, TheRootOfAChainIsNamedAndItsVictimsCounted) {
  FakeJob job(4);
  job.open("tp", {2, 3});
  job.open("pp", {0, 2});
  job.open("dp", {1, 3});
  job.pass(seconds(1));
  job.life(0, LifeState::blocked);
  job.call(2, "pp", sum_of(4));
  job.call(3, "tp", sum_of(8));
  job.call(1, "dp", sum_of(8));
  job.pass(seconds(16));
  EXPECT_EQ(job.said(),
            notice_and_verdict("never_entered 0 <- 1-3", "all_reduce (sum) of 4 float32 #1 pp"));
}

// While it waited it could not come, so its own time has just begun.
TEST(DetectorGraph, AVictimIsNotBlamedForTheTimeInWhichItWaited) {
  FakeJob job(3, {.busy_timeout = seconds(60)});
  job.open("tp", {1, 2});
  job.open("pp", {0, 1});
  job.life(0, LifeState::running);
  job.call(1, "pp", sum_of(4));
  job.call(2, "tp", sum_of(8));
  job.pass(seconds(55));
  EXPECT_EQ(job.said(), "notice busy 0 <- 1-2 all_reduce (sum) of 4 float32 #1 pp time high");
  job.call(0, "pp", sum_of(4));
  job.complete(0, "pp");
  job.complete(1, "pp");
  job.pass(seconds(8));
  EXPECT_EQ(job.said(), "came 0");
  job.pass(seconds(40));
  EXPECT_EQ(job.said(), "notice busy 1 <- 2 all_reduce (sum) of 8 float32 #1 tp time high");
  job.pass(seconds(15));
  EXPECT_EQ(job.said(), "verdict busy 1 <- 2 all_reduce (sum) of 8 float32 #1 tp time high");
}

// The library reports the failure.
TEST(DetectorGraph, ARankThatWaitsInAFailedGroupIsNotBlamed) {
  FakeJob job(3);
  job.open("a", {0, 1});
  job.open("b", {1, 2});
  job.call(1, "a", kBarrier);
  job.at(0).group("a").phase = GroupPhase::failed;
  job.call(2, "b", kBarrier);
  job.pass(seconds(700));
  EXPECT_EQ(job.said(), "");
}

TEST(DetectorGraph, IndependentHangsAreReportedSeparately) {
  FakeJob job(6);
  job.open("a", {0, 1, 2});
  job.open("b", {3, 4, 5});
  job.life(1, LifeState::blocked);
  job.life(5, LifeState::stopped);
  job.call(0, "a", sum_of(8));
  job.call(2, "a", sum_of(8));
  job.call(3, "b", kBarrier);
  job.call(4, "b", kBarrier);
  job.pass(seconds(16));
  std::vector<uint64_t> numbers;
  for (const Effect& effect : job.effects) {
    if (const auto* const verdict = std::get_if<Verdict>(&effect))
      numbers.push_back(verdict->finding.number);
  }
  EXPECT_EQ(numbers, (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(job.said(),
            "notice never_entered 1 <- 0,2 all_reduce (sum) of 8 float32 #1 a time high"
            " | notice stopped 5 <- 3-4 barrier #1 b time high"
            " | verdict never_entered 1 <- 0,2 all_reduce (sum) of 8 float32 #1 a time "
            "high | verdict stopped 5 <- 3-4 barrier #1 b time high");
}

// ---- the forming of groups, and messages

TEST(DetectorGraph, AMemberThatDoesNotOpenAGroupIsLate) {
  FakeJob job = running_job(3);
  for (const int rank : {0, 2})
    job.open_on(rank, "tp", {0, 1, 2}, GroupPhase::forming);
  job.life(1, LifeState::blocked);
  job.pass(seconds(15));
  EXPECT_EQ(job.said(), notice_and_verdict("never_entered 1 <- 0,2", "forming the group #0 tp"));
}

// Connecting all members may take longer than the limit for busy ranks.
TEST(DetectorGraph, AnUnformedGroupThatAllMembersOpenedIsIncomplete) {
  FakeJob job(2, {.busy_timeout = seconds(3)});
  job.open("tp", {0, 1}, GroupPhase::forming);
  job.pass(seconds(59));
  EXPECT_EQ(job.last<Verdict>(), nullptr);
  job.pass(seconds(3));
  EXPECT_EQ(job.said(), notice_and_verdict("incomplete  <- 0-1", "forming the group #0 tp"));
}

TEST(DetectorGraph, AMemberThatIsStoppedWhileItFormsAGroupIsLate) {
  FakeJob job(3, {.busy_timeout = seconds(3)});
  job.open("tp", {0, 1, 2}, GroupPhase::forming);
  job.life(1, LifeState::stopped);
  EXPECT_LT(job.until_said(seconds(30)), seconds(15));
  EXPECT_EQ(job.said(), "notice stopped 1 <- 0,2 forming the group #0 tp time high");
  job.pass(seconds(5));
  EXPECT_EQ(job.said(), "verdict stopped 1 <- 0,2 forming the group #0 tp time high");
  for (const int rank : {0, 1, 2}) {
    job.life(rank, LifeState::running);
    job.at(rank).group("tp").phase = GroupPhase::ready;
  }
  job.pass(seconds(1));
  EXPECT_EQ(job.said(), "withdrawn 1, limit 24.0 s");
}

TEST(DetectorGraph, AReceiverWaitsForItsSender) {
  FakeJob job = running_job(3);
  job.message(0, "world", 2, true, false);
  job.life(2, LifeState::blocked);
  job.pass(seconds(15));
  EXPECT_EQ(job.said(), notice_and_verdict("never_entered 2 <- 0", "recv from rank 2 #0 world"));
}

TEST(DetectorGraph, ASenderWaitsForItsReceiver) {
  FakeJob job = running_job(2);
  job.message(0, "world", 1, false, true);
  job.message(1, "world", 0, true, true);
  job.message(0, "world", 1, false, false);
  job.life(1, LifeState::stopped);
  job.pass(seconds(15));
  EXPECT_EQ(job.said(), notice_and_verdict("stopped 1 <- 0", "send to rank 1 #0 world"));
}

TEST(DetectorGraph, AReceiveFromARankThatExitedWithoutSendingIsProven) {
  FakeJob job = running_job(2);
  job.message(0, "world", 1, true, false);
  job.end(1, 0);
  job.pass(seconds(2));
  EXPECT_EQ(job.said(), "verdict exited 1 <- 0 recv from rank 1 #0 world proof high");
}

TEST(DetectorGraph, AReceiveFromAnyRankAccusesNone) {
  FakeJob job = running_job(3);
  job.message(0, "world", -1, true, false);
  job.life(0, LifeState::blocked);
  job.life(1, LifeState::blocked);
  job.life(2, LifeState::stopped);
  job.pass(seconds(700));
  EXPECT_EQ(job.said(), "");
}

TEST(DetectorGraph, AReceiveFromAnyRankWaitsForTheLastRankThatCanSend) {
  FakeJob job = running_job(3);
  job.message(0, "world", -1, true, false);
  job.life(0, LifeState::blocked);
  job.life(1, LifeState::blocked);
  job.end(2, 0);
  job.pass(seconds(16));
  EXPECT_EQ(job.said(), notice_and_verdict("never_entered 1 <- 0", "recv from any rank #0 world"));
}

TEST(DetectorGraph, AReceiveFromAnyRankIsHopelessWhenAllOthersHaveEnded) {
  FakeJob job = running_job(3);
  job.message(0, "world", -1, true, false);
  job.end(1, 0);
  job.end(2, 0);
  job.pass(seconds(2));
  EXPECT_EQ(job.said(), "verdict exited 1,2 <- 0 recv from any rank #0 world proof high");
}

// ---- circles

TEST(DetectorGraph, CallsOfTwoGroupsInOppositeOrderAreACircle) {
  FakeJob job = running_job(4);
  job.open("other", {0, 1, 2, 3});
  job.pass(seconds(1));
  call_without(job, {2});
  job.call(2, "other", kBarrier);
  const Duration took = job.until_said(seconds(20));
  EXPECT_LT(took, seconds(4));
  const Finding finding = job.verdict();
  EXPECT_EQ(call_text(*finding.ranks[0].call), "all_reduce #2 of group 'world'");
  EXPECT_EQ(call_text(*finding.ranks[1].call), "barrier #1 of group 'other'");
  EXPECT_EQ(job.said(), fmt::format("verdict circle 0,2 <- 1,3 {} proof high", kSum));
}

// A receive from any rank belongs to a circle if all others wait for it.
TEST(DetectorGraph, ReceivesThatWaitForEachOtherAreACircle) {
  struct Row {
    std::vector<int> peers;
    LifeState life;
    const char* circle;
  };
  for (const Row& row : {Row{{1, 2, 0}, LifeState::sleeping, "0,1,2 <-  recv from rank 1"},
                         Row{{-1, 0, 1}, LifeState::blocked, "0,1 <- 2 recv from any rank"}}) {
    FakeJob job = running_job(3);
    for (int rank = 0; rank < 3; ++rank) {
      job.message(rank, "world", row.peers[static_cast<size_t>(rank)], true, false);
      job.life(rank, row.life);
    }
    EXPECT_LT(job.until_said(seconds(20)), seconds(4));
    EXPECT_EQ(job.said(), fmt::format("verdict circle {} #0 world proof high", row.circle));
  }
}

// Another of its threads may yet make the call.
TEST(DetectorGraph, ACircleThroughARunningRankIsNoProof) {
  FakeJob job = running_job(2);
  job.open("other", {0, 1});
  job.call(0, "world", sum_of(8));
  job.call(1, "other", kBarrier);
  job.life(1, LifeState::running);
  job.pass(seconds(60));
  EXPECT_EQ(job.said(), fmt::format("notice circle 0,1 <-  {} time medium", kSum));
}

// The root of a broadcast may go on alone.
TEST(DetectorGraph, ACircleThroughACallThatMayEndIsJudgedByTime) {
  FakeJob job = running_job(2);
  job.open("other", {0, 1});
  job.call(0, "world", call_of(ring::CallKind::broadcast, 0));
  job.call(1, "other", kBarrier);
  job.pass(seconds(9));
  EXPECT_EQ(job.said(), "");
  job.pass(seconds(5));
  EXPECT_EQ(job.said(), notice_and_verdict(
                            "circle 0,1 <- ",
                            "broadcast of 8 float32 from rank 0 of the group #2 world", "medium"));
}

}  // namespace
}  // namespace muster::hang
