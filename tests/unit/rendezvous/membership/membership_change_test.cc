// Membership changes and identity: nodes that are lost, leave, come late or come back.
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

std::string stop_text(Epoch epoch, const std::string& why, const std::string& text) {
  return "Stop{epoch " + std::to_string(epoch) + ", " + why + ", \"" + text + "\"}";
}

// ---- Leases and connections.

TEST(MembershipLoss, AnyMessageRenewsTheLease) {
  MembershipDriver m(2, 2);
  m.job.max_restarts = 1;
  m.run({"a", "b"});
  m.fail("b", 1, boom(1));
  for (int i = 0; i < 10; ++i) {
    m.live(milliseconds{1500}, {});
    m.stopping("a", 1);
    m.ready("b", 1);
  }
  m.live(milliseconds{1500}, {});
  m.ready("b", 1);
  EXPECT_EQ(m.ready("a", 1), "CloseStore{1} | OpenStore{2, 10.0.1.a 10.0.1.b}");
  m.live(milliseconds{1500}, {});
  m.join("a");
  m.join("b");
  EXPECT_EQ(m.live(milliseconds{2900}, {}), "");
  // Even an outdated report renews the lease.
  m.step(Reported{m.connection("a"), {}});
  m.step(Reported{m.connection("b"), {}});
  EXPECT_EQ(m.live(milliseconds{2900}, {}), "");
}

TEST(MembershipLoss, AReconnectWithinTheGraceChangesNothing) {
  MembershipDriver m(2, 2);
  m.run({"a", "b"});
  EXPECT_EQ(m.disconnect("b"), "");
  EXPECT_EQ(m.live(milliseconds{249}, {"a"}), "");
  EXPECT_THAT(m.join("b"), HasSubstr("b: Round{epoch 1"));
  EXPECT_EQ(m.running("b", 1), "");
  EXPECT_EQ(m.live(seconds{10}, {"a", "b"}), "");
}

TEST(MembershipLoss, ABrokenConnectionIsALossAfterTheGrace) {
  MembershipDriver m(1, 2);
  m.run({"a", "b"});
  m.disconnect("b");
  EXPECT_EQ(m.live(milliseconds{250}, {"a"}),
            "a: " + stop_text(1, "lost",
                              "b (node rank 1) was lost: its connection broke and it did not "
                              "reconnect within 250 ms; a new round forms with 1 node"));
  EXPECT_EQ(m.ready("a", 1), "CloseStore{1} | OpenStore{2, 10.0.1.a}");
  m.open_store(2);
  const Round expected{2, 0, 1, 0, 1, 0, 1, "10.0.0.1", 4002, 0, 1};
  EXPECT_EQ(m.round("a"), expected);
}

TEST(MembershipLoss, AStandstillOfTheHostLosesNoNode) {
  for (const Duration standstill : {Duration(milliseconds{2200}), Duration(milliseconds{3200}),
                                    Duration(seconds{100}), Duration(std::chrono::hours{10})}) {
    MembershipDriver m(2, 2);
    m.run({"a", "b"});
    m.live(seconds{10}, {"a", "b"});
    m.pass(standstill);
    EXPECT_EQ(m.tick(), "");
    EXPECT_EQ(m.live(milliseconds{2999}, {"a"}), "") << standstill.count();
    EXPECT_THAT(m.live(milliseconds{1}, {"a"}), HasSubstr("b (node rank 1) was lost"));
  }
}

TEST(MembershipLoss, AStandstillOfTheHostIsNoticedAtAnyEvent) {
  MembershipDriver m(2, 2);
  m.run({"a", "b"});
  m.pass(seconds{60});
  m.notes();
  EXPECT_EQ(m.running("a", 1), "");
  EXPECT_EQ(m.tick(), "");
  EXPECT_EQ(m.notes(),
            (std::vector<std::string>{"this host stalled for 60 s: all leases are renewed"}));
}

TEST(MembershipLoss, ANodeThatAbandonedTheRoundCountsAsLost) {
  MembershipDriver m(2, 2);
  m.run({"a", "b"});
  EXPECT_EQ(m.ready("b", 1),
            "a: " +
                stop_text(1, "lost",
                          "b (node rank 1) abandoned the round: it had lost contact with this "
                          "host; a new round forms with 2 nodes") +
                " | b: " +
                stop_text(1, "lost",
                          "b (node rank 1) abandoned the round: it had lost contact with this "
                          "host; a new round forms with 2 nodes"));
  EXPECT_EQ(m.ready("a", 1), "CloseStore{1} | OpenStore{2, 10.0.1.a 10.0.1.b}");
}

