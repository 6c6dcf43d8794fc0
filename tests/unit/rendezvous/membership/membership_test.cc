// Forming, ranks, the store, success, failure and the protocol's conventions. Losses, leaves and
// newcomers are in membership_change_test.cc.
#include "rendezvous/membership/membership.h"

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
using testing::StartsWith;

// ---- Forming.

TEST(Membership, FormsAsSoonAsTheLastNodeIsReady) {
  MembershipDriver m(3, 3);
  EXPECT_EQ(m.join("a"), "");
  EXPECT_EQ(m.join("b"), "");
  EXPECT_EQ(m.join("c"), "");
  EXPECT_EQ(m.ready("c"), "");
  EXPECT_EQ(m.ready("a"), "");
  EXPECT_EQ(m.ready("b"), "OpenStore{1, 10.0.1.a 10.0.1.b 10.0.1.c}");
  EXPECT_EQ(m.open_store(1),
            "a: Round{epoch 1, node 0 of 3, ranks 0+ of 3, role ranks 0+ of 3, master "
            "10.0.0.1:4001, 0 restarts, 0 changes} | "
            "b: Round{epoch 1, node 1 of 3, ranks 1+ of 3, role ranks 1+ of 3, master "
            "10.0.0.1:4001, 0 restarts, 0 changes} | "
            "c: Round{epoch 1, node 2 of 3, ranks 2+ of 3, role ranks 2+ of 3, master "
            "10.0.0.1:4001, 0 restarts, 0 changes}");
  EXPECT_EQ(m.status(), "epoch 1 runs on 3 nodes");
}

TEST(Membership, WelcomesWithInstanceLeaseAndHeartbeat) {
  Membership::Options options;
  options.host_instance = 99;
  Membership machine(options);
  Join join;
  join.agent = {1, 2};
  join.lease = seconds{6};
  std::vector<Membership::Effect> effects;
  machine.step(Instant{}, Joined{5, join}, effects);
  EXPECT_EQ(effects,
            (std::vector<Membership::Effect>{Send{5, Welcome{99, Mac{}, seconds{6}, seconds{1}}},
                                             Note{"a node without a name is here"}}));
}

TEST(Membership, GivesAgentsWithoutALeaseTheDefault) {
  MembershipDriver m(1, 2);
  m.job.lease = Duration{};
  m.join("a");
  EXPECT_EQ(m.machine().next_deadline(), m.now() + milliseconds{750});
  EXPECT_EQ(m.live(milliseconds{2999}, {}), "");
  EXPECT_EQ(m.live(milliseconds{1}, {}), "a: Hangup | Finished");
}

TEST(Membership, FormsWithFewerNodesAfterTheLastCall) {
  MembershipDriver m(2, 4);
  m.join("a");
  m.ready("a");
  m.live(seconds{20}, {"a"});
  m.join("b");
  m.ready("b");
  EXPECT_EQ(m.status(), "2 of 4 nodes; here: a, b; starts with 2 in 10 s");
  EXPECT_THAT(m.live(milliseconds{9990}, {"a", "b"}), testing::Not(HasSubstr("OpenStore")));
  EXPECT_THAT(m.live(milliseconds{20}, {"a", "b"}), HasSubstr("OpenStore{1, 10.0.1.a 10.0.1.b}"));
}

TEST(Membership, CapsTheLastCallByTheJoinTimeOut) {
  MembershipDriver m(1, 4);
  m.job.join_timeout = seconds{5};
  m.join("a");
  m.ready("a");
  EXPECT_THAT(m.live(milliseconds{4990}, {"a"}), testing::Not(HasSubstr("OpenStore")));
  EXPECT_THAT(m.live(milliseconds{20}, {"a"}), HasSubstr("OpenStore{1, 10.0.1.a}"));
}

TEST(Membership, FormsOnceEnoughAreReadyAfterTheLastCall) {
  MembershipDriver m(2, 4);
  m.join("a");
  m.ready("a");
  m.live(seconds{40}, {"a"});
  m.join("b");
  EXPECT_EQ(m.ready("b"), "OpenStore{1, 10.0.1.a 10.0.1.b}");
}

