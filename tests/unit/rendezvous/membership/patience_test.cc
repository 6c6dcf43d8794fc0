// The cost of a lost link on both sides: nothing if a needed node reconnects within its lease, and
// nothing at the end of a job.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/rendezvous/membership/member_harness.h"
#include "tests/unit/rendezvous/membership/membership_harness.h"

namespace muster {
namespace {

using membership::End;
using membership::EndWhy;
using membership::NodeFailure;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

MembershipDriver& patient(MembershipDriver& m, const std::vector<std::string>& names) {
  m.job.lease = seconds{15};
  m.run(names);
  m.forget_orders();
  return m;
}

TEST(Patience, ReportsABrokenConnectionOfANeededNode) {
  MembershipDriver m(2, 2);
  patient(m, {"a", "b"}).disconnect("b");
  EXPECT_EQ(m.live(seconds{14}, {"a"}),
            "Say{no sign of b (node rank 1) for 3 s; waiting up to 15 s}");
  EXPECT_EQ(m.join("b"),
            "Say{b (node rank 1) is back after 14.0 s} | b: Round{epoch 1, node 1 of 2, "
            "ranks 1+ of 2, role ranks 1+ of 2, master 10.0.0.1:4001, 0 restarts, 0 "
            "changes}");
  EXPECT_EQ(m.live(seconds{20}, {"a", "b"}), "");
}

TEST(Patience, EndsAFixedJobAfterALeaseOfSilence) {
  MembershipDriver m(2, 2);
  patient(m, {"a", "b"});
  EXPECT_THAT(m.live(milliseconds{14'900}, {"a"}), HasSubstr("waiting up to 15 s}"));
  EXPECT_THAT(m.live(milliseconds{200}, {"a"}), HasSubstr("no sign of life for 15 s; 1 node left"));
}

TEST(Patience, AppliesToAnElasticJobOfTheFewestNodes) {
  MembershipDriver m(2, 3);
  m.job.last_call = {};
  patient(m, {"a", "b"}).disconnect("b");
  EXPECT_EQ(m.live(seconds{14}, {"a"}),
            "Say{no sign of b (node rank 1) for 3 s; waiting up to 15 s}");
  EXPECT_THAT(m.join("b"), HasSubstr("b (node rank 1) is back after 14.0 s"));
  EXPECT_EQ(m.live(seconds{20}, {"a", "b"}), "");
}

TEST(Patience, DoesNotApplyIfTheOthersCanContinue) {
  MembershipDriver m(1, 2);
  patient(m, {"a", "b"}).disconnect("b");
  EXPECT_THAT(m.live(milliseconds{250}, {"a"}), HasSubstr("a: Stop{epoch 1, lost, "));
}

TEST(Patience, EndsIfAnotherNodeWaitsForThePlace) {
  MembershipDriver m(2, 2);
  patient(m, {"a", "b"}).disconnect("b");
  m.live(seconds{2}, {"a"});
  m.join("c");
  m.ready("c");
  EXPECT_THAT(m.live(milliseconds{250}, {"a", "c"}),
              HasSubstr("did not reconnect within 2 s; a new round forms with 2 nodes"));
  EXPECT_EQ(m.ready("a", 1), "CloseStore{1} | OpenStore{2, 10.0.1.a 10.0.1.c}");
}

TEST(Patience, DoesNotDelayAFailureThatEndsTheJob) {
  MembershipDriver m(2, 2);
  patient(m, {"a", "b"}).disconnect("b");
  m.live(seconds{2}, {"a"});
  m.fail("a", 1, membership::boom(0));
  m.ready("a", 1);
  m.live(milliseconds{250}, {"a"});
  EXPECT_EQ(m.end("a").exit_code, 122) << m.status();
}

TEST(Patience, DoesNotCountASilentNodeIntoARound) {
  MembershipDriver m(3, 3);
  for (const char* const name : {"a", "b"}) {
    m.join(name);
    m.ready(name);
  }
  m.live(seconds{2}, {"a"});
  m.join("c");
  EXPECT_EQ(m.ready("c"), "");
  m.live(seconds{1}, {"a", "c"});
  EXPECT_THAT(m.status(), HasSubstr("2 of 3 nodes; here: a, c"));
}

TEST(Patience, ReplacesANodeThatDiesAsItJoins) {
  MembershipDriver m(2, 2);
  for (const char* const name : {"a", "b"})
    m.join(name);
  m.ready("a");
  m.ready("b");
  m.open_store(1);
  m.running("a", 1);
  EXPECT_THAT(m.live(seconds{3}, {"a"}),
              HasSubstr("a new round forms when there are enough nodes"));
  EXPECT_EQ(m.ready("a", 1), "CloseStore{1}");
  m.join("c");
  EXPECT_EQ(m.ready("c"), "OpenStore{2, 10.0.1.a 10.0.1.c}");
}

TEST(Patience, LetsADoneNodeBeAwayUntilTheEnd) {
  MembershipDriver m(2, 2);
  patient(m, {"a", "b"}).done("b", 1);
  m.disconnect("b");
  EXPECT_EQ(m.live(seconds{120}, {"a"}),
            "Say{no sign of b (node rank 1) for 3 s; waiting up to 15 s}");
  m.done("a", 1);
  EXPECT_EQ(m.end("a").why, EndWhy::success);
  EXPECT_THAT(m.join("b"), HasSubstr("b: End{success"));
}

// Node a is the host's own node.
void run_with_host(MembershipDriver& m, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    m.job.is_host = name == "a";
    m.join(name);
  }
  for (const std::string& name : names)
    m.ready(name);
  m.open_store(1);
  for (const std::string& name : names)
    m.running(name, 1);
}

TEST(Patience, MakesAHostThatLosesAllNodesSuspectItsNetwork) {
  MembershipDriver m(2, 3);
  run_with_host(m, {"a", "b", "c"});
  EXPECT_EQ(m.live(seconds{60}, {"a"}),
            "Say{this node lost its network: no sign of any other node for 3 s; their places are "
            "kept for 600 s}");
  EXPECT_EQ(m.again("b"), "Say{this node's network is back}");
  m.disconnect("b");
  EXPECT_EQ(m.live(milliseconds{2900}, {"a"}), "") << "its agent may be redialing";
  m.join("b");
  EXPECT_THAT(m.live(milliseconds{100}, {"a", "b"}), HasSubstr("c (node rank 2) was lost"));
}

TEST(Patience, KeepsNoPlacesOfAHostThatIsStopped) {
  MembershipDriver m(2, 3);
  run_with_host(m, {"a", "b", "c"});
  m.live(seconds{5}, {"a"});
  m.leaving("a", 1, SIGTERM, true);
  EXPECT_EQ(m.live(milliseconds{2900}, {"a"}), "");
  EXPECT_THAT(m.live(milliseconds{200}, {"a"}), HasSubstr("a: End{stopped, exit 143"));
  EXPECT_THAT(m.goodbye("a"), HasSubstr("Finished"));
}

TEST(Patience, SaysThatARoundWaitsForASignOfLife) {
  MembershipDriver m(3, 3);
  for (const std::string name : {"a", "b"}) {
    m.join(name);
    m.ready(name);
  }
  m.live(seconds{2}, {"a"});
  m.join("c");
  m.ready("c");
  EXPECT_THAT(m.status(), HasSubstr("3 of 3 nodes; here: a, b, c; no sign now of b; gives up in"));
}

// The host's beat in a shared file may go on, so that no node takes its place.
TEST(Patience, StopsTheRoundOfAReplaceableHostThatLosesAll) {
  Membership::Options options;
  options.may_be_followed = true;
  MembershipDriver m(2, 3, options);
  run_with_host(m, {"a", "b", "c"});
  EXPECT_THAT(m.live(seconds{4}, {"a"}),
              HasSubstr("no sign of any of them for 3 s; a new round forms when there are enough "
                        "nodes"));
  EXPECT_EQ(m.ready("a", 1), "CloseStore{1}");
  EXPECT_THAT(m.live(seconds{20}, {"a"}), HasSubstr("1 of 3 nodes; here: a"));
  for (const std::string name : {"b", "c"}) {
    m.join(name);
    m.ready(name);
  }
  EXPECT_THAT(m.open_store(2), HasSubstr("a: Round{epoch 2, node 0 of 3"));
}

TEST(Patience, KeepsAReplaceableHostWaitingWhileARoundForms) {
  Membership::Options options;
  options.may_be_followed = true;
  options.lost_network = [] { return true; };
  MembershipDriver m(2, 3, options);
  run_with_host(m, {"a", "b", "c"});
  m.disconnect("c");
  EXPECT_THAT(m.live(milliseconds{300}, {"a", "b"}), HasSubstr("a new round forms with 2 nodes"));
  m.ready("b", 1);
  m.live(seconds{2}, {"a"});
  m.ready("a", 1);
  EXPECT_THAT(m.live(seconds{5}, {"a"}), Not(HasSubstr("End"))) << "the host lost its network";
  m.join("b");
  m.ready("b");
  m.live(seconds{30}, {"a", "b"});
  EXPECT_THAT(m.open_store(2), HasSubstr("a: Round{epoch 2, node 0 of 2"));
  for (const std::string name : {"a", "b"})
    m.running(name, 2);
  m.disconnect("b");
  EXPECT_THAT(m.live(seconds{4}, {"a"}), HasSubstr("1 node left, the job needs 2"));
}

TEST(Patience, MakesAHostWithASpareSuspectItsNetwork) {
  MembershipDriver m(2, 2);
  m.job.spares = 1;
  run_with_host(m, {"a", "b"});
  m.job.is_host = false;
  m.join("c");
  m.ready("c");
  EXPECT_THAT(m.live(seconds{60}, {"a"}), HasSubstr("this node lost its network"));
  EXPECT_EQ(m.again("b"), "Say{this node's network is back}");
}

TEST(Patience, ChecksTheHostsOwnLinksAfterALoss) {
  for (const bool is_down : {false, true}) {
    Membership::Options options;
    options.lost_network = [is_down] { return is_down; };
    MembershipDriver m(2, 2, options);
    run_with_host(m, {"a", "b"});
    m.live(seconds{3}, {"a"});
    EXPECT_EQ(m.end("a").text.starts_with("the host of the job lost its network"), is_down);
  }
}

TEST(Patience, RefusesAnExtraNodeThatFindsNoPlace) {
  MembershipDriver m(2, 2);
  m.run({"a", "b"});
  m.join("c");
  EXPECT_EQ(m.ready("c"),
            "c: Wait{spare, \"2 of 2 nodes run; this one waits up to 15 s for a place\"}");
  EXPECT_THAT(m.live(seconds{16}, {"a", "b", "c"}), HasSubstr("c: Refused{full, "));
}

TEST(MembershipProgram, MustBeTheSameAndOtherArgumentsAreReportedOnce) {
  MembershipDriver m(1, 4);
  m.job.program = "train.py";
  m.job.arguments = "1";
  m.run({"a"});
  m.job.program = "eval.py";
  EXPECT_EQ(
      m.join("b"),
      "b: Refused{contradiction, \"b runs eval.py, but the job with this id runs train.py (on "
      "a): give one of them an --rdzv-id or an endpoint of its own\"} | b: Hangup");
  m.job.role = "evaluator";
  EXPECT_EQ(m.join("c"), "");
  m.job.role = "default";
  m.job.program = "train.py";
  m.job.arguments = "2";
  EXPECT_EQ(m.join("d"), "Say{d runs the program with other arguments than a}");
  m.job.slots = 2;
  EXPECT_EQ(m.join("e"), "");
}

TEST(MembershipProgram, MayNotDifferInTextOnceTheJobRuns) {
  MembershipDriver m(1, 4);
  m.job.program = "sh -c";
  m.job.arguments = "1";
  m.join("a");
  m.job.arguments = "2";
  EXPECT_EQ(m.join("b"), "Say{b runs the program with other arguments than a}")
      << "no round runs yet";
  m.ready("a");
  m.ready("b");
  m.live(seconds{31}, {"a", "b"});
  m.disconnect("b");
  EXPECT_EQ(m.join("b.2"), "") << "a restarted node of the job";
  m.job.arguments = "3";
  EXPECT_EQ(
      m.join("c"),
      "c: Refused{contradiction, \"c runs another sh -c than the job with this id, which runs "
      "already (on a): give one of them an --rdzv-id or an endpoint of its own\"} | c: Hangup");
}

// ---- The agent's side.

MemberEffects run_patiently(MemberDriver& member) {
  member.dial();
  member.hear(membership::Welcome{
      .host_instance = MemberDriver::kHost, .lease = seconds{15}, .heartbeat = seconds{1}});
  return member.order(round_of(7));
}

// Lets `duration` pass with every connection attempt failing at once; returns the effects except
// reports.
std::string hear_nothing(MemberDriver& member, Duration duration, bool refused = false) {
  const Instant end = member.now() + duration;
  std::string names;
  while (!member.machine().over() && member.now() + member.until_deadline() <= end) {
    MemberEffects effects = member.tick_at_deadline();
    if (!effects.empty() && std::holds_alternative<member::Connect>(effects.back())) {
      effects.pop_back();
      const MemberEffects more =
          member.step(member::ConnectionFailed{{ExitCode::rendezvous, "no route"}, refused, false});
      effects.insert(effects.end(), more.begin(), more.end());
    }
    std::erase_if(effects, [](const auto& e) { return std::holds_alternative<member::Send>(e); });
    if (!effects.empty()) names += (names.empty() ? "" : " ") + names_of(effects);
  }
  if (!member.machine().over()) member.pass(end - member.now());
  return names;
}

TEST(Patience, LetsAnAgentReconnectWithinARound) {
  MemberDriver member;
  run_patiently(member);
  EXPECT_EQ(hear_nothing(member, milliseconds{3100}), "Disconnect Say");
  EXPECT_THAT(member.status(),
              HasSubstr("no sign of the host of the job at node0:29400 for 3 s (no "
                        "route); waiting up to 15 s"));
  member.reconnect();
  EXPECT_THAT(member.status(), HasSubstr("in round 7"));
}

TEST(Patience, StopsAnAgentsWorkersAfterALease) {
  MemberDriver member;
  run_patiently(member);
  EXPECT_EQ(hear_nothing(member, milliseconds{14'900}), "Disconnect Say Say");
  EXPECT_EQ(hear_nothing(member, milliseconds{100}), "StopWorkers");
}

TEST(Patience, LetsADoneNodeSucceedAloneAfterTwoLeases) {
  for (const bool refused : {false, true}) {
    MemberDriver member;
    run_patiently(member);
    member.step(member::WorkersDone{7});
    EXPECT_EQ(hear_nothing(member, milliseconds{29'900}, refused), "Disconnect Say Say Say");
    EXPECT_EQ(hear_nothing(member, milliseconds{100}, refused), "Say JobEnded");
    EXPECT_TRUE(member.machine().over());
  }
}

TEST(Patience, WaitsTwoLeasesForALostHost) {
  MemberDriver member;
  run_patiently(member);
  member.step(connection_lost("reset"));
  std::string said = hear_nothing(member, seconds{1}, true);
  EXPECT_EQ(said, "StopWorkers");
  member.step(member::ReadyForRound{});
  said = hear_nothing(member, seconds{60}, true);
  EXPECT_THAT(said, testing::EndsWith("GaveUp"));
  EXPECT_LT(member.now(), Instant{seconds{1 + 31}});
}

TEST(Patience, MakesASpareWaitForALostHostAsLongAsMembers) {
  for (const bool is_spare : {false, true}) {
    MemberDriver member;
    member.dial();
    member.hear(membership::Welcome{
        .host_instance = MemberDriver::kHost, .lease = seconds{3}, .heartbeat = seconds{1}});
    member.step(member::ReadyForRound{});
    member.order(membership::Wait{is_spare, ""});
    member.step(connection_lost("reset"));
    hear_nothing(member, seconds{30}, true);
    EXPECT_EQ(member.machine().over(), is_spare) << "before the first round a host may start late";
    EXPECT_EQ(member.now() < Instant{seconds{8}}, is_spare);
  }
}

TEST(Patience, StopsWorkersFirstAfterAnAgentsStandstill) {
  MemberDriver member;
  member.run(7);
  member.pass(seconds{10});
  member.step(member::Tick{});
  EXPECT_EQ(names_of(member.step(connection_lost("closed"))), "StopWorkers");
}

TEST(Patience, DoesNotCallStoppedWorkersASuccess) {
  MemberDriver member;
  member.run(7);
  hear_nothing(member, seconds{4});
  member.step(member::ReadyForRound{});
  member.reconnect();
  const MemberEffects effects = member.order(End{});
  ASSERT_FALSE(effects.empty());
  EXPECT_EQ(std::get<member::JobEnded>(effects.front()).end.why, EndWhy::lost);
  EXPECT_EQ(std::get<member::JobEnded>(effects.front()).end.exit_code, 122);
}

}  // namespace
}  // namespace muster