// ---- Consequences of losses.

TEST(MembershipLoss, TooFewRemainingNodesEndTheJobAtOnce) {
  MembershipDriver m(2, 2);
  m.run({"a", "b"});
  EXPECT_EQ(
      m.live(milliseconds{3000}, {"a"}),
      "b: Hangup | a: End{lost, exit 122, node rank 1 on \"b\", \"b (node rank 1) was lost: no "
      "sign of life for 3 s; 1 node left, the job needs 2\", 0 restarts, 0 changes}");
}

TEST(MembershipLoss, ALossExplainsTheFailuresThatItCauses) {
  MembershipDriver m(2, 3);
  m.job.max_restarts = 0;
  m.run({"a", "b", "c"});
  m.live(seconds{1}, {"a", "b"});
  m.fail("a", 1, boom(0));  // As if its peer did not answer.
  m.ready("a", 1);
  m.ready("b", 1);
  EXPECT_EQ(m.live(milliseconds{2000}, {"a", "b"}),
            "c: Hangup | CloseStore{1} | OpenStore{2, 10.0.1.a 10.0.1.b}");
  m.open_store(2);
  EXPECT_EQ(m.round("b").restarts, 0);
  EXPECT_EQ(m.round("b").changes, 1);
}

TEST(MembershipLoss, TheEndForTooFewNodesNamesAnEarlierFailure) {
  MembershipDriver m(2, 2);
  m.job.max_restarts = 1;
  m.run({"a", "b"});
  m.fail("b", 1, boom(1));
  m.disconnect("b");
  EXPECT_EQ(m.live(seconds{3}, {"a"}), "");  // The judge decides why the job ends.
  EXPECT_THAT(m.ready("a", 1),
              HasSubstr("1 node left, the job needs 2; before that, rank 1 on b (node rank 1) "
                        "exited with 3: boom"));
}

TEST(MembershipLoss, OnlySurvivorsAreWaitedFor) {
  MembershipDriver m(1, 3);
  m.run({"a", "b", "c"});
  m.disconnect("b");
  m.live(milliseconds{250}, {"a", "c"});
  EXPECT_EQ(m.ready("a", 1), "");
  EXPECT_EQ(m.ready("c", 1), "CloseStore{1} | OpenStore{2, 10.0.1.a 10.0.1.c}");
  m.open_store(2);
  EXPECT_EQ(m.round("a").node_rank, 0);
  EXPECT_EQ(m.round("c").node_rank, 1);
}

TEST(MembershipLoss, ALossWhileTheStoreIsOpenedFormsANewRound) {
  MembershipDriver m(1, 2);
  m.join("a");
  m.join("b");
  m.ready("a");
  m.ready("b");
  m.disconnect("b");
  // No node got the round yet, so none is stopped.
  EXPECT_EQ(m.live(milliseconds{250}, {}), "CloseStore{1} | OpenStore{2, 10.0.1.a}");
  EXPECT_EQ(m.open_store(1), "");
  EXPECT_THAT(m.open_store(2), HasSubstr("a: Round{epoch 2, node 0 of 1"));
}

TEST(MembershipLoss, TheMembershipBudgetCountsChangesAndEndsTheJob) {
  MembershipDriver m(1, 3);
  m.job.max_membership_changes = 1;
  m.run({"a", "b", "c"});
  m.disconnect("c");
  m.live(milliseconds{250}, {"a", "b"});
  m.ready("a", 1);
  m.ready("b", 1);
  m.open_store(2);
  m.running("a", 2);
  m.running("b", 2);
  m.disconnect("b");
  EXPECT_THAT(m.live(milliseconds{250}, {"a"}),
              HasSubstr("the budget of 1 membership change is spent"));
  EXPECT_THAT(m.ready("a", 2),
              HasSubstr("a: End{lost, exit 122, node rank 1 on \"b\", \"b (node rank 1) was lost"));
  EXPECT_EQ(m.end("a").changes, 1);
}

