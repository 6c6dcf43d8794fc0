// What each fault makes of a job, and when the detector says so.
#include "agent/hang/detector.h"

#include <gtest/gtest.h>

#include "tests/unit/agent/hang/detector_harness.h"

namespace muster::hang {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr auto kSum = "all_reduce (sum) of 8 float32 #2 world";

// ---- late ranks

TEST(Detector, ABlockedRankIsNoticedAndThenJudged) {
  FakeJob job = running_job(4);
  job.life(2, LifeState::blocked);
  call_without(job, {2});
  const Duration notice = job.until_said(seconds(20));
  EXPECT_GE(notice, seconds(10));
  EXPECT_LT(notice, seconds(11));
  EXPECT_EQ(job.said(), fmt::format("notice never_entered 2 <- 0-1,3 {} time high", kSum));
  EXPECT_LT(notice + job.until_said(seconds(20)), seconds(15));
  EXPECT_EQ(job.last<Verdict>()->finding.ranks[0].life, "blocked in read()");
  EXPECT_EQ(job.last<Verdict>()->finding.ranks[0].call, "all_reduce #1 of group 'world'");
  EXPECT_EQ(job.last<Verdict>()->finding.ranks[0].site, "train.py:1");
  EXPECT_EQ(job.last<Verdict>()->finding.site, "train.py:2");
  EXPECT_EQ(job.said(), fmt::format("verdict never_entered 2 <- 0-1,3 {} time high", kSum));
  job.pass(seconds(700));
  EXPECT_EQ(job.said(), "");
}

TEST(Detector, AStoppedRankIsJudgedAfterTheHangTimeout) {
  FakeJob job = running_job(2);
  job.life(1, LifeState::stopped);
  call_without(job, {1});
  job.pass(seconds(15));
  EXPECT_EQ(job.said(), fmt::format("notice stopped 1 <- 0 {} time high | "
                                    "verdict stopped 1 <- 0 {} time high",
                                    kSum, kSum));
}

TEST(Detector, ARunningRankIsJudgedAtTheBusyTimeoutOnly) {
  for (const LifeState life :
       {LifeState::running, LifeState::sleeping, LifeState::uninterruptible, LifeState::unknown}) {
    Limits limits;
    limits.busy_timeout = seconds(40);
    FakeJob job = running_job(4, limits);
    job.life(2, life);
    call_without(job, {2});
    job.pass(seconds(39));
    const char* const sure = life == LifeState::unknown ? "medium" : "high";
    EXPECT_EQ(job.said(), fmt::format("notice busy 2 <- 0-1,3 {} time {}", kSum, sure));
    job.pass(seconds(2));
    EXPECT_EQ(job.said(), fmt::format("verdict busy 2 <- 0-1,3 {} time {}", kSum, sure));
  }
}

// It computed while the others waited; the clock of "blocked" begins when it is seen so.
TEST(Detector, ARankThatBlocksLateIsNotJudgedAtOnce) {
  FakeJob job = running_job(2);
  job.life(1, LifeState::running);
  call_without(job, {1});
  job.pass(seconds(50));
  job.life(1, LifeState::blocked);
  job.said();
  job.pass(seconds(11));
  EXPECT_EQ(job.said(), "");
  job.pass(seconds(4));
  EXPECT_EQ(job.said(), fmt::format("verdict never_entered 1 <- 0 {} time high", kSum));
}

TEST(Detector, ARankThatComesEndsTheWait) {
  FakeJob job = running_job(3);
  job.life(1, LifeState::running);
  call_without(job, {1});
  job.pass(seconds(20));
  job.said();
  job.call(1, "world", sum_of(8));
  for (const int rank : {0, 1, 2})
    job.complete(rank, "world");
  job.pass(seconds(1));
  ASSERT_NE(job.last<WaitEnded>(), nullptr);
  EXPECT_GE(job.last<WaitEnded>()->waited, seconds(20));
  EXPECT_LT(job.last<WaitEnded>()->waited, milliseconds(20500));
  EXPECT_EQ(job.said(), "came 1");
}

TEST(Detector, ShortWaitsAreNobodysBusiness) {
  FakeJob job = running_job(3);
  for (int i = 0; i < 30; ++i) {
    call_without(job, {1});
    job.pass(seconds(3));
    job.call(1, "world", sum_of(8));
    for (const int rank : {0, 1, 2})
      job.complete(rank, "world");
    job.pass(milliseconds(100));
  }
  EXPECT_EQ(job.said(), "");
}

TEST(Detector, AnAsynchronousCallIsAWaitOnlyOfABlockedRank) {
  FakeJob job = running_job(2);
  ring::Call async = sum_of(8);
  async.is_synchronous = false;
  job.call(0, "world", async);
  job.life(0, LifeState::running);
  job.life(1, LifeState::blocked);
  job.pass(seconds(60));
  EXPECT_EQ(job.said(), "");
  job.life(0, LifeState::blocked);
  job.pass(seconds(16));
  EXPECT_EQ(job.said(), fmt::format("notice never_entered 1 <- 0 {} time high | "
                                    "verdict never_entered 1 <- 0 {} time high",
                                    kSum, kSum));
}

// It may wait for the running one by other means, as for a file that that one writes.
TEST(Detector, ABlockedRankIsNotJudgedBeforeARunningOneThatIsLateToo) {
  Limits limits;
  limits.busy_timeout = seconds(100);
  FakeJob job = running_job(4, limits);
  job.life(1, LifeState::blocked);
  job.life(2, LifeState::running);
  call_without(job, {1, 2});
  job.pass(seconds(99));
  EXPECT_EQ(job.said(), fmt::format("notice never_entered 1,2 <- 0,3 {} time high", kSum));
  job.pass(seconds(2));
  EXPECT_EQ(job.said(), fmt::format("verdict never_entered 1,2 <- 0,3 {} time high", kSum));
}

// The running one may have let it go just now.
TEST(Detector, TheClockOfABlockedRankBeginsWhenTheLastOtherOneHasCome) {
  FakeJob job = running_job(4);
  job.life(1, LifeState::blocked);
  job.life(2, LifeState::running);
  call_without(job, {1, 2});
  job.pass(seconds(30));
  job.call(2, "world", sum_of(8));
  job.said();
  job.pass(seconds(11));
  EXPECT_EQ(job.said(), "");
  job.pass(seconds(2));
  EXPECT_EQ(job.said(), fmt::format("verdict never_entered 1 <- 0,2-3 {} time high", kSum));
}

TEST(Detector, AStoppedRankIsJudgedEvenIfAnotherOneRuns) {
  FakeJob job = running_job(4);
  job.life(1, LifeState::stopped);
  job.life(2, LifeState::running);
  call_without(job, {1, 2});
  job.pass(seconds(15));
  ASSERT_NE(job.last<Verdict>(), nullptr);
  EXPECT_EQ(job.last<Verdict>()->finding.doubt, "rank 2 is late as well");
  EXPECT_EQ(to_text(*job.last<Verdict>()),
            fmt::format("verdict stopped 1 <- 0,3 {} time medium", kSum));
}

TEST(Detector, ARankThatIsStoppedWithinTheCallIsNamed) {
  FakeJob job = running_job(3);
  call_without(job, {});
  job.life(1, LifeState::stopped);
  job.pass(seconds(16));
  ASSERT_NE(job.last<Verdict>(), nullptr);
  EXPECT_TRUE(job.last<Verdict>()->finding.ranks[0].is_inside);
  EXPECT_EQ(to_text(*job.last<Verdict>()),
            fmt::format("verdict stopped 1 <- 0,2 {} time high", kSum));
}

// ---- incomplete calls

TEST(Detector, ACallThatAllHaveMadeAndNobodyEndsIsIncomplete) {
  Limits limits;
  limits.busy_timeout = seconds(30);
  FakeJob job = running_job(3, limits);
  call_without(job, {});
  job.pass(seconds(32));
  EXPECT_EQ(job.said(), fmt::format("notice incomplete  <- 0-2 {} time high | "
                                    "verdict incomplete  <- 0-2 {} time high",
                                    kSum, kSum));
}

TEST(Detector, OfAnIncompleteCallTheRanksAreNamedThatHaveNotEndedIt) {
  Limits limits;
  limits.busy_timeout = seconds(30);
  FakeJob job = running_job(4, limits);
  call_without(job, {});
  job.complete(0, "world");
  job.complete(3, "world");
  job.call(3, "world", sum_of(8));
  job.pass(seconds(32));
  ASSERT_NE(job.last<Verdict>(), nullptr);
  EXPECT_EQ(named(job.last<Verdict>()->finding), (std::vector<int>{1, 2}));
}

// ---- exits

TEST(Detector, AnExitWithZeroIsProvenAfterTwoLooks) {
  FakeJob job = running_job(4);
  call_without(job, {2});
  job.end(2, 0);
  const Duration took = job.until_said(seconds(20));
  EXPECT_GE(took, seconds(1));
  EXPECT_LT(took, seconds(2));
  EXPECT_EQ(job.said(), fmt::format("verdict exited 2 <- 0-1,3 {} proof high", kSum));
}

TEST(Detector, AnExitAfterClosingTheGroupIsProvenToo) {
  FakeJob job = running_job(2);
  job.at(1).group("world").phase = GroupPhase::closed;
  call_without(job, {1});
  job.end(1, 0);
  EXPECT_LT(job.until_said(seconds(20)), seconds(2));
  EXPECT_EQ(job.said(), fmt::format("verdict exited 1 <- 0 {} proof high", kSum));
}

TEST(Detector, ARankThatHasMadeAllCallsMayExit) {
  FakeJob job = running_job(3);
  call_without(job, {1});
  job.complete(0, "world");
  job.end(0, 0);
  job.pass(seconds(5));
  EXPECT_EQ(job.said(), "");
}

// Its last digest did not arrive: it may have made the call.
TEST(Detector, AnExitWithoutItsLastDigestIsNoProof) {
  FakeJob job = running_job(3);
  call_without(job, {1});
  job.end(1, 0, false);
  job.pass(seconds(9));
  EXPECT_EQ(job.said(), "");
  job.pass(seconds(5));
  EXPECT_EQ(job.said(), fmt::format("notice exited 1 <- 0,2 {} time low | "
                                    "verdict exited 1 <- 0,2 {} time low",
                                    kSum, kSum));
}

// In a broadcast only the root is needed.
TEST(Detector, AnExitThatTheCallMayDoWithoutIsNoProof) {
  FakeJob job = running_job(3);
  call_without(job, {2}, call_of(ring::CallKind::broadcast, 0));
  job.end(2, 0);
  job.pass(seconds(9));
  EXPECT_EQ(job.said(), "");
  FakeJob other = running_job(3);
  call_without(other, {0}, call_of(ring::CallKind::broadcast, 0));
  other.end(0, 0);
  other.pass(seconds(2));
  EXPECT_EQ(other.said(),
            "verdict exited 0 <- 1-2 broadcast of 8 float32 from rank 0 of the group #2 world "
            "proof high");
}

TEST(Detector, AFailureIsLeftToTheJudgeOfFailures) {
  for (const int code : {1, 128 + 9}) {
    FakeJob job = running_job(3);
    call_without(job, {1});
    job.end(1, code);
    job.pass(seconds(700));
    EXPECT_EQ(job.said(), "");
  }
}

// ---- who is the root

TEST(Detector, TheRootOfAChainIsNamedAndItsVictimsCounted) {
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
            "notice never_entered 0 <- 1-3 all_reduce (sum) of 4 float32 #1 pp time high | "
            "verdict never_entered 0 <- 1-3 all_reduce (sum) of 4 float32 #1 pp time high");
}