TEST(Membership, FormsAtOnceWithTheFewestIfThereIsNoLastCall) {
  MembershipDriver m(2, 4);
  m.job.last_call = Duration{};
  m.join("a");
  m.ready("a");
  m.join("b");
  EXPECT_EQ(m.ready("b"), "OpenStore{1, 10.0.1.a 10.0.1.b}");
}

const std::string kCannotStart =
    "End{failed, exit 127, \"b: cannot run x.py: no such file\", 0 restarts, 0 changes}";

TEST(Membership, EndsAFixedJobAtOnceIfANodeCannotStart) {
  MembershipDriver m(3, 3);
  for (const char* name : {"a", "b"})
    m.join(name);
  m.ready("a");
  EXPECT_EQ(m.cannot_start("b"), "a: " + kCannotStart + " | b: " + kCannotStart);
}

TEST(Membership, TellsLaterNodesWhyTheJobCannotStart) {
  MembershipDriver m(3, 3);
  m.join("b");
  EXPECT_FALSE(m.machine().has_untold(m.now()));
  EXPECT_EQ(m.cannot_start("b"), "b: " + kCannotStart);
  m.goodbye("b");
  m.pass(seconds{4});
  EXPECT_EQ(m.join("c"), "c: " + kCannotStart);
  m.goodbye("c");
  EXPECT_TRUE(m.machine().has_untold(m.now()));
  m.join("d");
  m.goodbye("d");
  EXPECT_FALSE(m.machine().has_untold(m.now()));
  EXPECT_THAT(m.join("e"), HasSubstr("e: Refused{closed, \"the job of this id has ended (b: cannot "
                                     "run x.py: no such file)"));
}

TEST(Membership, WaitsTenSecondsForNodesThatDoNotKnowTheEnd) {
  MembershipDriver m(3, 3);
  m.join("b");
  m.cannot_start("b");
  m.pass(milliseconds{9999});
  EXPECT_TRUE(m.machine().has_untold(m.now()));
  m.pass(milliseconds{1});
  EXPECT_FALSE(m.machine().has_untold(m.now()));
}

TEST(Membership, ContinuesIfANodeThatCannotStartIsNotNeeded) {
  MembershipDriver elastic(1, 3);
  elastic.job.last_call = Duration{};
  elastic.run({"a"});
  elastic.join("b");
  EXPECT_THAT(elastic.cannot_start("b"), HasSubstr("the job continues without this node: b does "
                                                   "not take part: cannot run x.py: no such file"));
  EXPECT_EQ(elastic.status(), "epoch 1 runs on 1 node");

  MembershipDriver spare(2, 2);
  spare.job.spares = 1;
  spare.join("a");
  spare.ready("a");
  spare.join("b");
  EXPECT_THAT(spare.cannot_start("b"),
              HasSubstr("b: Hangup | a: Wait{\"1 of 2 nodes; here: a; b does not take part: cannot "
                        "run x.py: no such file; "));
}

TEST(Membership, EndsAnyJobWhoseHostCannotStart) {
  MembershipDriver m(1, 3);
  m.job.is_host = true;
  m.join("b");
  EXPECT_EQ(m.cannot_start("b"), "b: " + kCannotStart);
}

TEST(Membership, MentionsOtherWaitingJobsOnceAndInItsStatus) {
  MembershipDriver m(2, 2);
  m.job.join_timeout = seconds{5};
  m.join("a");
  m.ready("a");
  EXPECT_FALSE(m.machine().waits_for_nodes(m.now()));
  m.live(seconds{3}, {"a"});
  EXPECT_TRUE(m.machine().waits_for_nodes(m.now()));
  const Neighbours others{"; job 'b' waits here as well"};
  EXPECT_EQ(m.hear(others),
            "a: Wait{\"1 of 2 nodes; here: a; job 'b' waits here as well; gives up in 2 s\"}");
  EXPECT_EQ(m.hear(others), "");
  EXPECT_THAT(
      m.live(seconds{2}, {"a"}),
      HasSubstr("here: a; job 'b' waits here as well; check why the missing ones did not join"));
  EXPECT_FALSE(m.machine().waits_for_nodes(m.now()));
}

TEST(Membership, DropsOtherJobsThatNoLongerWait) {
  MembershipDriver m(2, 2);
  m.join("a");
  m.ready("a");
  m.hear(Neighbours{"; job 'b' waits here as well"});
  EXPECT_EQ(m.hear(Neighbours{}), "");
  EXPECT_EQ(m.status(), "1 of 2 nodes; here: a; gives up in 600 s");
}