TEST(MembershipLoss, AReturningLostNodeIsWaitedForWhileTheEpochStops) {
  MembershipDriver m(1, 2);
  m.run({"a", "b"});
  m.disconnect("b");
  m.live(milliseconds{250}, {"a"});
  m.job.last_epoch = 1;
  m.job.last_rank = 1;
  EXPECT_EQ(m.join("b"), "b: " + stop_text(1, "lost", "this node had been declared lost"));
  m.running("b", 1);
  EXPECT_EQ(m.ready("a", 1), "");
  EXPECT_EQ(m.ready("b", 1), "CloseStore{1} | OpenStore{2, 10.0.1.a 10.0.1.b}");
  m.open_store(2);
  EXPECT_EQ(m.round("b").node_rank, 1);
}

TEST(MembershipLoss, ALostNodeThatReturnsLaterIsStoppedAndANewcomer) {
  MembershipDriver m(1, 2);
  m.run({"a", "b"});
  m.disconnect("b");
  m.live(milliseconds{250}, {"a"});
  m.ready("a", 1);
  m.open_store(2);
  m.running("a", 2);
  m.job.last_epoch = 1;
  m.job.last_rank = 1;
  EXPECT_EQ(m.join("b"), "");
  EXPECT_EQ(m.running("b", 1),
            "b: " + stop_text(1, "lost", "epoch 1 is over: this node had been declared lost"));
  EXPECT_EQ(m.stopping("b", 1), "");
  EXPECT_THAT(m.ready("b", 1), HasSubstr("a: Stop{epoch 2, joined, \"b has joined"));
}

TEST(MembershipLoss, ALossAfterAStopEndsTheJobIfTooFewRemain) {
  MembershipDriver m(2, 3);
  m.run({"a", "b", "c"});
  m.fail("c", 1, boom(2));
  m.leaving("c", 1, SIGTERM, true);
  m.ready("a", 1);
  m.disconnect("a");
  EXPECT_EQ(m.ready("b", 1), "CloseStore{1}");  // a may be back within its grace.
  EXPECT_EQ(m.live(milliseconds{250}, {"b", "c"}),
            "b: End{lost, exit 122, node rank 0 on \"a\", \"a (node rank 0) was lost: its "
            "connection broke and it did not reconnect within 250 ms; 1 node left, the job needs "
            "2\", 0 restarts, 1 changes} | c: End{lost, exit 122, node rank 0 on \"a\", \"a (node "
            "rank 0) was lost: its connection broke and it did not reconnect within 250 ms; 1 node "
            "left, the job needs 2\", 0 restarts, 1 changes}");
}

// ---- Leaving.

TEST(MembershipLeave, IsAnnouncedToAllAtOnceAndToTheLeaver) {
  MembershipDriver m(1, 2);
  m.run({"a", "b"});
  const std::string text = stop_text(1, "left",
                                     "b (node rank 1) leaves (SIGTERM); a new round forms "
                                     "with 1 node");
  EXPECT_EQ(m.leaving("b", 1, SIGTERM, false), "a: " + text + " | b: " + text);
  EXPECT_EQ(m.ready("a", 1), "");
  EXPECT_EQ(m.leaving("b", 1, SIGTERM, true), "CloseStore{1} | OpenStore{2, 10.0.1.a}");
  EXPECT_EQ(m.goodbye("b"), "b: Hangup");
  EXPECT_THAT(m.open_store(2), HasSubstr("a: Round{epoch 2, node 0 of 1"));
}

TEST(MembershipLeave, IsAnnouncedAsASignalToAllProcessesIfItIsOne) {
  MembershipDriver m(1, 2);
  m.run({"a", "b"});
  EXPECT_THAT(m.leaving("b", 1, SIGTERM, false, true),
              HasSubstr("a: Stop{epoch 1, left, all signalled, \"b (node rank 1) leaves"));
}

TEST(MembershipLeave, EndsTheJobWithItsSignalIfTooFewRemain) {
  MembershipDriver m(2, 2);
  m.run({"a", "b"});
  EXPECT_THAT(m.leaving("b", 1, SIGTERM, false),
              HasSubstr("a: Stop{epoch 1, left, \"b (node rank 1) leaves (SIGTERM); 1 node left, "
                        "the job needs 2\"}"));
  m.leaving("b", 1, SIGTERM, true);
  EXPECT_THAT(m.ready("a", 1),
              HasSubstr("a: End{stopped, exit 143, signal 15, node rank 1 on \"b\""));
  EXPECT_EQ(m.end("a").text, "b (node rank 1) leaves (SIGTERM); 1 node left, the job needs 2");
  EXPECT_EQ(m.goodbye("b"), "b: Hangup");
  EXPECT_EQ(m.goodbye("a"), "a: Hangup | Finished");
}

