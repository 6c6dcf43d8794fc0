// Calls that do not agree: which ranks are named, and how soon.
#include <gtest/gtest.h>

#include "agent/hang/detector.h"
#include "tests/unit/agent/hang/detector_harness.h"

namespace muster::hang {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Each rank makes its call, all at the same time.
FakeJob job_of_calls(const std::vector<ring::Call>& calls) {
  FakeJob job = running_job(static_cast<int>(calls.size()));
  for (size_t rank = 0; rank < calls.size(); ++rank)
    job.call(static_cast<int>(rank), "world", calls[rank]);
  return job;
}

TEST(DetectorMismatch, TheOddOneOutIsNamedWithinASecond) {
  for (const ring::Call& wrong : {sum_of(9), kBarrier, call_of(ring::CallKind::broadcast, 1)}) {
    FakeJob job = job_of_calls({sum_of(8), sum_of(8), wrong, sum_of(8)});
    EXPECT_LT(job.until_said(seconds(5)), seconds(1));
    const Finding finding = job.verdict();
    EXPECT_EQ(ring::describe(finding.ranks[0].call->call), ring::describe(wrong));
    EXPECT_EQ(finding.ranks[0].site, "train.py:2");
    EXPECT_EQ(job.said(),
              "verdict signature 2 <- 0-1,3 all_reduce (sum) of 8 float32 #2 world proof high");
    job.pass(seconds(700));
    EXPECT_EQ(job.said(), "");
  }
}

TEST(DetectorMismatch, ATieNamesBothSides) {
  FakeJob job = job_of_calls({sum_of(8), sum_of(9)});
  EXPECT_LT(job.until_said(seconds(5)), seconds(1));
  EXPECT_EQ(job.said(),
            "verdict signature 0,1 tie <-  all_reduce (sum) of 8 float32 #2 world proof high");
}

TEST(DetectorMismatch, AMismatchAwaitsCallsThatMayMakeAMajority) {
  FakeJob job = running_job(4);
  job.call(2, "world", sum_of(9));
  job.call(0, "world", sum_of(8));
  job.pass(milliseconds(300));
  EXPECT_EQ(job.said(), "");
  job.call(1, "world", sum_of(8));
  EXPECT_LT(job.until_said(seconds(5)), milliseconds(700));
  EXPECT_EQ(job.said(),
            "verdict signature 2 <- 0-1 all_reduce (sum) of 8 float32 #2 world proof high");
}

TEST(DetectorMismatch, AMismatchIsJudgedAtOnceWhenARankFails) {
  FakeJob job = job_of_calls({sum_of(8), sum_of(8), sum_of(9)});
  job.pass(milliseconds(250));
  EXPECT_EQ(job.said(), "");
  job.end(1, -6);
  EXPECT_EQ(
      job.said(),
      "verdict signature 2 <- 0 all_reduce (sum) of 8 float32 #2 world proof high | explained "
      "by 1");
}

// No rank noticed the mismatch, and no second look follows.
TEST(DetectorMismatch, AMismatchIsJudgedAtOnceWhenTheLastRankEnds) {
  FakeJob job = job_of_calls({sum_of(8), sum_of(8), sum_of(9)});
  for (const int rank : {0, 1, 2})
    job.complete(rank, "world");
  job.end(2, 0);
  job.end(0, 0);
  EXPECT_EQ(job.said(), "");
  job.end(1, 0);
  EXPECT_TRUE(job.verdict().is_over);
  EXPECT_EQ(job.said(),
            "verdict signature 2 <-  all_reduce (sum) of 8 float32 #2 world proof high");
}

TEST(DetectorMismatch, AMismatchIsJudgedAtTheLastEndThoughAMemberHasNotCalled) {
  FakeJob job = running_job(3);
  job.call(0, "world", sum_of(8));
  job.call(1, "world", sum_of(9));
  for (const int rank : {0, 1, 2})
    job.end(rank, 0);
  EXPECT_EQ(job.said(),
            "verdict signature 0,1 tie <-  all_reduce (sum) of 8 float32 #2 world proof high");
}

TEST(DetectorMismatch, AReportedMismatchExplainsTheFailureThatItCauses) {
  enum class Call : uint8_t { is_pending, has_failed, is_complete };
  for (const Call call : {Call::is_pending, Call::has_failed, Call::is_complete}) {
    FakeJob job = job_of_calls({sum_of(8), sum_of(9), sum_of(8)});
    job.pass(seconds(1));
    job.said();
    for (const int rank : {0, 1, 2}) {
      if (call != Call::is_pending) job.complete(rank, "world");
    }
    job.at(0).group("world").calls.back().has_failed = call == Call::has_failed;
    job.pass(seconds(1));
    job.end(0, 1);
    EXPECT_EQ(job.said(), call == Call::is_complete ? "" : "explained by 1");
  }
}

TEST(DetectorMismatch, ARankKilledByASignalIsReportedAsKilled) {
  FakeJob job = job_of_calls({sum_of(8), sum_of(9)});
  job.pass(milliseconds(250));
  job.end(0, -9);
  EXPECT_EQ(job.verdict().ranks[0].ended, ExitStatus::signaled(SIGKILL));
}

// Ranks that see the failure may make other calls, such as a barrier in a handler.
TEST(DetectorMismatch, CallsAfterAFailureAreNotCompared) {
  FakeJob job = running_job(3);
  job.call(0, "world", sum_of(8));
  job.end(1, 1);
  job.call(2, "world", kBarrier);
  job.pass(milliseconds(250));
  job.end(2, 1);
  job.pass(seconds(1));
  EXPECT_EQ(job.said(), "");
}

// A verdict awaits the second digest of the odd rank.
TEST(DetectorMismatch, ARefusedCallThatWasReadMakesNoMismatch) {
  FakeJob job = running_job(3);
  call_without(job, {1});
  job.call(1, "world", sum_of(9));
  job.pass(milliseconds(250));
  GroupDigest& group = job.at(1).group("world");
  group.calls.pop_back();
  --group.called;
  job.call(1, "world", sum_of(8));
  job.pass(seconds(3));
  EXPECT_EQ(job.said(), "");
}

TEST(DetectorMismatch, ACallThatMayBeWithdrawnIsJudgedOnlyOnceItStands) {
  for (const bool is_withdrawn : {true, false}) {
    FakeJob job = running_job(3);
    for (const int rank : {0, 1})
      job.call(rank, "world", sum_of(8));
    job.call(2, "world", sum_of(9));
    GroupDigest& group = job.at(2).group("world");
    group.calls.back().may_be_withdrawn = true;
    job.pass(milliseconds(900));
    EXPECT_EQ(job.said(), "");
    group.calls.back().may_be_withdrawn = false;
    if (is_withdrawn) group.calls.back().call = sum_of(8);
    job.pass(seconds(1));
    EXPECT_EQ(job.said().empty(), is_withdrawn);
  }
}

TEST(DetectorMismatch, SwappedCallsAreAMismatchOfOrder) {
  FakeJob job = running_job(3);
  ring::Call one = sum_of(8);
  ring::Call other = sum_of(16);
  one.is_synchronous = other.is_synchronous = false;
  for (const int rank : {0, 2}) {
    job.call(rank, "world", one);
    job.call(rank, "world", other);
  }
  job.call(1, "world", other);
  job.call(1, "world", one);
  job.pass(seconds(1));
  EXPECT_EQ(job.said(), "verdict order 1 <- 0,2 all_reduce (sum) of 8 float32 #2 world proof high");
}

TEST(DetectorMismatch, CallsThatMayDifferAreNoMismatch) {
  ring::Call unknown = sum_of(8);
  unknown.reduction = ring::Reduction::unknown;
  ring::Call parts = sum_of(3);
  parts.is_v = true;
  std::vector<ring::Call> gathers;
  for (const uint64_t count : {1U, 2U, 3U})
    gathers.push_back(call_of(ring::CallKind::gather, 0, count));
  for (const auto& calls : {std::vector{sum_of(8), unknown, parts}, gathers}) {
    FakeJob job = job_of_calls(calls);
    job.pass(seconds(9));
    EXPECT_EQ(job.said(), "");
  }
}

TEST(DetectorMismatch, CallsAreNotComparedAfterTheLibraryReportedAFailure) {
  for (const bool is_of_the_group : {false, true}) {
    FakeJob job = job_of_calls({sum_of(8), sum_of(9)});
    if (is_of_the_group) job.at(0).group("world").phase = GroupPhase::failed;
    job.at(1).digest.has_failed = !is_of_the_group;
    job.pass(seconds(3));
    EXPECT_EQ(job.said(), "");
  }
}

TEST(DetectorMismatch, CallsOfALaterProcessAreNotCompared) {
  FakeJob job = running_job(2);
  job.at(1).digest.generation = 2;
  job.at(1).digest.groups.clear();
  job.open_on(1, "world", {0, 1});
  job.call(1, "world", sum_of(99));
  job.complete(1, "world");
  job.pass(seconds(3));
  EXPECT_EQ(job.said(), "");
}

// Makes calls and their hashes; the ring keeps only the last ones. From ordinal `wrong_at` on the
// hashes differ.
void compute(FakeJob& job, int rank, int calls, int wrong_at) {
  GroupDigest& group = job.at(rank).group("world");
  for (int i = 0; i < calls; ++i) {
    job.call(rank, "world", sum_of(8));
    job.complete(rank, "world");
    if (group.called % 16 != 0) continue;
    group.hashes.push_back({group.called, static_cast<int>(group.called) >= wrong_at ? 2U : 1U});
    if (group.hashes.size() > 8) group.hashes.erase(group.hashes.begin());
  }
}

TEST(DetectorMismatch, HashesRevealAMismatchOfCallsThatWereNeverRead) {
  FakeJob job = running_job(3);
  for (const int rank : {0, 1, 2})
    compute(job, rank, 300, rank == 1 ? 270 : 1000);
  EXPECT_LT(job.until_said(seconds(5)), seconds(2));
  const Finding finding = job.verdict();
  EXPECT_EQ(finding.from_ordinal, 257U);
  EXPECT_EQ(job.said(),
            "verdict signature 1 <-  one of the calls #257 to #272 #272 world proof high");
}

TEST(DetectorMismatch, AHashOfCallsThatWereAllComparedProvesNothing) {
  FakeJob job = running_job(2);
  for (int i = 0; i < 20; ++i) {
    for (const int rank : {0, 1})
      compute(job, rank, 1, rank == 1 ? 16 : 1000);
    job.pass(milliseconds(250));
  }
  EXPECT_EQ(job.said(), "");
}

TEST(DetectorMismatch, HashesOfDifferentSourcesAreNotCompared) {
  FakeJob job = running_job(2);
  job.at(1).digest.source = 2;
  for (const int rank : {0, 1})
    compute(job, rank, 300, rank == 1 ? 16 : 1000);
  job.pass(seconds(3));
  EXPECT_EQ(job.said(), "");
}

TEST(DetectorMismatch, TheHangAfterAMismatchGetsNoVerdictOfItsOwn) {
  FakeJob job = running_job(4);
  job.open("tp", {2, 3});
  job.call(0, "world", sum_of(8));
  job.call(1, "world", sum_of(8));
  job.call(2, "world", sum_of(9));
  job.call(3, "tp", kBarrier);
  job.pass(seconds(700));
  EXPECT_EQ(job.said(),
            "verdict signature 2 <- 0-1 all_reduce (sum) of 8 float32 #2 world proof high");
}

}  // namespace
}  // namespace muster::hang