TEST(Membership, DoesNotCountNodesThatAreNotReady) {
  MembershipDriver m(2, 2);
  m.join("a");
  m.ready("a");
  m.join("b");
  EXPECT_EQ(m.status(), "1 of 2 nodes; here: a; not ready yet: b; gives up in 600 s");
  EXPECT_EQ(m.leaving("b", 0, SIGTERM, true), "b: Stop{epoch 0, left, \"b leaves (SIGTERM)\"}");
  EXPECT_EQ(m.goodbye("b"), "b: Hangup");
  EXPECT_EQ(m.status(), "1 of 2 nodes; here: a; gives up in 600 s");
}

TEST(Membership, DoesNotCountDisconnectedNodesInTheirGrace) {
  MembershipDriver m(2, 2);
  m.join("a");
  m.ready("a");
  EXPECT_EQ(m.disconnect("a"), "");
  m.join("b");
  EXPECT_EQ(m.ready("b"), "");
  EXPECT_EQ(m.join("a"), "OpenStore{1, 10.0.1.a 10.0.1.b}");
}

TEST(Membership, TellsAllWhichNodesAreMissingAtTheTimeOut) {
  MembershipDriver m(3, 3);
  m.join("a");
  m.ready("a");
  m.live(seconds{100}, {"a"});
  m.join("b");
  m.ready("b");
  m.live(milliseconds{499900}, {"a", "b"});
  EXPECT_EQ(m.live(milliseconds{200}, {}),
            "a: End{timeout, exit 122, \"the nodes did not meet within 600 s: 2 of 3 nodes; here: "
            "a, b; check why the missing ones did not join, or raise --start-timeout\", 0 "
            "restarts, 0 changes} | b: End{timeout, exit 122, \"the nodes did not meet within 600 "
            "s: 2 of 3 nodes; here: a, b; check why the missing ones did not join, or raise "
            "--start-timeout\", 0 restarts, 0 changes}");
}

TEST(Membership, GivesUpAtTheTimeOutWithASingleNode) {
  MembershipDriver m(2, 2);
  m.job.join_timeout = seconds{2};
  m.join("a");
  m.ready("a");
  m.live(milliseconds{1990}, {"a"});
  EXPECT_THAT(m.live(milliseconds{20}, {}), HasSubstr("did not meet within 2 s: 1 of 2 nodes"));
  EXPECT_EQ(m.goodbye("a"), "a: Hangup | Finished");
}

// ---- Visible waiting.

TEST(Membership, SaysThatItWaitsAtGrowingIntervals) {
  MembershipDriver m(2, 2);
  m.join("a");
  m.ready("a");
  std::vector<int> at;
  for (int second = 1; second <= 200; ++second) {
    if (m.live(seconds{1}, {"a"}).find("Wait{") != std::string::npos) at.push_back(second);
  }
  EXPECT_EQ(at, (std::vector<int>{3, 9, 21, 45, 93, 153}));
  EXPECT_EQ(m.order("a")->what,
            (decltype(Order::what){Wait{false, "1 of 2 nodes; here: a; gives up in 447 s"}}));
}

TEST(Membership, NamesTheMissingNodeRanks) {
  MembershipDriver m(3, 4);
  m.job.node_rank = 0;
  m.join("a");
  m.ready("a");
  m.job.node_rank = 3;
  m.join("d");
  m.ready("d");
  EXPECT_EQ(m.status(),
            "2 of 4 nodes; here: a, d; missing: node ranks 1, 2; at least 3 are needed; gives up "
            "in 600 s");
  m.job.node_rank = 1;
  m.join("b");
  m.ready("b");
  m.pass(seconds{19});
  EXPECT_EQ(m.status(), "3 of 4 nodes; here: a, b, d; missing: node rank 2; starts with 3 in 11 s");
}

TEST(Membership, KeepsItsStatusShortIfManyNodesAreMissing) {
  MembershipDriver m(100, 100);
  for (int rank = 0; rank < 20; ++rank) {
    m.job.node_rank = rank;
    const std::string name = "n" + std::to_string(rank);
    m.join(name);
    m.ready(name);
  }
  EXPECT_EQ(m.status(),
            "20 of 100 nodes; missing: node ranks 20, 21, 22, 23, 24, 25, 26, 27, 72 more; gives "
            "up in 600 s");
}

