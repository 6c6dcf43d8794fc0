// Rare combinations: a node that returns before its old process is known to be dead, a round of
// another host with the same number, a failure beside a leave or a loss, spares that go, the host's
// own agent that leaves.
#include <csignal>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/rendezvous/membership/membership_harness.h"

namespace muster {
namespace {

using namespace membership;  // NOLINT: the words of the protocol
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;
using testing::Not;

// Gives every node a fixed rank: a 0, b 1, ...
void run_ranked(MembershipDriver& m, const std::vector<std::string>& names) {
  for (size_t i = 0; i < names.size(); ++i) {
    m.job.node_rank = static_cast<int>(i);
    m.join(names[i]);
  }
  for (const std::string& name : names)
    m.ready(name);
  m.open_store(1);
  for (const std::string& name : names)
    m.running(name, 1);
}

const std::string kRankTaken =
    "b.2: Refused{rank_taken, \"node rank 1 belongs to b already; give b another --node-rank, or "
    "end the other one\"} | b.2: Hangup";

// ---- A node that was restarted without a goodbye.

TEST(MembershipRestart, DoesNotEndTheJobBeforeTheOldProcessIsLost) {
  MembershipDriver m(2, 2);
  run_ranked(m, {"a", "b"});
  EXPECT_EQ(m.live(milliseconds{1400}, {"a"}), "");
  EXPECT_EQ(m.join("b.2"), kRankTaken);
  // After a beat and a half the old process may be gone, so its successor may queue.
  EXPECT_EQ(m.live(milliseconds{200}, {"a"}), "");
  EXPECT_EQ(m.join("b.2"), "");
  EXPECT_EQ(m.ready("b.2"), "");
  EXPECT_EQ(m.live(milliseconds{1400}, {"a", "b.2"}),
            "b: Hangup | a: Stop{epoch 1, lost, \"b (node rank 1) was lost: no sign of life for 3 "
            "s; a new round forms with 2 nodes\"}");
  EXPECT_EQ(m.ready("a", 1), "CloseStore{1} | OpenStore{2, 10.0.1.a 10.0.1.b}");
  m.open_store(2);
  EXPECT_EQ(m.round("b.2").node_rank, 1);
  EXPECT_EQ(m.round("a").changes, 1);
}

TEST(MembershipRestart, MakesAnUnrankedNodeASpareUntilTheOldProcessIsLost) {
  MembershipDriver m(2, 2);
  m.run({"a", "b"});
  m.live(seconds{1}, {"a"});
  m.join("b.2");
  EXPECT_EQ(m.ready("b.2"),
            "b.2: Wait{spare, \"2 of 2 nodes run; this one waits up to 15 s for a place\"}");
  EXPECT_THAT(m.live(seconds{2}, {"a", "b.2"}),
              HasSubstr("a: Stop{epoch 1, lost, \"b (node rank 1) was lost"));
  EXPECT_EQ(m.ready("a", 1), "CloseStore{1} | OpenStore{2, 10.0.1.a 10.0.1.b}");
  m.open_store(2);
  EXPECT_EQ(m.round("b.2").node_rank, 1);
}

TEST(MembershipRestart, IsRefusedIfTheSilentOldProcessReportsAgain) {
  MembershipDriver m(2, 2);
  run_ranked(m, {"a", "b"});
  m.live(milliseconds{1600}, {"a"});
  m.join("b.2");
  m.ready("b.2");
  EXPECT_EQ(m.running("b", 1), kRankTaken);
  EXPECT_EQ(m.live(seconds{10}, {"a", "b"}), "");
}

TEST(MembershipRestart, WaitsForALeavingOldProcessToEnd) {
  MembershipDriver m(2, 2);
  run_ranked(m, {"a", "b"});
  m.leaving("b", 1, SIGTERM, false);
  EXPECT_EQ(m.join("b.2"), "");
  EXPECT_EQ(m.ready("b.2"), "");
  m.ready("a", 1);
  m.leaving("b", 1, SIGTERM, false);  // A heartbeat does not expel the successor.
  EXPECT_EQ(m.leaving("b", 1, SIGTERM, true), "CloseStore{1}");
  EXPECT_EQ(m.goodbye("b"), "b: Hangup | OpenStore{2, 10.0.1.a 10.0.1.b}");
  m.open_store(2);
  EXPECT_EQ(m.round("b.2").node_rank, 1);
}

TEST(MembershipRestart, GivesTheRankToTheSecondSuccessorIfTheFirstIsGone) {
  MembershipDriver m(1, 2);
  run_ranked(m, {"a", "b"});
  m.disconnect("b");
  m.join("b.2");
  m.ready("b.2");
  m.disconnect("b.2");
  m.join("b.3");
  m.ready("b.3");
  m.live(milliseconds{250}, {"a", "b.3"});
  m.ready("a", 1);
  m.live(milliseconds{250}, {"a", "b.3"});
  m.open_store(2);
  EXPECT_EQ(m.round("b.3").node_rank, 1);
  EXPECT_EQ(m.order("b.2"), std::nullopt);
}

// ---- A round of another host.

TEST(MembershipReturn, IgnoresAnEarlierHostsRoundWithTheSameNumber) {
  MembershipDriver m(1, 3);
  m.job.last_call = Duration{};
  m.job.max_restarts = 1;
  m.run({"a"});
  m.fail("a", 1, boom(0));
  m.job.last_epoch = 1;
  m.job.last_rank = 0;
  m.job.last_instance = 99;
  EXPECT_EQ(m.join("c"), "");  // Never part of this round, so not declared lost.
  EXPECT_THAT(m.running("c", 1), HasSubstr("c: Stop{epoch 1, lost, "));
  // It is not waited for and does not keep its rank of that round.
  EXPECT_EQ(m.ready("a", 1), "CloseStore{1} | OpenStore{2, 10.0.1.a}");
  m.open_store(2);
  EXPECT_EQ(m.round("a").node_rank, 0);
  EXPECT_EQ(m.round("a").restarts, 1);
}

TEST(MembershipReturn, PrefersOwnRanksToThoseOfAnEarlierHost) {
  MembershipDriver m(1, 2);
  m.job.last_call = Duration{};
  m.run({"b"});
  m.job.last_epoch = 1;
  m.job.last_rank = 0;
  m.job.last_instance = 99;
  m.join("a");
  EXPECT_THAT(m.ready("a", 1), HasSubstr("b: Stop{epoch 1, joined, "));
  m.ready("b", 1);
  m.open_store(2);
  EXPECT_EQ(m.round("b").node_rank, 0);
  EXPECT_EQ(m.round("a").node_rank, 1);
}

// ---- Done while another node is not.

TEST(MembershipDone, ADoneNodeRunsAgainIfAnotherFails) {
  MembershipDriver m(2, 2);
  m.job.max_restarts = 1;
  m.run({"a", "b"});
  m.done("a", 1);
  const std::string stop =
      "Stop{epoch 1, failure, \"rank 1 on b (node rank 1) exited with 3: boom; all ranks are "
      "stopped, 1 of 1 restarts left\"}";
  EXPECT_EQ(m.fail("b", 1, boom(1)), "a: " + stop + " | b: " + stop);
  EXPECT_EQ(m.ready("b", 1), "");
  EXPECT_EQ(m.done("a", 1), "");  // Reported before the stop arrived.
  EXPECT_EQ(m.ready("a", 1), "CloseStore{1} | OpenStore{2, 10.0.1.a 10.0.1.b}");
  m.open_store(2);
  EXPECT_EQ(m.round("a").restarts, 1);
}

TEST(MembershipDone, AnotherNodesFailureIsTheVerdictIfNoRestartIsLeft) {
  MembershipDriver m(2, 2);
  m.run({"a", "b"});
  m.done("a", 1);
  m.fail("b", 1, boom(1));
  m.ready("a", 1);
  EXPECT_THAT(m.ready("b", 1), HasSubstr("End{failed, exit 3, node rank 1 on \"b\""));
  EXPECT_EQ(m.end("a"), m.end("b"));
}

TEST(MembershipDone, ADoneNodeDoesNotRunAgainAfterALoss) {
  MembershipDriver m(1, 2);
  m.run({"a", "b"});
  m.done("a", 1);
  m.disconnect("b");
  EXPECT_THAT(
      m.live(milliseconds{250}, {"a"}),
      HasSubstr("Say{b (node rank 1) was lost: its connection broke and it did not reconnect "
                "within 250 ms; all workers of the other nodes have exited with 0}"));
  EXPECT_EQ(m.end("a").why, EndWhy::success);
}

TEST(MembershipDone, TheLastDoneIsSuccessEvenIfAnotherNodeIsInItsGrace) {
  MembershipDriver m(2, 2);
  m.run({"a", "b"});
  m.done("a", 1);
  m.disconnect("a");
  EXPECT_THAT(m.done("b", 1), HasSubstr("b: End{success"));
  EXPECT_THAT(m.join("a"), HasSubstr("a: End{success"));
}

// ---- A failure beside a leave.

TEST(MembershipLeave, CostsNoRestartIfTheLeaversWorkersDieOfTheSignal) {
  MembershipDriver m(1, 2);
  m.job.max_restarts = 1;
  m.run({"a", "b"});
  m.leaving("b", 1, SIGTERM, false);
  Report report;
  report.epoch = 1;
  report.phase = Phase::leaving;
  report.reaped = false;
  report.signal = SIGTERM;
  report.failure = boom(1);
  EXPECT_EQ(m.report("b", report), "");
  m.ready("a", 1);
  report.reaped = true;
  EXPECT_EQ(m.report("b", report), "CloseStore{1} | OpenStore{2, 10.0.1.a}");
  m.open_store(2);
  EXPECT_EQ(m.round("a").restarts, 0);
  EXPECT_EQ(m.round("a").changes, 1);
}

TEST(MembershipLeave, CountsAsAMembershipChangeAfterAFailure) {
  MembershipDriver m(1, 2);
  m.run({"a", "b"});
  EXPECT_THAT(m.fail("a", 1, boom(0)), HasSubstr("failure"));
  EXPECT_EQ(m.leaving("b", 1, SIGTERM, true),
            "b: Stop{epoch 1, left, \"b (node rank 1) leaves (SIGTERM)\"}");
  EXPECT_EQ(m.ready("a", 1), "CloseStore{1} | OpenStore{2, 10.0.1.a}");
  m.open_store(2);
  EXPECT_EQ(m.round("a").restarts, 0);
  EXPECT_EQ(m.round("a").changes, 1);
}

TEST(MembershipLeave, NamesAnEarlierFailureIfTooFewRemain) {
  MembershipDriver m(2, 2);
  m.job.max_restarts = 1;
  m.run({"a", "b"});
  m.fail("a", 1, boom(0));
  m.leaving("b", 1, SIGTERM, true);
  m.ready("a", 1);
  EXPECT_EQ(m.end("a").text,
            "b (node rank 1) leaves (SIGTERM); 1 node left, the job needs 2; before that, rank 0 "
            "on a (node rank 0) exited with 3: boom");
  EXPECT_EQ(m.end("a").exit_code, 128 + SIGTERM);
}

TEST(MembershipLeave, DoesNotHideAFailureThatCannotBeRepeated) {
  MembershipDriver m(1, 2);
  m.job.max_restarts = 3;
  m.run({"a", "b"});
  m.leaving("b", 1, SIGTERM, false);
  m.fail("a", 1, boom(0, true));
  m.leaving("b", 1, SIGTERM, true);
  EXPECT_THAT(m.ready("a", 1), HasSubstr("a: End{failed, exit 3, node rank 0 on \"a\""));
}

TEST(MembershipLeave, LetsTheOthersContinueWithoutTheHostsOwnAgent) {
  MembershipDriver m(1, 3);
  m.job.is_host = true;
  m.join("z");
  m.job.is_host = false;
  m.join("a");
  m.join("b");
  for (const char* name : {"z", "a", "b"})
    m.ready(name);
  m.open_store(1);
  EXPECT_EQ(m.round("z").node_rank, 0);
  for (const char* name : {"z", "a", "b"})
    m.running(name, 1);
  m.leaving("z", 1, SIGTERM, true);
  EXPECT_EQ(m.goodbye("z"), "z: Hangup");  // Not Finished, since the host is needed.
  m.ready("a", 1);
  EXPECT_EQ(m.ready("b", 1), "CloseStore{1} | OpenStore{2, 10.0.1.a 10.0.1.b}");
  m.open_store(2);
  // The survivors keep their ranks if these exist, and the host's address stays the store's.
  EXPECT_EQ(m.round("a").node_rank, 1);
  EXPECT_EQ(m.round("b").node_rank, 0);
  EXPECT_EQ(m.round("a").master_addr, "10.0.0.1");
  m.done("a", 2);
  m.done("b", 2);
  m.goodbye("a");
  EXPECT_EQ(m.goodbye("b"), "b: Hangup | CloseStore{2} | Finished");
}

// ---- Spares that go.

TEST(MembershipSpare, ChangesNothingInAnyStageIfLost) {
  MembershipDriver m(2, 2);
  m.job.max_restarts = 1;
  for (const char* name : {"a", "b", "c", "d", "e"})
    m.join(name);
  for (const char* name : {"a", "b"})
    m.ready(name);
  for (const char* name : {"c", "d", "e"})
    EXPECT_THAT(m.ready(name), HasSubstr("Wait{spare"));
  m.disconnect("c");
  EXPECT_EQ(m.live(milliseconds{250}, {"a", "b", "d", "e"}), "");
  m.open_store(1);
  m.running("a", 1);
  m.running("b", 1);
  m.disconnect("d");
  EXPECT_EQ(m.live(milliseconds{250}, {"a", "b", "e"}), "");
  m.fail("a", 1, boom(0));
  m.disconnect("e");
  EXPECT_EQ(m.live(milliseconds{250}, {"a", "b"}), "");
  m.ready("a", 1);
  EXPECT_EQ(m.ready("b", 1), "CloseStore{1} | OpenStore{2, 10.0.1.a 10.0.1.b}");
  m.open_store(2);
  EXPECT_EQ(m.round("a").restarts, 1);
  EXPECT_EQ(m.round("a").changes, 0);
}

TEST(MembershipSpare, EndsTheJobForTheLostNodeIfItIsLostToo) {
  MembershipDriver m(2, 2);
  m.run({"a", "b"});
  m.join("c");
  m.ready("c");
  m.disconnect("b");
  EXPECT_THAT(m.live(milliseconds{250}, {"a", "c"}), HasSubstr("a new round forms with 2 nodes"));
  m.disconnect("c");
  m.live(milliseconds{250}, {"a"});
  m.ready("a", 1);
  EXPECT_EQ(m.end("a").host_name, "b");
  EXPECT_EQ(m.end("a").text,
            "b (node rank 1) was lost: its connection broke and it did not reconnect within 250 "
            "ms; 1 node left, the job needs 2");
}

TEST(MembershipSpare, IsNoReplacementBeforeItIsReady) {
  MembershipDriver m(2, 2);
  m.run({"a", "b"});
  m.join("c");  // Reports nothing.
  m.live(seconds{1}, {"a", "b"});
  m.disconnect("b");
  m.live(milliseconds{250}, {"a"});
  EXPECT_EQ(m.ready("a", 1), "CloseStore{1}");
  // It must show life like any other node.
  EXPECT_EQ(
      m.live(seconds{5}, {"a"}),
      "c: Hangup | a: End{lost, exit 122, \"c was lost: no sign of life for 3 s; 1 node left, "
      "the job needs 2\", 0 restarts, 1 changes}");
}

// ---- All nodes at once.

TEST(MembershipStorm, FailuresOfAllNodesAtOnceCostOneRestart) {
  MembershipDriver m(3, 3);
  m.job.max_restarts = 1;
  m.run({"a", "b", "c"});
  for (const char* name : {"b", "a", "c"})
    m.fail(name, 1, boom(0));
  m.ready("c", 1);
  m.ready("a", 1);
  EXPECT_THAT(m.ready("b", 1), HasSubstr("OpenStore{2"));
  m.open_store(2);
  EXPECT_EQ(m.round("a").restarts, 1);
  for (const char* name : {"c", "b", "a"})
    m.fail(name, 2, boom(0));
  for (const char* name : {"a", "b", "c"})
    m.ready(name, 2);
  EXPECT_EQ(m.end("a").host_name, "c");
  EXPECT_EQ(m.end("a"), m.end("b"));
  EXPECT_EQ(m.end("b"), m.end("c"));
}

TEST(MembershipStorm, LeavesOfAllNodesAtOnceEndTheJobWithTheFirstSignal) {
  MembershipDriver m(2, 3);
  m.run({"a", "b", "c"});
  for (const char* name : {"b", "a", "c"})
    m.leaving(name, 1, SIGTERM, false);
  for (const char* name : {"a", "b"})
    EXPECT_EQ(m.leaving(name, 1, SIGTERM, true), "");
  EXPECT_THAT(m.leaving("c", 1, SIGTERM, true), HasSubstr("CloseStore{1} | a: End{stopped"));
  EXPECT_EQ(m.end("a").host_name, "b");
  EXPECT_EQ(m.end("a").exit_code, 128 + SIGTERM);
}

TEST(MembershipStorm, ANodeLostWhileARestartFormsIsNoLongerWaitedFor) {
  MembershipDriver m(1, 3);
  m.job.max_restarts = 1;
  m.run({"a", "b", "c"});
  m.fail("a", 1, boom(0));
  for (const char* name : {"a", "b"})
    m.ready(name, 1);
  m.disconnect("c");
  EXPECT_EQ(m.live(milliseconds{250}, {"a", "b"}),
            "CloseStore{1} | OpenStore{2, 10.0.1.a 10.0.1.b}");
  m.open_store(2);
  EXPECT_EQ(m.round("a").restarts, 0);
  EXPECT_EQ(m.round("a").changes, 1);
}

TEST(MembershipStorm, AnAgentThatReportsReadyAfterItsLeaveStaysGone) {
  MembershipDriver m(1, 2);
  m.run({"a", "b"});
  m.leaving("b", 1, SIGTERM, true);
  EXPECT_EQ(m.ready("b", 1), "");
  EXPECT_EQ(m.ready("a", 1), "CloseStore{1} | OpenStore{2, 10.0.1.a}");
  m.open_store(2);
  EXPECT_EQ(m.round("a").nodes, 1);
}

}  // namespace
}  // namespace muster