TEST(MembershipLeave, FinishesTheJobIfAllNodesLeave) {
  MembershipDriver m(1, 2);
  m.run({"a", "b"});
  m.leaving("a", 1, SIGINT, false);
  EXPECT_EQ(m.leaving("b", 1, SIGINT, false),
            "b: " + stop_text(1, "left", "b (node rank 1) leaves (SIGINT)"));
  m.leaving("a", 1, SIGINT, true);
  m.goodbye("a");
  EXPECT_THAT(m.leaving("b", 1, SIGINT, true), HasSubstr("b: End{stopped, exit 130, signal 2"));
  EXPECT_EQ(m.goodbye("b"), "b: Hangup | Finished");
}

TEST(MembershipLeave, IsCompleteOnceTheReapedLeaverDisconnects) {
  MembershipDriver m(1, 2);
  m.run({"a", "b"});
  m.ready("a", 1);
  m.leaving("b", 1, SIGTERM, true);
  EXPECT_EQ(m.disconnect("b"), "");
  EXPECT_THAT(m.notes(), Not(testing::Contains(HasSubstr("lost: its connection"))));
}

TEST(MembershipLeave, IsAnsweredBeforeTheRoundRuns) {
  MembershipDriver m(1, 2);
  m.join("a");
  m.join("b");
  m.ready("a");
  m.ready("b");
  EXPECT_EQ(m.leaving("b", 0, SIGTERM, true),
            "b: " +
                stop_text(1, "left",
                          "b (node rank 1) leaves (SIGTERM); a new round forms with 1 "
                          "node") +
                " | CloseStore{1} | OpenStore{2, 10.0.1.a}");
}

TEST(MembershipLeave, LeavesTheOthersTimeForASignalOfTheirOwn) {
  MembershipDriver m(1, 3, {});
  m.run({"a", "b", "c"});
  m.leaving("c", 1, SIGTERM, true);
  EXPECT_EQ(m.ready("a", 1), "");
  EXPECT_EQ(m.ready("b", 1), "CloseStore{1}");
  EXPECT_EQ(m.live(milliseconds{249}, {"a", "b"}), "");
  EXPECT_EQ(m.leaving("b", 1, SIGTERM, true),
            "b: " + stop_text(1, "left", "b (node rank 1) leaves (SIGTERM)"));
  EXPECT_EQ(m.live(milliseconds{249}, {"a"}), "");
  EXPECT_EQ(m.live(milliseconds{1}, {}), "OpenStore{2, 10.0.1.a}");
}

TEST(MembershipLeave, OnSignalsThatAreApartBeginsNoRound) {
  MembershipDriver m(1, 2, {});
  m.run({"a", "b"});
  m.leaving("b", 1, SIGTERM, true);
  m.ready("a", 1);
  m.goodbye("b");
  m.live(milliseconds{200}, {"a"});
  EXPECT_THAT(m.leaving("a", 1, SIGTERM, true), HasSubstr("a: End{stopped, exit 143, signal 15"));
}

// ---- Newcomers and spares.

TEST(MembershipJoin, ALateReadyNodeBringsANewRound) {
  MembershipDriver m(1, 2);
  m.job.last_call = Duration{};
  m.run({"b"});
  EXPECT_EQ(m.join("a"), "");
  EXPECT_EQ(m.ready("a"),
            "b: " + stop_text(1, "joined", "a has joined; a new round forms with it"));
  EXPECT_EQ(m.ready("b", 1), "CloseStore{1} | OpenStore{2, 10.0.1.a 10.0.1.b}");
  m.open_store(2);
  EXPECT_EQ(m.round("b").node_rank, 0);
  EXPECT_EQ(m.round("a").node_rank, 1);
  EXPECT_EQ(m.round("a").changes, 1);
}