TEST(Membership, KeepsHostileNamesOnOneLine) {
  MembershipDriver m(2, 2);
  m.join("a\n\x1b[2J" + std::string(2000, 'x'));
  m.ready("a\n\x1b[2J" + std::string(2000, 'x'));
  EXPECT_EQ(m.status(),
            "1 of 2 nodes; here: a??[2J" + std::string(58, 'x') + "; gives up in 600 s");
}

TEST(Membership, SaysThatNoNodeHasJoined) {
  MembershipDriver m(1, 2);
  EXPECT_EQ(m.status(), "no node has joined yet");
  EXPECT_EQ(m.machine().next_deadline(), kNever);
}

// ---- The store.

TEST(Membership, StartsNoNodeBeforeTheStoreIsOpen) {
  MembershipDriver m(1, 1);
  m.join("a");
  EXPECT_EQ(m.ready("a"), "OpenStore{1, 10.0.1.a}");
  EXPECT_EQ(m.ready("a"), "");
  EXPECT_EQ(m.open_store(7), "");
  EXPECT_EQ(m.order("a"), std::nullopt);
  EXPECT_THAT(m.open_store(1), HasSubstr("a: Round{epoch 1, "));
  EXPECT_EQ(m.open_store(1), "");
}

TEST(Membership, EndsTheJobIfTheStoreCannotBeOpened) {
  MembershipDriver m(1, 1);
  m.join("a");
  m.ready("a");
  EXPECT_EQ(m.hear(StoreFailed{9, {ExitCode::environment, "stale"}}), "");
  EXPECT_EQ(
      m.hear(StoreFailed{1, {ExitCode::environment, "port 29401 is in use"}}),
      "a: End{timeout, exit 121, \"the store of epoch 1 could not be opened: port 29401 is in "
      "use\", 0 restarts, 0 changes}");
  EXPECT_EQ(m.goodbye("a"), "a: Hangup | Finished");
}

TEST(Membership, ClosesTheStoreBetweenTwoEpochs) {
  MembershipDriver m(2, 2);
  m.job.max_restarts = 1;
  m.run({"a", "b"});
  m.fail("a", 1, boom(0));
  EXPECT_EQ(m.ready("a", 1), "");
  EXPECT_EQ(m.ready("b", 1), "CloseStore{1} | OpenStore{2, 10.0.1.a 10.0.1.b}");
}

// ---- Success.

TEST(Membership, SucceedsOnceAllNodesAreDone) {
  MembershipDriver m(2, 2);
  m.run({"a", "b"});
  EXPECT_EQ(m.done("b", 1), "");
  EXPECT_EQ(
      m.done("a", 1),
      "a: End{success, exit 0, \"all workers of all nodes succeeded\", 0 restarts, 0 changes} "
      "| b: End{success, exit 0, \"all workers of all nodes succeeded\", 0 restarts, 0 "
      "changes}");
  EXPECT_EQ(m.goodbye("a"), "a: Hangup");
  EXPECT_EQ(m.goodbye("b"), "b: Hangup | CloseStore{1} | Finished");
  EXPECT_EQ(m.machine().next_deadline(), kNever);
}

TEST(Membership, ClosesTheStoreASecondAfterSuccess) {
  MembershipDriver m(1, 1);
  m.run({"a"});
  m.done("a", 1);
  m.pass(milliseconds{999});
  EXPECT_EQ(m.tick(), "");
  m.pass(milliseconds{1});
  EXPECT_EQ(m.tick(), "CloseStore{1}");
  EXPECT_EQ(m.goodbye("a"), "a: Hangup | Finished");
}

TEST(Membership, IgnoresDoneOfAnOldEpoch) {
  MembershipDriver m(2, 2);
  m.job.max_restarts = 1;
  m.run({"a", "b"});
  m.done("a", 1);
  EXPECT_THAT(m.fail("b", 1, boom(1)), HasSubstr("a: Stop{epoch 1, failure, "));
  EXPECT_EQ(m.done("a", 1), "");
  m.ready("b", 1);
  EXPECT_EQ(m.status(), "epoch 1 is being stopped; workers may be alive on 1 node");
  m.ready("a", 1);
  m.open_store(2);
  m.done("b", 2);
  EXPECT_EQ(m.done("a", 1), "");
  EXPECT_EQ(m.status(), "epoch 2 runs on 2 nodes; 1 node done");
  EXPECT_THAT(m.done("a", 2), HasSubstr("End{success"));
}

