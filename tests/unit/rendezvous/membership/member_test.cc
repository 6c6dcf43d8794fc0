#include "rendezvous/membership/member.h"

#include <string>

#include <gtest/gtest.h>

#include "tests/unit/rendezvous/membership/member_harness.h"

namespace muster {
namespace {

using membership::Alive;
using membership::End;
using membership::EndWhy;
using membership::Goodbye;
using membership::Order;
using membership::Phase;
using membership::RefusalKind;
using membership::Refused;
using membership::Report;
using membership::Stop;
using membership::StopWhy;
using membership::Wait;
using std::chrono::milliseconds;
using std::chrono::seconds;

const Error kTimedOut{ExitCode::rendezvous, "connect to 10.0.0.1:29400: timed out"};
const member::ConnectionFailed kFailed{kTimedOut, false, false};
const member::ConnectionFailed kRefused{
    {ExitCode::rendezvous, "connect to 10.0.0.1:29400: connection refused"}, true, false};

Report ready_report(uint64_t sequence, uint64_t order = 0) {
  Report report;
  report.sequence = sequence;
  report.order = order;
  return report;
}

Report report_of(uint64_t sequence, uint64_t order, membership::Epoch epoch, Phase phase) {
  Report report = ready_report(sequence, order);
  report.epoch = epoch;
  report.phase = phase;
  report.reaped = phase == Phase::ready || phase == Phase::done;
  return report;
}

MemberEffects sends(const Report& report) {
  return {member::Send{report}};
}

// ---- Meeting the host.

TEST(Member, BeginsByConnectingWithItsJoin) {
  MemberDriver member;
  EXPECT_EQ(member.step(member::Begin{}), MemberEffects{member::Connect{member_options().join}});
  EXPECT_EQ(member.step(member::Begin{}), MemberEffects{});
}

TEST(Member, ReportsNothingBeforeItIsWelcomed) {
  MemberDriver member;
  member.step(member::Begin{});
  EXPECT_EQ(member.step(member::ConnectionUp{"10.0.0.1", "10.0.0.2"}), MemberEffects{});
  EXPECT_EQ(member.alive(0), MemberEffects{});
  EXPECT_EQ(member.order(round_of(1)), MemberEffects{});
  EXPECT_EQ(member.welcome(), sends(ready_report(1)));
  EXPECT_EQ(member.welcome(), MemberEffects{});
}

TEST(Member, RepeatsItsReportAtEachHeartbeat) {
  MemberDriver member;
  member.join();
  for (uint64_t sequence = 2; sequence < 20; ++sequence) {
    EXPECT_EQ(member.until_deadline(), seconds{1});
    EXPECT_EQ(member.tick_at_deadline(), sends(ready_report(sequence)));
    member.alive(sequence);
  }
}

TEST(Member, JittersDifferentlyForEachSeed) {
  Member::Options other = member_options();
  other.seed = 1;
  MemberDriver a;
  MemberDriver b(other);
  for (MemberDriver* member : {&a, &b}) {
    member->step(member::Begin{});
    member->step(kFailed);
  }
  EXPECT_NE(a.until_deadline(), b.until_deadline());
}

TEST(Member, LeavesAHostThatAcceptsButSendsNoWelcome) {
  MemberDriver member;
  member.dial();
  EXPECT_EQ(names_of(member.tick_at_deadline()), "Disconnect Say");
  EXPECT_EQ(names_of(member.tick_at_deadline()), "Connect");
  EXPECT_NE(member.status().find("connected, but the host sent no welcome for 3 s"),
            std::string::npos);
}

TEST(Member, SaysWhatItWaitsForAtGrowingIntervals) {
  MemberDriver member;
  member.step(member::Begin{});
  std::vector<int64_t> said_at;
  member.step(kRefused);
  const Instant begun = member.now();
  while (member.now() - begun < seconds{50}) {
    for (const Member::Effect& effect : member.tick_at_deadline()) {
      if (std::holds_alternative<member::Connect>(effect)) member.step(kRefused);
      if (const auto* say = std::get_if<member::Say>(&effect)) {
        if (said_at.empty()) {
          EXPECT_EQ(say->text,
                    "waiting for the host of the job at node0:29400: connect to 10.0.0.1:29400: "
                    "connection refused; gives up in 57 s");
        }
        said_at.push_back((member.now() - begun) / seconds{1});
      }
    }
  }
  EXPECT_EQ(said_at, (std::vector<int64_t>{3, 9, 21, 45}));
}

// Refuses every connection until the machine gives up; returns its last effects.
MemberEffects refuse_until_over(MemberDriver& member) {
  MemberEffects effects = member.step(kRefused);
  while (!member.machine().over()) {
    effects = member.tick_at_deadline();
    if (names_of(effects) == "Connect") member.step(kRefused);
  }
  return effects;
}

TEST(Member, GivesUpAfterTheJoinTimeOutWithTheReason) {
  MemberDriver member;
  member.step(member::Begin{});
  const Instant begun = member.now();
  const MemberEffects effects = refuse_until_over(member);
  EXPECT_EQ(member.now() - begun, seconds{60});
  const Error expected{
      ExitCode::rendezvous,
      "no contact with the host of the job at node0:29400 for 60 s (--start-timeout): connect to "
      "10.0.0.1:29400: connection refused; check that the node that hosts the job is running, and "
      "that this endpoint is its address as seen from this node"};
  EXPECT_EQ(effects, MemberEffects{member::GaveUp{expected}});
  EXPECT_TRUE(member.waits_for_ever());
}

TEST(Member, GivesUpAfterTheUsersReachTimeOut) {
  Member::Options options = member_options();
  options.reach_timeout = seconds{5};
  MemberDriver member(options);
  member.step(member::Begin{});
  const Instant begun = member.now();
  const MemberEffects effects = refuse_until_over(member);
  EXPECT_EQ(member.now() - begun, seconds{5});
  const Error expected{
      ExitCode::rendezvous,
      "no contact with the host of the job at node0:29400 for 5 s (read_timeout): connect to "
      "10.0.0.1:29400: connection refused; check that the node that hosts the job is running, and "
      "that this endpoint is its address as seen from this node"};
  EXPECT_EQ(effects, MemberEffects{member::GaveUp{expected}});
}

TEST(Member, CountsTheJoinTimeOutFromTheLossOfContact) {
  MemberDriver member;
  member.join();
  for (int beat = 0; beat < 100; ++beat) {
    member.tick_at_deadline();
    member.alive(1);
  }
  const Instant lost = member.now();
  member.step(connection_lost("connection reset by peer"));
  while (!member.machine().over()) {
    if (names_of(member.tick_at_deadline()) == "Connect") member.step(kFailed);
  }
  EXPECT_EQ(member.now() - lost, seconds{60});
}

TEST(Member, GivesUpAtOnceAfterAFatalFailure) {
  const Error error{ExitCode::rendezvous, "what answers at node0:29400 is not a muster host"};
  MemberDriver member;
  member.step(member::Begin{});
  EXPECT_EQ(member.step(member::ConnectionFailed{error, false, true}),
            MemberEffects{member::GaveUp{error}});
  EXPECT_EQ(member.step(member::Begin{}), MemberEffects{});
  EXPECT_EQ(member.status(), "over");
}

TEST(Member, GivesUpWithTheReasonOfARefusal) {
  for (const RefusalKind kind : {RefusalKind::version, RefusalKind::token, RefusalKind::closed,
                                 RefusalKind::contradiction, RefusalKind::full}) {
    MemberDriver member;
    member.dial();
    const MemberEffects expected = {member::Disconnect{},
                                    member::GaveUp{{ExitCode::rendezvous, "no, and why"}, true}};
    EXPECT_EQ(member.hear(Refused{kind, "no, and why"}), expected);
  }
}

// ---- The host's life.

TEST(Member, ContinuesTheRoundIfReconnectedWithinTheLease) {
  MemberDriver member;
  member.run(7);
  EXPECT_EQ(member.step(connection_lost("reset")), MemberEffects{});
  EXPECT_EQ(names_of(member.tick_at_deadline()), "Connect");
  member.come_up();
  EXPECT_EQ(member.welcome(), sends(report_of(3, 1, 7, Phase::running)));
}

TEST(Member, StopsTheWorkersIfNotReconnectedWithinTheLease) {
  MemberDriver member;
  member.run(7);
  const Instant heard = member.now();
  member.pass(milliseconds{500});
  member.step(connection_lost("connection reset by peer"));
  MemberEffects stops;
  while (stops.empty()) {
    for (const Member::Effect& effect : member.tick_at_deadline()) {
      if (std::holds_alternative<member::Connect>(effect)) member.step(kFailed);
      if (std::holds_alternative<member::StopWorkers>(effect)) stops.push_back(effect);
    }
  }
  EXPECT_EQ(member.now() - heard, seconds{3});
  EXPECT_EQ(stops,
            MemberEffects{(member::StopWorkers{7, StopWhy::host,
                                               "the host of the job at node0:29400 has been silent "
                                               "for 3 s: connect to 10.0.0.1:29400: timed out"})});
  EXPECT_FALSE(member.machine().over());
}

TEST(Member, LeavesASilentHostAndStopsTheWorkers) {
  MemberDriver member;
  member.run(7);
  for (int beat = 0; beat < 2; ++beat)
    EXPECT_EQ(names_of(member.tick_at_deadline()), "Report");
  const MemberEffects effects = member.tick_at_deadline();
  const MemberEffects expected = {
      member::Disconnect{},
      member::StopWorkers{
          7, StopWhy::host,
          "the host of the job at node0:29400 has been silent for 3 s: no sign of life for 3 s"}};
  EXPECT_EQ(effects, expected);
  EXPECT_EQ(names_of(member.tick_at_deadline()), "Connect");
}

TEST(Member, TakesAnyMessageOfTheHostAsASignOfLife) {
  MemberDriver member;
  member.run(7);
  for (int beat = 0; beat < 30; ++beat) {
    EXPECT_EQ(names_of(member.tick_at_deadline()), "Report");
    if (beat % 2 == 0) member.alive(1);
    if (beat % 2 == 1) member.hear(Order{1, round_of(7)});  // Repeated.
  }
}

TEST(Member, StopsTheWorkersAtOnceIfNoProcessListens) {
  MemberDriver member;
  member.run(7);
  member.step(connection_lost("connection reset by peer"));
  member.tick_at_deadline();
  EXPECT_EQ(member.step(kRefused),
            MemberEffects{(member::StopWorkers{
                7, StopWhy::host,
                "the host of the job at node0:29400 is gone: connect to 10.0.0.1:29400: connection "
                "refused"})});
}

TEST(Member, StopsTheRoundIfTheHostHasChanged) {
  MemberDriver member;
  member.run(7);
  member.step(connection_lost("reset"));
  member.redial();
  const MemberEffects expected = {
      member::StopWorkers{7, StopWhy::host, "the host of the job at node0:29400 was restarted"},
      member::Send{report_of(3, 0, 7, Phase::stopping)}};
  EXPECT_EQ(member.welcome(88), expected);
}

TEST(Member, DescribesTheJobsStateOnReconnecting) {
  MemberDriver member;
  member.join();
  membership::Round round = round_of(7);
  round.restarts = 2;
  round.changes = 3;
  member.order(round);
  member.step(connection_lost("reset"));
  membership::Join expected = member_options().join;
  expected.dialled = "10.0.0.1";
  expected.advertised = "10.0.0.2";
  expected.last_epoch = 7;
  expected.last_instance = MemberDriver::kHost;
  expected.last_rank = 1;
  expected.last_nodes = 2;
  expected.restarts = 2;
  expected.changes = 3;
  EXPECT_EQ(member.tick_at_deadline(), MemberEffects{member::Connect{expected}});
}

TEST(Member, DoesNotCallTheHostSilentAfterItsOwnStandstill) {
  MemberDriver member;
  member.run(7);
  member.pass(seconds{60});
  EXPECT_EQ(names_of(member.step(member::Tick{})), "Report");
  const Instant awake = member.now();
  EXPECT_EQ(names_of(member.tick_at_deadline()), "Report");
  EXPECT_EQ(names_of(member.tick_at_deadline()), "Report");
  EXPECT_EQ(names_of(member.tick_at_deadline()), "Disconnect StopWorkers");
  EXPECT_EQ(member.now() - awake, seconds{3});
}

TEST(Member, RetriesOnceAfterAStandstillBeyondTheJoinTimeOut) {
  MemberDriver member;
  member.step(member::Begin{});
  member.step(kFailed);
  member.pass(seconds{600});
  EXPECT_EQ(names_of(member.step(member::Tick{})), "Say Connect");
  EXPECT_FALSE(member.machine().over());
  member.come_up();
  EXPECT_EQ(names_of(member.welcome()), "Report");
}

// ---- Orders.

TEST(Member, StartsARoundOnceAndAcknowledgesIt) {
  MemberDriver member;
  member.join();
  const MemberEffects expected = {member::RoundFormed{round_of(7)},
                                  member::Send{report_of(2, 1, 7, Phase::running)}};
  EXPECT_EQ(member.order(round_of(7)), expected);
  EXPECT_EQ(member.hear(Order{1, round_of(7)}), MemberEffects{});
  EXPECT_EQ(member.status(), "in round 7 as node 1 of 2");
}

TEST(Member, DropsOlderOrders) {
  MemberDriver member;
  member.join();
  member.hear(Order{5, round_of(7)});
  EXPECT_EQ(member.hear(Order{4, Stop{7, StopWhy::failure, "late"}}), MemberEffects{});
  EXPECT_EQ(member.hear(Order{6, Stop{7, StopWhy::failure, "in time"}}),
            (MemberEffects{member::StopWorkers{7, StopWhy::failure, "in time"},
                           member::Send{report_of(3, 6, 7, Phase::stopping)}}));
}

TEST(Member, StartsNoRoundBesideAnotherOrFromThePast) {
  MemberDriver member;
  member.run(7);
  EXPECT_EQ(member.order(round_of(8)), sends(report_of(3, 2, 7, Phase::running)));
  member.order(Stop{7, StopWhy::joined, "node2 has joined"});
  EXPECT_EQ(member.order(round_of(8)), sends(report_of(5, 4, 7, Phase::stopping)));
  member.step(member::ReadyForRound{});
  EXPECT_EQ(member.order(round_of(7)), sends(report_of(7, 5, 7, Phase::ready)));
  EXPECT_EQ(names_of(member.order(round_of(8))), "RoundFormed Report");
}

TEST(Member, OnlyAcknowledgesAStopOfAnotherRound) {
  MemberDriver member;
  member.run(7);
  EXPECT_EQ(member.order(Stop{6, StopWhy::lost, "old"}), sends(report_of(3, 2, 7, Phase::running)));
}

TEST(Member, SkipsARoundThatWasStoppedBeforeItArrived) {
  MemberDriver member;
  member.join();
  EXPECT_EQ(member.order(Stop{7, StopWhy::lost, "node0 was lost"}),
            sends(report_of(2, 1, 7, Phase::ready)));
  EXPECT_EQ(member.order(round_of(7)), sends(report_of(3, 2, 7, Phase::ready)));
  EXPECT_EQ(names_of(member.order(round_of(8))), "RoundFormed Report");
}

TEST(Member, RepeatsTheHostsWaitingText) {
  MemberDriver member;
  member.join();
  EXPECT_EQ(member.order(Wait{false, ""}), sends(ready_report(2, 1)));
  const MemberEffects expected = {member::Say{"1 of 2 nodes; missing: node rank 0"},
                                  member::Send{ready_report(3, 2)}};
  EXPECT_EQ(member.order(Wait{false, "1 of 2 nodes; missing: node rank 0"}), expected);
  EXPECT_EQ(member.status(), "waiting for the round to form: 1 of 2 nodes; missing: node rank 0");
}

TEST(Member, AcceptsAnotherHostsOrderNumbers) {
  MemberDriver member;
  member.join();
  member.hear(Order{100, Wait{}});
  member.step(connection_lost("reset"));
  member.reconnect(88);
  EXPECT_EQ(names_of(member.order(round_of(9))), "RoundFormed Report");
}

// ---- Workers.

TEST(Member, ReportsThatTheWorkersAreDone) {
  MemberDriver member;
  member.run(7);
  EXPECT_EQ(member.step(member::WorkersDone{6}), MemberEffects{});
  EXPECT_EQ(member.step(member::WorkersDone{7}), sends(report_of(3, 1, 7, Phase::done)));
  EXPECT_EQ(member.step(member::WorkersDone{7}), MemberEffects{});
}

TEST(Member, RestartsWorkersThatAreDone) {
  MemberDriver member;
  member.run(7);
  member.step(member::WorkersDone{7});
  EXPECT_EQ(names_of(member.order(Stop{7, StopWhy::failure, "rank 0 failed"})),
            "StopWorkers Report");
  EXPECT_EQ(member.step(member::ReadyForRound{}), sends(report_of(5, 2, 7, Phase::ready)));
  EXPECT_EQ(names_of(member.order(round_of(8))), "RoundFormed Report");
}

TEST(Member, RepeatsAFailureUntilTheNextRound) {
  MemberDriver member;
  member.run(7);
  Report expected = report_of(3, 1, 7, Phase::stopping);
  expected.failure = without_clock(a_failure());
  EXPECT_EQ(member.step(member::WorkerFailed{7, a_failure()}), sends(expected));
  EXPECT_EQ(member.step(member::WorkerFailed{7, a_failure()}), MemberEffects{});
  expected.sequence = 4;
  EXPECT_EQ(member.tick_at_deadline(), sends(expected));
  expected = report_of(5, 1, 7, Phase::ready);
  expected.failure = without_clock(a_failure());
  EXPECT_EQ(member.step(member::ReadyForRound{}), sends(expected));
  EXPECT_EQ(report_in(member.order(round_of(8))), report_of(6, 2, 8, Phase::running));
}

TEST(Member, RepeatsItsEvidenceUntilItIsAcknowledged) {
  MemberDriver member;
  member.run(7);
  member.step(member::WorkerFailed{7, a_failure()});
  const auto told = without_clock(evidence_with("Traceback"));
  EXPECT_EQ(report_in(member.step(member::EvidenceFound{7, evidence_with("Traceback")})).evidence,
            told);
  member.alive(3);  // The report before that one.
  EXPECT_EQ(report_in(member.tick_at_deadline()).evidence, told);
  member.alive(4);
  EXPECT_EQ(report_in(member.tick_at_deadline()).evidence, std::nullopt);
}

TEST(Member, SendsItsEvidenceAgainToAnotherHost) {
  MemberDriver member;
  member.run(7);
  member.step(member::EvidenceFound{7, evidence_with("Traceback")});
  member.alive(3);
  member.step(connection_lost("reset"));
  member.redial();
  const MemberEffects effects = member.welcome(88);
  EXPECT_EQ(report_in(effects).evidence, without_clock(evidence_with("Traceback")));
}

TEST(Member, SendsNoEvidenceOfAnotherEpoch) {
  MemberDriver member;
  member.run(7);
  EXPECT_EQ(member.step(member::EvidenceFound{6, evidence_with("old")}), MemberEffects{});
  member.step(member::EvidenceFound{7, evidence_with("Traceback")});
  member.step(member::ReadyForRound{});
  EXPECT_EQ(report_in(member.order(round_of(8))).evidence, std::nullopt);
}

// ---- The host's clock.

TEST(Member, ReportsTheTimeOfAFailureInTheHostsClock) {
  MemberDriver member;
  member.run(7);  // This sent the second report.
  member.pass(milliseconds{10});
  member.answer(2, Instant{seconds{500}});
  const Instant failed = member.now() + milliseconds{40};
  member.pass(milliseconds{50});
  const auto told = report_in(member.step(member::WorkerFailed{7, a_failure(failed)})).failure;
  ASSERT_TRUE(told);
  // The exchange took 10 ms, so its middle was 5 ms before we heard.
  EXPECT_EQ(told->at, Instant{seconds{500}} + milliseconds{45});
  EXPECT_GE(told->at_error, milliseconds{5});
  EXPECT_LE(told->at_error, milliseconds{6});
}

TEST(Member, RefinesARepeatedTimeAfterABetterClockExchange) {
  MemberDriver member;
  member.run(7);
  member.pass(milliseconds{500});
  member.answer(2, Instant{seconds{500}});
  const Instant failed = member.now();
  member.step(member::WorkerFailed{7, a_failure(failed)});
  member.pass(milliseconds{2});
  member.answer(3, Instant{seconds{500}} + milliseconds{1});
  const auto told = report_in(member.tick_at_deadline()).failure;
  ASSERT_TRUE(told);
  EXPECT_EQ(told->at, Instant{seconds{500}});
  EXPECT_LE(told->at_error, milliseconds{2});
}

TEST(Member, TranslatesBetweenTheTwoClocks) {
  MemberDriver member;
  member.run(7);
  EXPECT_FALSE(member.machine().host_time(member.now()));
  EXPECT_FALSE(member.machine().own_time(Instant{seconds{500}}));
  const Instant sent = member.now();
  member.pass(milliseconds{10});
  member.answer(2, Instant{seconds{500}});
  const auto there = member.machine().host_time(sent);
  const auto here = member.machine().own_time(Instant{seconds{500}});
  ASSERT_TRUE(there && here);
  EXPECT_EQ(there->at, Instant{seconds{500}} - milliseconds{5});
  EXPECT_EQ(here->at, sent + milliseconds{5});
  EXPECT_GE(here->error, milliseconds{5});
}

TEST(Member, ForgetsTheClockOfTheFormerHost) {
  MemberDriver member;
  member.run(7);
  member.answer(2, Instant{seconds{500}});
  member.step(member::WorkerFailed{7, a_failure(member.now())});
  member.step(connection_lost("reset"));
  member.redial();
  EXPECT_EQ(report_in(member.welcome(88)).failure, without_clock(a_failure()));
}

TEST(Member, ReportsEventsOfADisconnectionOnceReconnected) {
  MemberDriver member;
  member.run(7);
  member.step(connection_lost("reset"));
  EXPECT_EQ(member.step(member::WorkerFailed{7, a_failure()}), MemberEffects{});
  EXPECT_EQ(member.step(member::ReadyForRound{}), MemberEffects{});
  member.redial();
  Report expected = report_of(3, 1, 7, Phase::ready);
  expected.failure = without_clock(a_failure());
  EXPECT_EQ(member.welcome(), sends(expected));
}

// ---- Leaving.

Report leaving_report(uint64_t sequence, uint64_t order, bool reaped) {
  Report report = report_of(sequence, order, 7, Phase::leaving);
  report.signal = 15;
  report.reaped = reaped;
  return report;
}

TEST(Member, AnnouncesThatItLeavesBeforeItsGraceStarts) {
  MemberDriver member;
  member.run(7);
  EXPECT_EQ(member.step(member::Leaving{15, false}), sends(leaving_report(3, 1, false)));
  EXPECT_EQ(member.alive(2), MemberEffects{});
  const MemberEffects announced = {member::LeaveAnnounced{},
                                   member::Send{leaving_report(4, 2, false)}};
  EXPECT_EQ(member.order(Stop{7, StopWhy::left, "node1 leaves"}), announced);
  const MemberEffects gone = {member::Send{leaving_report(5, 2, true)}, member::Send{Goodbye{}},
                              member::Disconnect{}};
  EXPECT_EQ(member.step(member::Leaving{15, true}), gone);
  EXPECT_TRUE(member.machine().over());
}

TEST(Member, AnnouncesItsLeaveOnceTheReportIsAcknowledged) {
  MemberDriver member;
  member.run(7);
  member.step(member::Leaving{15, false});
  EXPECT_EQ(member.alive(3), MemberEffects{member::LeaveAnnounced{}});
  EXPECT_EQ(member.alive(3), MemberEffects{});
}

TEST(Member, DoesNotWaitLongForItsLeaveToBeAnnounced) {
  MemberDriver member;
  member.run(7);
  member.step(member::Leaving{15, false});
  EXPECT_EQ(member.until_deadline(), milliseconds{300});
  EXPECT_EQ(member.tick_at_deadline(), MemberEffects{member::LeaveAnnounced{}});
}

TEST(Member, DoesNotWaitToAnnounceItsLeaveIfDisconnected) {
  MemberDriver member;
  member.run(7);
  member.step(connection_lost("reset"));
  EXPECT_EQ(member.step(member::Leaving{15, false}), MemberEffects{member::LeaveAnnounced{}});
}

TEST(Member, EndsSoonIfItsLeaveCannotBeReported) {
  MemberDriver member;
  member.run(7);
  member.step(connection_lost("reset"));
  member.step(member::Leaving{15, false});
  member.pass(seconds{20});
  member.step(member::Tick{});
  member.step(kFailed);
  member.step(member::Leaving{15, true});
  const Instant reaped = member.now();
  while (!member.machine().over()) {
    if (names_of(member.tick_at_deadline()) == "Connect") member.step(kFailed);
  }
  EXPECT_EQ(member.now() - reaped, seconds{1});
}

TEST(Member, ReportsItsLeaveOnTheNextConnection) {
  MemberDriver member;
  member.run(7);
  member.step(connection_lost("reset"));
  member.step(member::Leaving{15, false});
  member.step(member::Leaving{15, true});
  member.redial();
  EXPECT_EQ(member.welcome(), sends(leaving_report(3, 1, true)));
  EXPECT_EQ(member.alive(3), (MemberEffects{member::Send{Goodbye{}}, member::Disconnect{}}));
}

TEST(Member, LeavesAtOnceIfItHasNotBegun) {
  MemberDriver member;
  EXPECT_EQ(member.step(member::Leaving{2, true}), MemberEffects{member::LeaveAnnounced{}});
  EXPECT_TRUE(member.machine().over());
}

TEST(Member, IgnoresRoundsAndRefusalsWhileLeaving) {
  MemberDriver member;
  member.join();
  member.step(member::Leaving{15, false});
  EXPECT_EQ(names_of(member.order(round_of(7))), "Report");
  EXPECT_EQ(member.hear(Refused{RefusalKind::closed, "ended"}),
            (MemberEffects{member::LeaveAnnounced{}, member::Disconnect{}}));
  EXPECT_EQ(member.step(member::Leaving{15, true}), MemberEffects{});
  while (!member.machine().over()) {
    if (names_of(member.tick_at_deadline()) == "Connect") member.step(kRefused);
  }
}

// ---- The end.

End end_of(EndWhy why) {
  End end;
  end.why = why;
  end.exit_code = why == EndWhy::success ? 0 : 3;
  end.text = "rank 5 exited with 3";
  return end;
}

TEST(Member, ReportsTheEndOnceAndAnswersItOnceWorkersAreGone) {
  MemberDriver member;
  member.run(7);
  const MemberEffects ended = {member::JobEnded{end_of(EndWhy::failed)},
                               member::Send{report_of(3, 2, 7, Phase::stopping)}};
  EXPECT_EQ(member.order(end_of(EndWhy::failed)), ended);
  EXPECT_EQ(names_of(member.order(end_of(EndWhy::failed))), "Report");
  EXPECT_EQ(member.step(member::ReadyForRound{}),
            (MemberEffects{member::Send{Goodbye{}}, member::Disconnect{}}));
  EXPECT_EQ(member.step(member::Tick{}), MemberEffects{});
  EXPECT_TRUE(member.waits_for_ever());
}

TEST(Member, AnswersTheEndAtOnceIfNothingRuns) {
  const MemberEffects expected = {member::JobEnded{end_of(EndWhy::success)},
                                  member::Send{Goodbye{}}, member::Disconnect{}};
  Member::Options options = member_options();
  options.join.spares = 1;
  MemberDriver spare(options);
  spare.join();
  EXPECT_EQ(spare.order(end_of(EndWhy::success)), expected);
  MemberDriver surplus;
  surplus.join();
  EXPECT_EQ(
      std::get<member::JobEnded>(surplus.order(end_of(EndWhy::success)).front()).end.exit_code,
      122);
  MemberDriver done;
  done.run(7);
  done.step(member::WorkersDone{7});
  EXPECT_EQ(done.order(end_of(EndWhy::success)), expected);
}

TEST(Member, ReportsTheEndWhileLeaving) {
  MemberDriver member;
  member.run(7);
  member.step(member::Leaving{15, false});
  EXPECT_EQ(names_of(member.order(end_of(EndWhy::stopped))), "JobEnded LeaveAnnounced Report");
  EXPECT_EQ(names_of(member.step(member::Leaving{15, true})), "Goodbye Disconnect");
}

TEST(Member, EndsSoonIfItCannotAnswerTheEnd) {
  MemberDriver member;
  member.run(7);
  member.order(end_of(EndWhy::failed));
  member.step(connection_lost("reset"));
  EXPECT_EQ(member.step(member::ReadyForRound{}), MemberEffects{});
  const Instant reaped = member.now();
  while (!member.machine().over()) {
    if (names_of(member.tick_at_deadline()) != "Connect") continue;
    EXPECT_EQ(names_of(member.step(kRefused)), "");
  }
  EXPECT_EQ(member.now() - reaped, seconds{1});
}

TEST(Member, ReconnectsAfterTheEndToSayGoodbye) {
  MemberDriver member;
  member.run(7);
  member.order(end_of(EndWhy::failed));
  member.step(connection_lost("reset"));
  member.step(member::ReadyForRound{});
  member.redial();
  EXPECT_EQ(names_of(member.welcome()), "Report Goodbye Disconnect");
}

TEST(Member, DoesNotFailIfRefusedAfterTheEnd) {
  MemberDriver member;
  member.run(7);
  member.order(end_of(EndWhy::failed));
  member.step(connection_lost("reset"));
  member.step(member::ReadyForRound{});
  member.redial();
  EXPECT_EQ(names_of(member.hear(Refused{RefusalKind::closed, "ended"})), "Disconnect");
  EXPECT_TRUE(member.machine().over());
}

}  // namespace
}  // namespace muster