TEST(MembershipJoin, ALateNodeIsASpareIfTheBudgetIsSpent) {
  MembershipDriver m(1, 2);
  m.job.last_call = Duration{};
  m.job.max_membership_changes = 0;
  m.run({"a"});
  m.join("b");
  EXPECT_EQ(m.ready("b"),
            "b: Wait{spare, \"1 of 2 nodes run; this one is a spare: the budget of 0 membership "
            "changes is spent\"}");
  EXPECT_EQ(m.ready("b"), "");
}

TEST(MembershipJoin, ExtraNodesAreSparesAndReplaceALostNode) {
  MembershipDriver m(2, 2);
  m.job.spares = 1;
  m.run({"a", "b"});
  m.join("c");
  EXPECT_EQ(m.ready("c"), "c: Wait{spare, \"2 of 2 nodes run; this one is a spare\"}");
  m.disconnect("a");
  EXPECT_THAT(m.live(milliseconds{250}, {"b", "c"}), HasSubstr("b: Stop{epoch 1, lost, "));
  EXPECT_EQ(m.ready("b", 1), "CloseStore{1} | OpenStore{2, 10.0.1.b 10.0.1.c}");
  m.open_store(2);
  EXPECT_EQ(m.round("c").node_rank, 0);
  EXPECT_EQ(m.round("b").node_rank, 1);
}

TEST(MembershipJoin, ALostOrLeavingSpareChangesNothingForOthers) {
  MembershipDriver m(1, 1);
  m.run({"a"});
  for (const char* name : {"b", "c"}) {
    m.join(name);
    m.ready(name);
  }
  EXPECT_EQ(m.leaving("c", 0, SIGTERM, true), "c: " + stop_text(0, "left", "c leaves (SIGTERM)"));
  EXPECT_EQ(m.goodbye("c"), "c: Hangup");
  m.disconnect("b");
  EXPECT_EQ(m.live(seconds{1}, {"a"}), "");
  m.fail("a", 1, boom(0));
  EXPECT_THAT(m.ready("a", 1), HasSubstr("End{failed, exit 3"));
}

TEST(MembershipJoin, SparesGetTheEndLikeAllOthers) {
  MembershipDriver m(1, 1);
  m.run({"a"});
  m.join("b");
  m.ready("b");
  EXPECT_THAT(m.done("a", 1), HasSubstr("b: End{success, exit 0"));
}

TEST(MembershipJoin, NodesReadyInTimeJoinTheNextRoundAndOthersAreSpares) {
  MembershipDriver m(2, 3);
  m.job.last_call = Duration{};
  m.job.max_restarts = 1;
  m.run({"a", "b"});
  m.fail("a", 1, boom(0));
  for (const char* name : {"d", "c"}) {
    m.join(name);
    EXPECT_EQ(m.ready(name), "");
  }
  m.ready("a", 1);
  EXPECT_EQ(m.ready("b", 1),
            "CloseStore{1} | c: Wait{spare, \"3 of 3 nodes run; this one is a spare\"} | "
            "OpenStore{2, 10.0.1.a 10.0.1.b 10.0.1.d}");
}

// ---- Identity.

TEST(MembershipIdentity, ARestartedAgentQueuesUntilItsOldProcessIsLost) {
  MembershipDriver m(2, 2);
  m.job.node_rank = 0;
  m.join("a");
  m.ready("a");
  m.disconnect("a");
  EXPECT_EQ(m.join("a.2"), "");
  EXPECT_EQ(m.ready("a.2"), "");
  m.job.node_rank = 1;
  m.join("b");
  EXPECT_EQ(m.ready("b"), "");
  EXPECT_EQ(m.live(milliseconds{250}, {"a.2", "b"}), "OpenStore{1, 10.0.1.a 10.0.1.b}");
  m.open_store(1);
  EXPECT_EQ(m.round("a.2").node_rank, 0);
}

TEST(MembershipIdentity, AQueuedAgentIsRefusedIfTheRanksOwnerReturns) {
  MembershipDriver m(2, 2);
  m.job.node_rank = 0;
  m.join("a");
  m.ready("a");
  m.disconnect("a");
  m.join("x");
  m.ready("x");
  EXPECT_EQ(
      m.join("a"),
      "x: Refused{rank_taken, \"node rank 0 belongs to a already; give x another --node-rank, "
      "or end the other one\"} | x: Hangup");
  m.job.node_rank = 1;
  m.join("b");
  EXPECT_EQ(m.ready("b"), "OpenStore{1, 10.0.1.a 10.0.1.b}");
}