// ---- Failure.

TEST(Membership, StopsAllAtTheFirstFailureAndChargesARestart) {
  MembershipDriver m(2, 2);
  m.job.max_restarts = 2;
  m.run({"a", "b"});
  const std::string text =
      "Stop{epoch 1, failure, \"rank 1 on b (node rank 1) exited with 3: boom; all ranks are "
      "stopped, 2 of 2 restarts left\"}";
  EXPECT_EQ(m.fail("b", 1, boom(1)), "a: " + text + " | b: " + text);
  m.stopping("a", 1);
  m.ready("b", 1);
  m.ready("a", 1);
  m.open_store(2);
  Round expected{2, 1, 2, 1, 2, 1, 2, "10.0.0.1", 4002, 1, 0};
  expected.before = Verdict{1, 0, 1, "b", 3, 0, "exited with 3: boom", ""};
  EXPECT_EQ(m.round("b"), expected);
}

TEST(Membership, EndsAfterAFailureOnceAllIsStoppedIfNoRestartIsLeft) {
  MembershipDriver m(2, 2);
  m.run({"a", "b"});
  EXPECT_THAT(m.fail("b", 1, boom(1)), HasSubstr("exited with 3: boom; all ranks are stopped"));
  m.ready("b", 1);
  EXPECT_THAT(m.ready("a", 1),
              HasSubstr("CloseStore{1} | a: End{failed, exit 3, node rank 1 on \"b\""));
  End expected;
  expected.why = EndWhy::failed;
  expected.exit_code = 3;
  expected.node_rank = 1;
  expected.host_name = "b";
  expected.text = "rank 1 on b (node rank 1) exited with 3: boom";
  expected.verdict = Verdict{1, 0, 1, "b", 3, 0, "exited with 3: boom", ""};
  expected.teller = 0;
  EXPECT_EQ(m.end("a"), expected);
  EXPECT_EQ(m.end("b"), expected);
}

TEST(Membership, BlamesTheFirstFailureByArrivalIfThereIsNoJudge) {
  MembershipDriver m(2, 2);
  m.run({"a", "b"});
  m.fail("b", 1, boom(1));
  NodeFailure later = boom(0);
  later.exit_code = 9;
  EXPECT_EQ(m.fail("a", 1, later), "");
  m.ready("a", 1);
  m.ready("b", 1);
  EXPECT_EQ(m.end("a").verdict->rank, 1);
}

TEST(Membership, ChargesARepeatedFailureOnce) {
  MembershipDriver m(1, 1);
  m.job.max_restarts = 1;
  m.run({"a"});
  m.fail("a", 1, boom(0));
  m.fail("a", 1, boom(0));
  m.ready("a", 1);
  m.open_store(2);
  EXPECT_EQ(m.round("a").restarts, 1);
  m.fail("a", 2, boom(0));
  m.fail("a", 2, boom(0));
  m.ready("a", 2);
  EXPECT_EQ(m.end("a").restarts, 1);
}

TEST(Membership, EndsAfterAFinalFailureDespiteRemainingRestarts) {
  MembershipDriver m(2, 3);
  m.job.last_call = Duration{};
  m.job.max_restarts = 5;
  m.run({"a", "b"});
  m.fail("a", 1, boom(0));
  NodeFailure final_failure = boom(1);
  final_failure.final = true;
  final_failure.exit_code = 127;
  m.fail("b", 1, final_failure);
  m.leaving("a", 1, SIGTERM, true);
  EXPECT_THAT(m.ready("b", 1), HasSubstr("b: End{failed, exit 127, node rank 1 on \"b\""));
}

TEST(Membership, NoticesAFailureThatComesWithReady) {
  MembershipDriver m(1, 1);
  m.run({"a"});
  Report report;
  report.epoch = 1;
  report.failure = boom(0);
  EXPECT_THAT(m.report("a", report), HasSubstr("a: End{failed, exit 3"));
}

