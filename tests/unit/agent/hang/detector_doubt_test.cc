// What delays a verdict, what withdraws one, and how the detector treats missing evidence.
#include <gtest/gtest.h>

#include "agent/hang/detector.h"
#include "tests/unit/agent/hang/detector_harness.h"

namespace muster::hang {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// ---- after a verdict

TEST(DetectorDoubt, ADisprovedVerdictIsWithdrawnAndTheLimitDoubled) {
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
  EXPECT_EQ(job.said(),
            notice_and_verdict("never_entered 1 <- 0", kSum) + " | withdrawn 1, limit 24.0 s");
  hang_and_come(seconds(20));
  EXPECT_EQ(job.said(),
            "notice never_entered 1 <- 0 all_reduce (sum) of 8 float32 #3 world time high | "
            "came 1");
}

TEST(DetectorDoubt, NothingIsWithdrawnWhenRanksEnd) {
  FakeJob job = job_with_late(2, {{1, LifeState::blocked}});
  job.pass(seconds(16));
  job.said();
  job.end(0, 0);
  job.end(1, 0);
  job.pass(seconds(3));
  EXPECT_EQ(job.said(), "");
}

TEST(DetectorDoubt, AGroupThatFailsEndsTheWaitWithoutAWithdrawal) {
  for (const Duration wait : {seconds(11), seconds(16)}) {
    FakeJob job = job_with_late(2, {{1, LifeState::blocked}});
    job.pass(wait);
    job.said();
    job.at(0).group("world").phase = GroupPhase::failed;
    job.at(0).digest.has_failed = true;
    job.pass(seconds(60));
    EXPECT_EQ(job.said(), wait < seconds(12) ? "gave up 1" : "");
  }
}

TEST(DetectorDoubt, StoppingEndsAllWaitsAndLooks) {
  FakeJob job = job_with_late(2, {{1, LifeState::blocked}});
  job.pass(seconds(11));
  job.said();
  EXPECT_FALSE(job.looked_at.empty());
  job.step(Stopping{});
  EXPECT_TRUE(job.looked_at.empty());
  EXPECT_EQ(job.detector().next_deadline(), kNever);
  EXPECT_FALSE(job.detector().status());
  job.pass(seconds(60));
  EXPECT_EQ(job.said(), "");
}

TEST(DetectorDoubt, ANewAttemptForgetsAllButTheFindingNumbers) {
  FakeJob job = job_with_late(2, {{1, LifeState::blocked}});
  job.pass(seconds(16));
  EXPECT_EQ(job.verdict().number, 1U);
  job.said();
  job.step(Begun{2});
  job.pass(seconds(16));
  EXPECT_EQ(job.verdict().number, 2U);
}

// ---- what delays a verdict

TEST(DetectorDoubt, WaitsRestartAfterASuspensionAndAfterAJumpOfTheClock) {
  for (const bool jumps : {false, true}) {
    FakeJob job = job_with_late(2, {{1, LifeState::blocked}});
    job.pass(seconds(9));
    if (jumps) {
      job.step(Jumped{});
    } else {
      job.step(Suspended{});
      job.pass(seconds(100));
      job.step(Resumed{});
    }
    job.pass(seconds(9));
    EXPECT_EQ(job.said(), "");
    job.pass(seconds(6));
    EXPECT_NE(job.last<Verdict>(), nullptr);
  }
}

TEST(DetectorDoubt, NothingIsJudgedWhileADebuggerHoldsARank) {
  FakeJob job = job_with_late(3, {{1, LifeState::traced}});
  job.pass(seconds(700));
  EXPECT_EQ(job.said(), fmt::format("notice busy 1 <- 0,2 {} time high", kSum));
  job.life(1, LifeState::blocked);
  job.pass(seconds(10));
  EXPECT_EQ(job.said(), "");
  job.pass(seconds(6));
  EXPECT_EQ(job.said(), fmt::format("verdict never_entered 1 <- 0,2 {} time high", kSum));
}

TEST(DetectorDoubt, ABlockedRankInASectionHasTheTimeOfABusyOne) {
  FakeJob job = running_job(2);
  job.at(1).digest.section = "checkpoint";
  job.life(1, LifeState::blocked);
  call_without(job, {1});
  job.pass(seconds(899));
  EXPECT_EQ(job.last<Verdict>(), nullptr);
  job.pass(seconds(2));
  EXPECT_EQ(job.verdict().ranks[0].section, "checkpoint");
}

TEST(DetectorDoubt, ARankThatPollsIsBusy) {
  FakeJob job = job_with_late(2, {{1, LifeState::asking}});
  job.pass(seconds(899));
  EXPECT_EQ(job.last<Verdict>(), nullptr);
  job.pass(seconds(2));
  EXPECT_EQ(job.verdict().what, Class::busy);
}

TEST(DetectorDoubt, ARankWhoseUserTypesIsNotJudged) {
  FakeJob job = job_with_late(2, {{1, LifeState::prompting}});
  job.pass(seconds(5000));
  EXPECT_NE(job.last<Notice>(), nullptr);
  EXPECT_EQ(job.last<Verdict>(), nullptr);
}

// ---- missing evidence

TEST(DetectorDoubt, ARankThatRecordsNothingIsNamedWithLowConfidence) {
  FakeJob job(3);
  job.at(1).records = false;
  job.open_on(0, "world", {0, 1, 2});
  job.open_on(2, "world", {0, 1, 2});
  job.life(1, LifeState::blocked);
  call_without(job, {1});
  job.pass(seconds(16));
  EXPECT_EQ(job.verdict().confidence, Confidence::low);
  EXPECT_EQ(job.verdict().doubt, (Doubt{Doubt::Why::records_nothing, {1}}));
  job.said();
  job.end(1, 0);
  job.pass(seconds(30));
  EXPECT_EQ(job.said(), "");
}

TEST(DetectorDoubt, ARankThatRecordsNothingIsNotNamedBesideALateRank) {
  FakeJob job(4);
  job.at(1).records = false;
  for (const int rank : {0, 2, 3})
    job.open_on(rank, "world", {0, 1, 2, 3});
  for (const int rank : {1, 2})
    job.life(rank, LifeState::blocked);
  call_without(job, {1, 2});
  job.pass(seconds(16));
  EXPECT_EQ(to_text(job.verdict()),
            "never_entered 2 <- 0,3 all_reduce (sum) of 8 "
            "float32 #1 world time medium");
}

// Its recorder must have stopped, since others have ended calls that need it.
TEST(DetectorDoubt, CountersThatOthersDisproveAreNoProof) {
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

TEST(DetectorDoubt, MembersAreFoundByTheirOwnRankIfNoListIsKnown) {
  FakeJob job = running_job(3);
  for (FakeRank& rank : job.ranks)
    rank.group("world").ranks.clear();
  FakeJob other(3);
  other.ranks = job.ranks;
  other.life(1, LifeState::stopped);
  call_without(other, {1});
  other.pass(seconds(16));
  EXPECT_EQ(other.said(), notice_and_verdict("stopped 1 <- 0,2", kSum));
}

TEST(DetectorDoubt, TimeWithoutDigestsOfTheWaitingRankDoesNotCount) {
  for (const std::vector<int>& unread : {std::vector{0}, {0, 1}}) {
    FakeJob job = job_with_late(2, {{1, LifeState::blocked}});
    job.pass(seconds(5));
    for (const int rank : unread)
      job.at(rank).records = false;
    job.pass(seconds(700));
    EXPECT_EQ(job.said(), "");
  }
}

TEST(DetectorDoubt, AFailureThatTheLibraryReportedGetsNoVerdict) {
  for (const int failed : {0, 1}) {
    FakeJob job = job_with_late(2, {{1, LifeState::blocked}});
    job.at(failed).digest.has_failed = true;
    job.pass(seconds(700));
    EXPECT_EQ(job.said(), "");
  }
}

TEST(DetectorDoubt, ARankWhoseCompletionsAreUnknownDoesNotWaitButMayBeLate) {
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
  EXPECT_EQ(named(job.verdict()), std::vector<int>{1});
}

// ---- the machine

TEST(DetectorDoubt, LooksAtRanksOnlyWhileACallIsPending) {
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

TEST(DetectorDoubt, StatusSaysWhichRanksWaitForWhich) {
  FakeJob job = running_job(4);
  EXPECT_FALSE(job.detector().status());
  call_without(job, {2});
  job.pass(seconds(3));
  ASSERT_TRUE(job.detector().status());
  EXPECT_EQ(status_text(*job.detector().status(), job.now()),
            "3 ranks wait for rank 2 in all_reduce #2 of group 'world', for 3.0 s");
}

TEST(DetectorDoubt, ATickBeforeItsDeadlineDoesNothing) {
  FakeJob job = running_job(2);
  EXPECT_EQ(job.detector().next_deadline(), kNever);
  job.life(1, LifeState::blocked);
  call_without(job, {1});
  job.step(LifeSeen{0, {.state = LifeState::blocked}});
  const Instant due = job.detector().next_deadline();
  EXPECT_LE(due, job.now() + milliseconds(250));
  std::vector<Effect> out;
  job.detector().step(due - milliseconds(1), Tick{}, out);
  EXPECT_EQ(job.detector().next_deadline(), due);
  job.detector().step(due, Tick{}, out);
  EXPECT_EQ(job.detector().next_deadline(), kNever);
}

TEST(DetectorDoubt, EventsOfRanksThatTheJobDoesNotHaveAreDropped) {
  FakeJob job(2);
  RankDigest digest;
  for (const int rank : {-1, 2, 1'000'000}) {
    digest.rank = rank;
    job.step(Digested{digest});
    job.step(LifeSeen{rank, {.state = LifeState::blocked}});
    job.step(Ended{rank, 0});
  }
  job.pass(seconds(2));
  EXPECT_EQ(job.said(), "");
}

}  // namespace
}  // namespace muster::hang