TEST(MembershipIdentity, ARestartedAgentIsANewcomerToARunningEpoch) {
  MembershipDriver m(2, 2);
  m.run({"a", "b"});
  m.disconnect("b");
  m.join("b.2");
  EXPECT_EQ(m.ready("b.2"),
            "b.2: Wait{spare, \"2 of 2 nodes run; this one waits up to 15 s for a place\"}");
  EXPECT_THAT(m.live(milliseconds{250}, {"a", "b.2"}), HasSubstr("a: Stop{epoch 1, lost"));
  EXPECT_EQ(m.ready("a", 1), "CloseStore{1} | OpenStore{2, 10.0.1.a 10.0.1.b}");
  m.open_store(2);
  EXPECT_EQ(m.round("b.2").node_rank, 1);
}

// ---- The host's return.

// The new host knows nothing; the agents come from epoch 7 of three nodes.
void past(MembershipDriver& m, int rank) {
  m.job.last_epoch = 7;
  m.job.last_nodes = 3;
  m.job.last_rank = rank;
  m.job.restarts = 2;
  m.job.changes = 4;
  m.job.max_restarts = 5;
}

TEST(MembershipReturn, ContinuesInANewEpochWithTheOldRanksAndBudgets) {
  MembershipDriver m(2, 4);
  m.job.max_restarts = 5;
  m.job.is_host = true;
  m.join("a.2");
  m.ready("a.2");
  m.job.is_host = false;
  past(m, 2);
  m.join("c");
  EXPECT_EQ(m.running("c", 7),
            "c: " + stop_text(7, "host", "the host of the job was restarted: epoch 7 is over"));
  past(m, 1);
  m.join("b");
  EXPECT_EQ(m.ready("b", 7), "");
  EXPECT_EQ(m.ready("c", 7), "OpenStore{8, 10.0.1.a 10.0.1.b 10.0.1.c}");
  m.open_store(8);
  const Round expected{8, 2, 3, 2, 3, 2, 3, "10.0.0.1", 4008, 2, 5};
  EXPECT_EQ(m.round("c"), expected);
  EXPECT_EQ(m.round("a.2").node_rank, 0);
  EXPECT_EQ(m.round("b").node_rank, 1);
}

TEST(MembershipReturn, WaitsALeaseInsteadOfTheLastCallForMissingNodes) {
  MembershipDriver m(2, 4);
  past(m, 1);
  m.join("b");
  m.ready("b", 7);
  past(m, 2);
  m.join("c");
  EXPECT_EQ(m.ready("c", 7), "");
  EXPECT_THAT(m.live(milliseconds{2999}, {"b", "c"}), Not(HasSubstr("OpenStore")));
  EXPECT_THAT(m.live(milliseconds{1}, {"b", "c"}), HasSubstr("OpenStore{8"));
}

TEST(MembershipReturn, CountsAsAMembershipChange) {
  MembershipDriver m(1, 4);
  past(m, 0);
  m.job.last_nodes = 1;
  m.job.max_membership_changes = 4;
  m.join("b");
  EXPECT_EQ(m.ready("b", 7),
            "b: End{lost, exit 122, \"the host of the job was restarted; the budget of 4 "
            "membership changes is spent\", 2 restarts, 4 changes}");
}

TEST(MembershipReturn, NeverReusesTheEpochOfALateSurvivor) {
  MembershipDriver m(1, 2);
  m.job.last_call = Duration{};
  m.run({"a"});
  past(m, 1);
  m.join("b");
  m.ready("b", 7);
  EXPECT_EQ(m.ready("a", 1), "CloseStore{1} | OpenStore{8, 10.0.1.a 10.0.1.b}");
  m.open_store(8);
  EXPECT_EQ(m.round("a").changes, 1);
}

TEST(MembershipReturn, ContinuesAfterTheHighestKnownEpoch) {
  MembershipDriver m(2, 2);
  past(m, 0);
  m.join("a");
  m.ready("a", 7);
  m.job.last_epoch = 9;
  m.join("b");
  EXPECT_EQ(m.ready("b", 9), "OpenStore{10, 10.0.1.a 10.0.1.b}");
}

}  // namespace
}  // namespace muster