TEST(Membership, ReplacesAnExitCodeOfZeroByOne) {
  MembershipDriver m(1, 1);
  m.run({"a"});
  NodeFailure failure = boom(0);
  failure.exit_code = 0;
  m.fail("a", 1, failure);
  m.ready("a", 1);
  EXPECT_EQ(m.end("a").exit_code, 1);
}

TEST(Membership, IgnoresAFailureOfAnOldEpoch) {
  MembershipDriver m(2, 2);
  m.job.max_restarts = 3;
  m.run({"a", "b"});
  m.fail("a", 1, boom(0));
  m.ready("a", 1);
  m.ready("b", 1);
  m.open_store(2);
  EXPECT_EQ(m.fail("a", 1, boom(0)), "");
  EXPECT_EQ(m.status(), "epoch 2 runs on 2 nodes");
}

TEST(Membership, NeverExceedsTheRestartBudget) {
  MembershipDriver m(1, 1);
  m.job.max_restarts = 2;
  m.run({"a"});
  for (Epoch epoch = 1; epoch <= 3; ++epoch) {
    m.fail("a", epoch, boom(0));
    m.ready("a", epoch);
    m.open_store(epoch + 1);
  }
  EXPECT_EQ(m.end("a").why, EndWhy::failed);
  EXPECT_EQ(m.end("a").restarts, 2);
}

// ---- Outdated ready reports.

TEST(Membership, IgnoresAReadyFromBeforeTheRound) {
  MembershipDriver m(2, 2);
  m.job.max_restarts = 1;
  m.join("a");
  m.join("b");
  m.ready("a");
  m.ready("b");
  m.open_store(1);
  m.running("b", 1);
  m.fail("b", 1, boom(1));
  Report before;  // Node a sent it before it got any order.
  before.order = 1;
  EXPECT_EQ(m.report("a", before), "");
  EXPECT_EQ(m.ready("b", 1), "");
  EXPECT_EQ(m.status(), "epoch 1 is being stopped; workers may be alive on 1 node");
}

TEST(Membership, AcceptsAReadyThatAcknowledgesTheStop) {
  MembershipDriver m(2, 2);
  m.job.max_restarts = 1;
  m.join("a");
  m.join("b");
  m.ready("a");
  m.ready("b");
  m.open_store(1);
  m.fail("b", 1, boom(1));
  m.ready("b", 1);
  EXPECT_EQ(m.ready("a", 0), "CloseStore{1} | OpenStore{2, 10.0.1.a 10.0.1.b}");
}

TEST(Membership, StopsStrayWorkersOfAnotherEpoch) {
  MembershipDriver m(2, 2);
  m.join("a");
  EXPECT_EQ(m.running("a", 9),
            "a: Stop{epoch 9, host, \"the host of the job was restarted: epoch 9 is over\"}");
  EXPECT_EQ(m.running("a", 9), "");
  m.ready("a", 9);
  m.join("b");
  EXPECT_EQ(m.ready("b"), "OpenStore{10, 10.0.1.a 10.0.1.b}");
}

// ---- Conventions of the protocol.

TEST(Membership, ResendsAnUnacknowledgedOrderWithTheNextBeat) {
  MembershipDriver m(1, 1);
  m.run({"a"});
  const Order order = *m.order("a");
  m.forget_orders();
  m.lose_order("a");
  m.pass(milliseconds{999});
  EXPECT_EQ(m.ready("a"), "");  // It may be on its way.
  m.pass(milliseconds{1});
  EXPECT_THAT(m.ready("a"), HasSubstr("a: Round{epoch 1"));
  EXPECT_EQ(m.order("a"), order);
  m.pass(seconds{1});
  EXPECT_EQ(m.running("a", 1), "");
}

TEST(Membership, AnswersEveryReportWithTheNewestSequence) {
  MembershipDriver m(2, 2);
  m.join("a");
  Report report;
  report.sequence = 7;
  EXPECT_EQ(m.step(Reported{1, report}),
            (std::vector<Membership::Effect>{Send{1, Alive{7, 7, m.now()}}}));
  report.sequence = 3;
  report.phase = Phase::leaving;
  EXPECT_EQ(m.step(Reported{1, report}),
            (std::vector<Membership::Effect>{Send{1, Alive{7, 3, m.now()}}}));
  EXPECT_EQ(m.status(), "1 of 2 nodes; here: a; gives up in 600 s");
}