// While it waited itself it could not come: its own time has just begun.
TEST(Detector, AVictimIsNotBlamedForTheTimeInWhichItWaited) {
  Limits limits;
  limits.busy_timeout = seconds(60);
  FakeJob job(3, limits);
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

TEST(Detector, IndependentHangsAreFoundApart) {
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

// ---- groups that are formed, and messages

TEST(Detector, AMemberThatDoesNotOpenAGroupIsLate) {
  FakeJob job = running_job(3);
  for (const int rank : {0, 2})
    job.open_on(rank, "tp", {0, 1, 2}, GroupPhase::forming);
  job.life(1, LifeState::blocked);
  job.pass(seconds(15));
  EXPECT_EQ(job.said(),
            "notice never_entered 1 <- 0,2 forming the group #0 tp time high | "
            "verdict never_entered 1 <- 0,2 forming the group #0 tp time high");
}

TEST(Detector, AGroupThatAllHaveOpenedAndThatIsNotFormedIsIncomplete) {
  Limits limits;
  limits.busy_timeout = seconds(30);
  FakeJob job(2, limits);
  job.open("tp", {0, 1}, GroupPhase::forming);
  job.pass(seconds(32));
  EXPECT_EQ(job.said(),
            "notice incomplete  <- 0-1 forming the group #0 tp time high | "
            "verdict incomplete  <- 0-1 forming the group #0 tp time high");
}

TEST(Detector, AReceiverWaitsForItsSender) {
  FakeJob job = running_job(3);
  job.message(0, "world", 2, true, false);
  job.life(2, LifeState::blocked);
  job.pass(seconds(15));
  EXPECT_EQ(job.said(),
            "notice never_entered 2 <- 0 recv from rank 2 #0 world time high | "
            "verdict never_entered 2 <- 0 recv from rank 2 #0 world time high");
}

TEST(Detector, ASenderWaitsForItsReceiver) {
  FakeJob job = running_job(2);
  job.message(0, "world", 1, false, true);
  job.message(1, "world", 0, true, true);
  job.message(0, "world", 1, false, false);
  job.life(1, LifeState::stopped);
  job.pass(seconds(15));
  EXPECT_EQ(job.said(),
            "notice stopped 1 <- 0 send to rank 1 #0 world time high | "
            "verdict stopped 1 <- 0 send to rank 1 #0 world time high");
}

TEST(Detector, AReceiveWithoutASendFromAnExitedRankIsProven) {
  FakeJob job = running_job(2);
  job.message(0, "world", 1, true, false);
  job.end(1, 0);
  job.pass(seconds(2));
  EXPECT_EQ(job.said(), "verdict exited 1 <- 0 recv from rank 1 #0 world proof high");
}

TEST(Detector, AReceiveFromAnyRankAccusesNobody) {
  FakeJob job = running_job(3);
  job.message(0, "world", -1, true, false);
  job.life(0, LifeState::blocked);
  job.life(1, LifeState::blocked);
  job.life(2, LifeState::stopped);
  job.pass(seconds(700));
  EXPECT_EQ(job.said(), "");
}

TEST(Detector, AReceiveFromAnyRankWaitsForTheLastThatCanSend) {
  FakeJob job = running_job(3);
  job.message(0, "world", -1, true, false);
  job.life(0, LifeState::blocked);
  job.life(1, LifeState::blocked);
  job.end(2, 0);
  job.pass(seconds(16));
  EXPECT_EQ(job.said(),
            "notice never_entered 1 <- 0 recv from any rank #0 world time high | "
            "verdict never_entered 1 <- 0 recv from any rank #0 world time high");
}

TEST(Detector, AReceiveFromAnyRankIsHopelessWhenAllOthersHaveEnded) {
  FakeJob job = running_job(3);
  job.message(0, "world", -1, true, false);
  job.end(1, 0);
  job.end(2, 0);
  job.pass(seconds(2));
  EXPECT_EQ(job.said(), "verdict exited 1,2 <- 0 recv from any rank #0 world proof high");
}

// ---- circles

TEST(Detector, TwoGroupsThatAreCrossedAreACircle) {
  FakeJob job = running_job(4);
  job.open("other", {0, 1, 2, 3});
  job.pass(seconds(1));
  call_without(job, {2});
  job.call(2, "other", kBarrier);
  const Duration took = job.until_said(seconds(20));
  EXPECT_LT(took, seconds(4));
  ASSERT_NE(job.last<Verdict>(), nullptr);
  const Finding finding = job.last<Verdict>()->finding;
  EXPECT_EQ(finding.ranks[0].call, "all_reduce #2 of group 'world'");
  EXPECT_EQ(finding.ranks[1].call, "barrier #1 of group 'other'");
  EXPECT_EQ(job.said(), fmt::format("verdict circle 0,2 <- 1,3 {} proof high", kSum));
}

TEST(Detector, MessagesThatCrossAreACircle) {
  FakeJob job = running_job(3);
  for (int rank = 0; rank < 3; ++rank) {
    job.message(rank, "world", (rank + 1) % 3, true, false);
    job.life(rank, LifeState::sleeping);
  }
  EXPECT_LT(job.until_said(seconds(20)), seconds(4));
  EXPECT_EQ(job.said(), "verdict circle 0,1,2 <-  recv from rank 1 #0 world proof high");
}

TEST(Detector, AReceiveFromAnyRankBelongsToACircleIfAllOthersWaitForIt) {
  FakeJob job = running_job(3);
  job.message(0, "world", -1, true, false);
  job.message(1, "world", 0, true, false);
  job.message(2, "world", 1, true, false);
  for (int rank = 0; rank < 3; ++rank)
    job.life(rank, LifeState::blocked);
  EXPECT_LT(job.until_said(seconds(20)), seconds(4));
  EXPECT_EQ(job.said(), "verdict circle 0,1 <- 2 recv from any rank #0 world proof high");
}

// Another thread of it may yet make the call.
TEST(Detector, ACircleThroughARunningRankIsNoProof) {
  FakeJob job = running_job(2);
  job.open("other", {0, 1});
  job.call(0, "world", sum_of(8));
  job.call(1, "other", kBarrier);
  job.life(1, LifeState::running);
  job.pass(seconds(60));
  EXPECT_EQ(job.said(), fmt::format("notice circle 0,1 <-  {} time medium", kSum));
}

// Of a broadcast the root may go on by itself.
TEST(Detector, ACircleThroughACallThatMayEndIsJudgedByTime) {
  FakeJob job = running_job(2);
  job.open("other", {0, 1});
  job.call(0, "world", call_of(ring::CallKind::broadcast, 0));
  job.call(1, "other", kBarrier);
  job.pass(seconds(9));
  EXPECT_EQ(job.said(), "");
  job.pass(seconds(5));
  const auto* const call = "broadcast of 8 float32 from rank 0 of the group #2 world time medium";
  EXPECT_EQ(job.said(),
            fmt::format("notice circle 0,1 <-  {} | verdict circle 0,1 <-  {}", call, call));
}

// ---- after a verdict

TEST(Detector, WhatARankDisprovesIsWithdrawnAndTheLimitDoubled) {
  FakeJob job = running_job(2);
  job.life(1, LifeState::blocked);
  const auto hang_and_come = [&](Duration hang) {
    call_without(job, {1});
    job.pass(hang);
    job.call(1, "world", sum_of(8));
    for (const int rank : {0, 1})
      job.complete(rank, "world");
    job.pass(seconds(1));
    job.life(1, LifeState::blocked);
  };
  hang_and_come(seconds(16));
  EXPECT_EQ(job.said(), fmt::format("notice never_entered 1 <- 0 {} time high | "
                                    "verdict never_entered 1 <- 0 {} time high | "
                                    "withdrawn 1, limit 24.0 s",
                                    kSum, kSum));
  hang_and_come(seconds(20));
  EXPECT_EQ(job.said(),
            "notice never_entered 1 <- 0 all_reduce (sum) of 8 float32 #3 world time high | "
            "came 1");
}

TEST(Detector, NothingIsWithdrawnWhenRanksEnd) {
  FakeJob job = running_job(2);
  job.life(1, LifeState::blocked);
  call_without(job, {1});
  job.pass(seconds(16));
  job.said();
  job.end(0, 0);
  job.end(1, 0);
  job.pass(seconds(3));
  EXPECT_EQ(job.said(), "");
}

TEST(Detector, AGroupThatFailsEndsTheWaitWithoutAWithdrawal) {
  for (const Duration wait : {seconds(11), seconds(16)}) {
    FakeJob job = running_job(2);
    job.life(1, LifeState::blocked);
    call_without(job, {1});
    job.pass(wait);
    job.said();
    job.at(0).group("world").phase = GroupPhase::failed;
    job.at(0).digest.has_failed = true;
    job.pass(seconds(60));
    EXPECT_EQ(job.said(), wait < seconds(12) ? "gave up 1" : "");
  }
}

TEST(Detector, StoppingEndsEverything) {
  FakeJob job = running_job(2);
  job.life(1, LifeState::blocked);
  call_without(job, {1});
  job.pass(seconds(11));
  job.said();
  EXPECT_FALSE(job.looked_at.empty());
  job.step(Stopping{});
  EXPECT_TRUE(job.looked_at.empty());
  EXPECT_EQ(job.detector().next_deadline(), kNever);
  EXPECT_EQ(job.detector().status(job.now()), "");
  job.pass(seconds(60));
  EXPECT_EQ(job.said(), "");
}

TEST(Detector, ANewAttemptForgetsAllButTheNumbers) {
  FakeJob job = running_job(2);
  job.life(1, LifeState::blocked);
  call_without(job, {1});
  job.pass(seconds(16));
  EXPECT_EQ(job.last<Verdict>()->finding.number, 1U);
  job.said();
  job.step(Begun{2});
  job.pass(seconds(16));
  EXPECT_EQ(job.last<Verdict>()->finding.number, 2U);
}

// ---- what holds it back

TEST(Detector, NothingIsJudgedWhileTheJobIsSuspendedAndWaitsBeginAnew) {
  FakeJob job = running_job(2);
  job.life(1, LifeState::blocked);
  call_without(job, {1});
  job.pass(seconds(9));
  job.step(Suspended{});
  job.pass(seconds(100));
  EXPECT_EQ(job.said(), "");
  job.step(Resumed{});
  job.pass(seconds(9));
  EXPECT_EQ(job.said(), "");
  job.pass(seconds(6));
  EXPECT_NE(job.last<Verdict>(), nullptr);
}

TEST(Detector, WaitsBeginAnewAfterAJumpOfTheClock) {
  FakeJob job = running_job(2);
  job.life(1, LifeState::blocked);
  call_without(job, {1});
  job.pass(seconds(9));
  job.step(Jumped{});
  job.pass(seconds(9));
  EXPECT_EQ(job.said(), "");
  job.pass(seconds(6));
  EXPECT_NE(job.last<Verdict>(), nullptr);
}

TEST(Detector, NothingIsJudgedWhileADebuggerHoldsARank) {
  FakeJob job = running_job(3);
  job.life(1, LifeState::traced);
  call_without(job, {1});
  job.pass(seconds(700));
  EXPECT_EQ(job.said(), fmt::format("notice busy 1 <- 0,2 {} time high", kSum));
  job.life(1, LifeState::blocked);
  job.pass(seconds(10));
  EXPECT_EQ(job.said(), "");
  job.pass(seconds(6));
  EXPECT_EQ(job.said(), fmt::format("verdict never_entered 1 <- 0,2 {} time high", kSum));
}

TEST(Detector, ASectionIsGivenTheLongestTime) {
  FakeJob job = running_job(2);
  job.at(1).digest.section = "checkpoint";
  for (int i = 0; i < 30; ++i) {
    job.all({0, 1}, "world", sum_of(8));
    job.pass(seconds(1));
  }
  job.life(1, LifeState::running);
  call_without(job, {1});
  job.pass(seconds(599));
  EXPECT_EQ(job.last<Verdict>(), nullptr);
  job.pass(seconds(2));
  EXPECT_NE(job.last<Verdict>(), nullptr);
  EXPECT_EQ(job.last<Verdict>()->finding.ranks[0].section, "checkpoint");
}

// ---- missing evidence

TEST(Detector, WhoRecordsNothingIsNamedWithLittleConfidence) {
  FakeJob job(3);
  job.at(1).records = false;
  job.open_on(0, "world", {0, 1, 2});
  job.open_on(2, "world", {0, 1, 2});
  job.life(1, LifeState::blocked);
  call_without(job, {1});
  job.pass(seconds(16));
  ASSERT_NE(job.last<Verdict>(), nullptr);
  EXPECT_EQ(job.last<Verdict>()->finding.confidence, Confidence::low);
  EXPECT_EQ(job.last<Verdict>()->finding.doubt, "rank 1 records nothing that helps");
  job.said();
  job.end(1, 0);
  job.pass(seconds(30));
  EXPECT_EQ(job.said(), "");
}

TEST(Detector, WhoRecordsNothingIsNotNamedBesideOneThatIsLate) {
  FakeJob job(4);
  job.at(1).records = false;
  for (const int rank : {0, 2, 3})
    job.open_on(rank, "world", {0, 1, 2, 3});
  for (const int rank : {1, 2})
    job.life(rank, LifeState::blocked);
  call_without(job, {1, 2});
  job.pass(seconds(16));
  ASSERT_NE(job.last<Verdict>(), nullptr);
  EXPECT_EQ(to_text(*job.last<Verdict>()),
            "verdict never_entered 2 <- 0,3 all_reduce (sum) of 8 "
            "float32 #1 world time medium");
}

// Its recorder switched itself off: others have ended calls that need it.
TEST(Detector, CountersThatOthersDisproveAreNoProof) {
  FakeJob job = running_job(3);
  for (int i = 0; i < 5; ++i) {
    for (const int rank : {0, 1}) {
      job.call(rank, "world", sum_of(8));
      job.complete(rank, "world");
    }
  }
  call_without(job, {2});
  job.end(2, 0);
  job.pass(seconds(5));
  EXPECT_EQ(job.said(), "");
}

TEST(Detector, UnknownMembersAreFoundByTheirOwnRank) {
  FakeJob job = running_job(3);
  for (FakeRank& rank : job.ranks)
    rank.group("world").ranks.clear();
  FakeJob other(3);
  other.ranks = job.ranks;
  other.life(1, LifeState::stopped);
  call_without(other, {1});
  other.pass(seconds(16));
  EXPECT_EQ(other.said(), fmt::format("notice stopped 1 <- 0,2 {} time high | "
                                      "verdict stopped 1 <- 0,2 {} time high",
                                      kSum, kSum));
}

TEST(Detector, DigestsThatNoLongerComeAreNoTime) {
  FakeJob job = running_job(2);
  job.life(1, LifeState::blocked);
  call_without(job, {1});
  job.pass(seconds(5));
  job.stop_reading();
  job.pass(seconds(700));
  EXPECT_EQ(job.said(), "");
}

TEST(Detector, WhatTheLibraryHasReportedGetsNoSecondVerdict) {
  for (const int failed : {0, 1}) {
    FakeJob job = running_job(2);
    job.at(failed).digest.has_failed = true;
    job.life(1, LifeState::blocked);
    call_without(job, {1});
    job.pass(seconds(700));
    EXPECT_EQ(job.said(), "");
  }
}

TEST(Detector, ARankWhoseCompletionsAreUnknownDoesNotWaitButMayBeLate) {
  FakeJob job = running_job(3);
  job.at(1).group("world").completion_is_unknown = true;
  job.call(1, "world", sum_of(8));
  job.life(1, LifeState::blocked);
  for (const int rank : {0, 2}) {
    job.call(rank, "world", sum_of(8));
    job.complete(rank, "world");
    job.call(rank, "world", sum_of(8));
  }
  job.pass(seconds(16));
  ASSERT_NE(job.last<Verdict>(), nullptr);
  EXPECT_EQ(named(job.last<Verdict>()->finding), std::vector<int>{1});
}

// ---- the machine

TEST(Detector, LooksAtTheRanksThatOthersWaitFor) {
  FakeJob job = running_job(4);
  EXPECT_TRUE(job.looked_at.empty());
  call_without(job, {2});
  job.pass(milliseconds(600));
  EXPECT_EQ(job.looked_at, (std::vector<int>{0, 1, 2, 3}));
  job.call(2, "world", sum_of(8));
  for (const int rank : all_of(4))
    job.complete(rank, "world");
  job.pass(milliseconds(500));
  EXPECT_TRUE(job.looked_at.empty());
}

TEST(Detector, SaysWhoWaitsForWhom) {
  FakeJob job = running_job(4);
  EXPECT_EQ(job.detector().status(job.now()), "");
  call_without(job, {2});
  job.pass(seconds(3));
  EXPECT_EQ(job.detector().status(job.now()),
            "3 ranks wait for rank 2 in all_reduce #2 of group 'world', for 3.0 s");
}

TEST(Detector, ATickBeforeItsTimeDoesNothing) {
  FakeJob job = running_job(2);
  EXPECT_EQ(job.detector().next_deadline(), kNever);
  job.life(1, LifeState::blocked);
  call_without(job, {1});
  job.step(LifeSeen{0, LifeState::blocked, ""});
  const Instant due = job.detector().next_deadline();
  EXPECT_LE(due, job.now() + milliseconds(250));
  std::vector<Effect> out;
  job.detector().step(due - milliseconds(1), Tick{}, out);
  EXPECT_EQ(job.detector().next_deadline(), due);
  job.detector().step(due, Tick{}, out);
  EXPECT_EQ(job.detector().next_deadline(), kNever);
}

TEST(Detector, NewsOfRanksThatTheJobDoesNotHaveIsDropped) {
  FakeJob job(2);
  RankDigest digest;
  for (const int rank : {-1, 2, 1'000'000}) {
    digest.rank = rank;
    job.step(Digested{digest});
    job.step(LifeSeen{rank, LifeState::blocked, ""});
    job.step(Ended{rank, 0});
  }
  job.pass(seconds(2));
  EXPECT_EQ(job.said(), "");
}

}  // namespace
}  // namespace muster::hang
