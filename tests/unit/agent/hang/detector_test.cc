// What the detector reports for each fault of one rank, and when.
#include "agent/hang/detector.h"

#include <gtest/gtest.h>

#include "tests/unit/agent/hang/detector_harness.h"

namespace muster::hang {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// ---- late ranks

TEST(Detector, ABlockedRankIsNoticedAndThenJudged) {
  FakeJob job = job_with_late(4, {{2, LifeState::blocked}});
  const Duration notice = job.until_said(seconds(20));
  EXPECT_GE(notice, seconds(10));
  EXPECT_LT(notice, seconds(11));
  EXPECT_EQ(job.said(), fmt::format("notice never_entered 2 <- 0-1,3 {} time high", kSum));
  EXPECT_LT(notice + job.until_said(seconds(20)), seconds(15));
  const Finding finding = job.verdict();
  EXPECT_EQ(finding.ranks[0].life.state, LifeState::blocked);
  EXPECT_EQ(call_text(*finding.ranks[0].call), "all_reduce #1 of group 'world'");
  EXPECT_EQ(finding.ranks[0].site, "train.py:1");
  EXPECT_EQ(finding.site, "train.py:2");
  EXPECT_EQ(job.said(), fmt::format("verdict never_entered 2 <- 0-1,3 {} time high", kSum));
  job.pass(seconds(700));
  EXPECT_EQ(job.said(), "");
}

TEST(Detector, AStoppedRankIsJudgedAfterTheHangTimeoutAndARunningOneAtTheBusyTimeoutOnly) {
  struct Row {
    LifeState life;
    const char* what = "busy";
    Duration noticed = seconds(39);
    Duration judged = seconds(41);
    const char* sure = "high";
  };
  for (const Row& row :
       {Row{LifeState::stopped, "stopped", seconds(11), seconds(15)}, Row{LifeState::running},
        Row{LifeState::sleeping}, Row{LifeState::uninterruptible},
        Row{.life = LifeState::unknown, .sure = "medium"}}) {
    FakeJob job = job_with_late(4, {{2, row.life}}, {.busy_timeout = seconds(40)});
    job.pass(row.noticed);
    const std::string finding = fmt::format("{} 2 <- 0-1,3 {} time {}", row.what, kSum, row.sure);
    EXPECT_EQ(job.said(), "notice " + finding);
    job.pass(row.judged - row.noticed);
    EXPECT_EQ(job.said(), "verdict " + finding);
  }
}

// It computed while the others waited; the clock of "blocked" starts when it is first seen blocked.
TEST(Detector, ARankThatBlocksLateIsNotJudgedAtOnce) {
  FakeJob job = job_with_late(2, {{1, LifeState::running}});
  job.pass(seconds(50));
  job.life(1, LifeState::blocked);
  job.said();
  job.pass(seconds(11));
  EXPECT_EQ(job.said(), "");
  job.pass(seconds(4));
  EXPECT_EQ(job.said(), fmt::format("verdict never_entered 1 <- 0 {} time high", kSum));
}

// NCCL knows its communicators by a number.
TEST(Detector, FindingsOnACommunicatorNameItsGroup) {
  for (const bool is_mismatch : {false, true}) {
    FakeJob job(2);
    job.open("nccl-1f", {0, 1});
    job.open("t-0", {0, 1});
    for (const int rank : {0, 1})
      job.at(rank).group("t-0").name = "world";
    job.all({0, 1}, "nccl-1f", sum_of(8));
    job.pass(seconds(1));
    job.call(0, "nccl-1f", sum_of(8));
    if (is_mismatch) job.call(1, "nccl-1f", sum_of(9));
    job.life(1, LifeState::blocked);
    job.pass(seconds(20));
    const Finding finding = job.verdict();
    EXPECT_EQ(finding.operation.group.text, "world");
    EXPECT_EQ(finding.ranks.back().call->call.count, is_mismatch ? 9U : 8U);
    EXPECT_EQ(finding.ranks.back().call->ordinal, is_mismatch ? 2 : 1);
    EXPECT_EQ(job.detector().name_of_group("nccl-1f"), "world");
  }
}

TEST(Detector, ARankThatComesEndsTheWait) {
  FakeJob job = job_with_late(3, {{1, LifeState::running}});
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

TEST(Detector, ACallThatFailsDoesNotShowThatTheLateRankCame) {
  for (const bool is_on_device : {false, true}) {
    FakeJob job = job_with_late(2, {{1, LifeState::running}});
    job.ranks[0].group("world").is_on_device = is_on_device;
    job.pass(seconds(20));
    // On a device, the calls counted as complete include the one that failed.
    if (is_on_device) job.call(0, "world", sum_of(8));
    job.complete(0, "world");
    job.ranks[0].group("world").calls.back().has_failed = true;
    job.pass(seconds(1));
    ASSERT_NE(job.last<WaitEnded>(), nullptr);
    EXPECT_FALSE(job.last<WaitEnded>()->have_come);
  }
}

// Until it makes another call, it may be about to end, however long that takes.
TEST(Detector, ReportsThatARankSurvivedTheCallThatItGaveUp) {
  FakeJob job = job_with_late(2, {{1, LifeState::running}});
  job.pass(seconds(20));
  job.complete(0, "world");
  job.ranks[0].group("world").calls.back().has_failed = true;
  job.pass(seconds(60));
  ASSERT_NE(job.last<WaitEnded>(), nullptr);
  EXPECT_EQ(job.last<WentOn>(), nullptr);
  job.call(0, "world", sum_of(8));
  job.pass(seconds(1));
  ASSERT_NE(job.last<WentOn>(), nullptr);
  EXPECT_EQ(job.last<WentOn>()->number, job.last<WaitEnded>()->number);
}

TEST(Detector, ShortWaitsAreNotReported) {
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

TEST(Detector, AnAsynchronousCallIsAWaitOnlyIfItsRankIsBlocked) {
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
  EXPECT_EQ(job.said(), notice_and_verdict("never_entered 1 <- 0", kSum));
}

// It may wait for the running rank by other means, such as a file that that rank writes.
TEST(Detector, ABlockedRankIsNotJudgedBeforeALateRunningRank) {
  FakeJob job = job_with_late(4, {{1, LifeState::blocked}, {2, LifeState::running}},
                              {.busy_timeout = seconds(100)});
  job.pass(seconds(99));
  EXPECT_EQ(job.said(), fmt::format("notice never_entered 1,2 <- 0,3 {} time high", kSum));
  job.pass(seconds(2));
  EXPECT_EQ(job.said(), fmt::format("verdict never_entered 1,2 <- 0,3 {} time high", kSum));
}

// The running rank may have released it only now.
TEST(Detector, TheClockOfABlockedRankStartsWhenTheOtherLateRankCame) {
  FakeJob job = job_with_late(4, {{1, LifeState::blocked}, {2, LifeState::running}});
  job.pass(seconds(30));
  job.call(2, "world", sum_of(8));
  job.said();
  job.pass(seconds(11));
  EXPECT_EQ(job.said(), "");
  job.pass(seconds(2));
  EXPECT_EQ(job.said(), fmt::format("verdict never_entered 1 <- 0,2-3 {} time high", kSum));
}

TEST(Detector, AStoppedRankIsJudgedThoughARunningRankIsLate) {
  FakeJob job = job_with_late(4, {{1, LifeState::stopped}, {2, LifeState::running}});
  job.pass(seconds(15));
  EXPECT_EQ(job.verdict().doubt, (Doubt{Doubt::Why::also_late, {2}}));
  EXPECT_EQ(to_text(job.verdict()), fmt::format("stopped 1 <- 0,3 {} time medium", kSum));
}

TEST(Detector, ARankThatIsStoppedWithinTheCallIsNamed) {
  FakeJob job = job_with_late(3, {});
  job.life(1, LifeState::stopped);
  job.pass(seconds(16));
  EXPECT_TRUE(job.verdict().ranks[0].is_inside);
  EXPECT_EQ(to_text(job.verdict()), fmt::format("stopped 1 <- 0,2 {} time high", kSum));
}

// ---- incomplete calls

TEST(Detector, ACallThatAllRanksMadeAndNoneEndsIsIncomplete) {
  FakeJob job = job_with_late(3, {}, {.busy_timeout = seconds(30)});
  job.pass(seconds(32));
  EXPECT_EQ(job.said(), notice_and_verdict("incomplete  <- 0-2", kSum));
}

TEST(Detector, AnIncompleteCallNamesTheRanksThatHaveNotEndedIt) {
  FakeJob job = job_with_late(4, {}, {.busy_timeout = seconds(30)});
  job.complete(0, "world");
  job.complete(3, "world");
  job.call(3, "world", sum_of(8));
  job.pass(seconds(32));
  EXPECT_EQ(named(job.verdict()), (std::vector<int>{1, 2}));
}

TEST(Detector, AStoppedRankThatMayBeInACallThatAllRanksMadeIsNamed) {
  FakeJob job = job_with_late(3, {});
  job.at(1).group("world").completion_is_unknown = true;
  job.life(1, LifeState::stopped);
  EXPECT_LT(job.until_said(seconds(20)), seconds(15));
  job.pass(seconds(20));
  EXPECT_EQ(job.said(), notice_and_verdict("stopped 1 <- 0,2", kSum, "medium"));
}

// ---- exits

TEST(Detector, AnExitWithZeroIsProvenAfterTwoLooksEvenIfTheGroupWasClosed) {
  for (const GroupPhase phase : {GroupPhase::ready, GroupPhase::closed}) {
    FakeJob job = running_job(4);
    job.at(2).group("world").phase = phase;
    call_without(job, {2});
    job.end(2, 0);
    const Duration took = job.until_said(seconds(20));
    EXPECT_GE(took, seconds(1));
    EXPECT_LT(took, seconds(2));
    EXPECT_EQ(job.said(), fmt::format("verdict exited 2 <- 0-1,3 {} proof high", kSum));
  }
}

TEST(Detector, ARankThatHasMadeAllCallsMayExit) {
  FakeJob job = running_job(3);
  call_without(job, {1});
  job.complete(0, "world");
  job.end(0, 0);
  job.pass(seconds(5));
  EXPECT_EQ(job.said(), "");
}

// The rank may have made the call after its last digest that arrived.
TEST(Detector, AnExitWithoutALastDigestIsOnlyNoticed) {
  FakeJob job = running_job(3);
  call_without(job, {1});
  job.end(1, 0, false);
  job.pass(seconds(9));
  EXPECT_EQ(job.said(), "");
  job.pass(seconds(700));
  EXPECT_EQ(job.said(), fmt::format("notice exited 1 <- 0,2 {} time low", kSum));
}

// In a broadcast only the root is needed.
TEST(Detector, TheExitOfARankThatTheCallDoesNotNeedIsNoProof) {
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

TEST(Detector, ARankThatFailedGetsNoVerdict) {
  for (const int code : {1, 128 + 9}) {
    FakeJob job = running_job(3);
    call_without(job, {1});
    job.end(1, code);
    job.pass(seconds(700));
    EXPECT_EQ(job.said(), "");
  }
}

}  // namespace
}  // namespace muster::hang