TEST(Membership, RepeatsTheOrderOnANewConnection) {
  MembershipDriver m(1, 1);
  m.run({"a"});
  const Order order = *m.order("a");
  m.forget_orders();
  const auto old = m.connection("a");
  EXPECT_THAT(m.join("a"), HasSubstr("a: Hangup | a: Round{epoch 1"));
  EXPECT_EQ(m.order("a"), order);
  EXPECT_EQ(m.hear(Disconnected{old}), "");
  EXPECT_EQ(m.hear(Reported{old, {}}), "");
  EXPECT_EQ(m.live(seconds{5}, {"a"}), "");
}

TEST(Membership, HangsUpOnASecondAgentOfOneConnection) {
  MembershipDriver m(2, 2);
  m.join("a");
  Join join = m.job;
  join.agent = MembershipDriver::id_of("b");
  EXPECT_EQ(m.hear(Joined{m.connection("a"), join}), "a: Hangup");
  EXPECT_EQ(m.join("a"), "");
}

TEST(Membership, IgnoresARepeatedJoin) {
  MembershipDriver m(2, 2);
  m.join("a");
  m.ready("a");
  Join join = m.job;
  join.agent = MembershipDriver::id_of("a");
  join.host_name = "a";
  EXPECT_EQ(m.hear(Joined{m.connection("a"), join}), "");
  EXPECT_EQ(m.status(), "1 of 2 nodes; here: a; gives up in 600 s");
}

TEST(Membership, IgnoresUnknownConnections) {
  MembershipDriver m(1, 1);
  EXPECT_EQ(m.hear(Reported{9, {}}), "");
  EXPECT_EQ(m.hear(Parted{9}), "");
  EXPECT_EQ(m.hear(Disconnected{9}), "");
  EXPECT_EQ(
      m.notes(),
      (std::vector<std::string>{"dropped a report: its connection belongs to no known node"}));
}

// ---- Contradictions.

TEST(Membership, RefusesNodesStartedWithOtherNumbers) {
  MembershipDriver m(2, 2);
  m.join("a");
  m.job.nodes_max = 4;
  EXPECT_EQ(m.join("b"),
            "b: Refused{contradiction, \"b was started for 2:4 nodes, the job was started for 2 "
            "nodes by a; start all nodes with the same --nnodes\"} | b: Hangup");
  m.job.nodes_min = 5;
  EXPECT_THAT(m.join("c"), HasSubstr("c: Refused{contradiction, \"this node was started for 5:4"));
  m.job.nodes_min = m.job.nodes_max = 2;
  m.job.node_rank = 2;
  EXPECT_EQ(
      m.join("d"),
      "d: Refused{contradiction, \"d was started with --node-rank=2, the job has 2 nodes; the "
      "highest node rank is 1\"} | d: Hangup");
}

TEST(Membership, PrefersTheHostsNumbersToThoseOfEarlierNodes) {
  MembershipDriver m(3, 3);
  m.join("b");
  m.job.nodes_min = m.job.nodes_max = 2;
  m.job.is_host = true;
  EXPECT_EQ(m.join("a"),
            "b: Refused{contradiction, \"b was started for 3 nodes, the job was started for 2 "
            "nodes by a; start all nodes with the same --nnodes\"} | b: Hangup");
  m.job.is_host = false;
  m.join("c");
  m.ready("a");
  EXPECT_EQ(m.ready("c"), "OpenStore{1, 10.0.1.a 10.0.1.c}");
}

TEST(Membership, GivesTheHostItsRankEvenIfAnotherNodeCameFirst) {
  MembershipDriver m(2, 2);
  m.job.node_rank = 0;
  m.join("b");
  m.job.is_host = true;
  EXPECT_EQ(
      m.join("a"),
      "b: Refused{rank_taken, \"node rank 0 belongs to a already; give b another --node-rank, "
      "or end the other one\"} | b: Hangup");
}

// A node that returns from a round knows the job's numbers better than a restarted host.
TEST(Membership, RefusesAReturningHostWithOtherNumbers) {
  MembershipDriver m(3, 3);
  m.job.last_epoch = 4;
  m.join("b");
  m.job.last_epoch = 0;
  m.job.nodes_min = m.job.nodes_max = 2;
  m.job.is_host = true;
  EXPECT_THAT(m.join("a"), StartsWith("a: Refused{contradiction, "));
}

TEST(Membership, RefusesAHostWithImpossibleNumbers) {
  MembershipDriver m(2, 2);
  m.join("b");
  m.job.is_host = true;
  m.job.nodes_min = 3;
  EXPECT_THAT(m.join("a"), StartsWith("a: Refused{contradiction, "));
}

TEST(Membership, NotesOtherDifferencesAndUsesTheFirstNodesSettings) {
  MembershipDriver m(2, 2);
  m.job.max_restarts = 1;
  m.join("a");
  m.notes();
  m.job.max_restarts = 9;
  EXPECT_EQ(m.join("b"), "");
  EXPECT_EQ(
      m.notes(),
      (std::vector<std::string>{
          "b was started with settings that differ from those of a, which are used", "b is here"}));
  m.ready("a");
  m.ready("b");
  m.open_store(1);
  m.fail("a", 1, boom(0));
  m.ready("a", 1);
  m.ready("b", 1);
  m.open_store(2);
  m.fail("a", 2, boom(0));
  m.ready("a", 2);
  m.ready("b", 2);
  EXPECT_EQ(m.end("b").restarts, 1);
}

TEST(Membership, StartsOverIfAllNodesLeftBeforeTheFirstRound) {
  MembershipDriver m(2, 2);
  m.join("a");
  EXPECT_EQ(m.goodbye("a"), "a: Hangup | Finished");
  m.job.nodes_min = m.job.nodes_max = 1;
  EXPECT_EQ(m.join("b"), "");
  EXPECT_EQ(m.ready("b"), "OpenStore{1, 10.0.1.b}");
}

// ---- After the end.

TEST(Membership, RefusesNewNodesAfterTheEndButAnswersItsOwn) {
  MembershipDriver m(2, 2);
  m.run({"a", "b"});
  m.done("a", 1);
  m.done("b", 1);
  m.goodbye("a");
  EXPECT_EQ(
      m.join("new"),
      "new: Refused{closed, \"the job of this id has ended (all workers of all nodes succeeded); "
      "restart all nodes, or give this job an id of its own (--rdzv-id)\"} | new: Hangup");
  m.job.last_epoch = 1;
  EXPECT_THAT(m.join("a"), HasSubstr("a: End{success, exit 0"));
  EXPECT_EQ(m.goodbye("a"), "a: Hangup");
  EXPECT_EQ(m.goodbye("b"), "b: Hangup | CloseStore{1} | Finished");
  EXPECT_THAT(m.join("a"), HasSubstr("a: End{success, exit 0"));
  EXPECT_EQ(m.goodbye("a"), "a: Hangup");
}

TEST(Membership, RepeatsTheEndToANodeThatMissedIt) {
  MembershipDriver m(1, 1);
  m.run({"a"});
  m.done("a", 1);
  m.disconnect("a");
  EXPECT_THAT(m.join("a"), HasSubstr("a: End{success, exit 0"));
  EXPECT_EQ(m.done("a", 1), "");
  EXPECT_EQ(m.disconnect("a"), "CloseStore{1} | Finished");
}

TEST(Membership, DoesNotWaitForLostNodesAfterTheEnd) {
  MembershipDriver m(2, 2);
  m.run({"a", "b"});
  m.done("a", 1);
  m.done("b", 1);
  m.goodbye("a");
  EXPECT_EQ(m.live(seconds{4}, {}), "CloseStore{1} | b: Hangup | Finished");
}

// ---- Numbers.

TEST(Membership, SendsEachAgentEquallyManyEffectsAtAnySize) {
  std::vector<size_t> effects_each;
  for (const int nodes : {2, 200, 2000}) {
    MembershipDriver m(nodes, nodes);
    size_t effects = 0;
    for (int i = 0; i < nodes; ++i)
      m.join("n" + std::to_string(i));
    for (int i = 0; i < nodes; ++i) {
      Report report;
      report.sequence = 1;
      effects += m.step(Reported{static_cast<ConnectionId>(i + 1), report}).size();
    }
    effects += m.step(StoreOpened{1, 4000}).size();
    EXPECT_EQ(effects, static_cast<size_t>(2 * nodes + 2)) << nodes;
  }
}

}  // namespace
}  // namespace muster
