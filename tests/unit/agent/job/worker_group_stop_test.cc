// Stops, leftovers, membership changes, suspension and clock jumps.
#include <csignal>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/agent/job/worker_group_harness.h"

namespace muster {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Effects = std::vector<WorkerGroup::Effect>;

// ---- The stop ladder.

TEST(WorkerGroupStop, AStopIsSignalThenGraceThenKill) {
  GroupDriver group = running_group(2, 3);
  EXPECT_EQ(group.step(group::StopRequested{SIGINT}),
            (Effects{group::Stop{0, SIGINT},
                     group::ReportStopping{
                         0, group::StopReason::requested, SIGINT, false, seconds{30}, {0, 1}}}));
  group.hear(group::Exited{0, 0, ExitStatus::signaled(SIGINT)});
  for (int left = 25; left > 0; left -= 5) {
    EXPECT_EQ(group.tick_at_deadline(),
              fmt::format("{}ReportStopping{{attempt 0, requested, SIGINT, "
                          "KILL in {} s, live [1]}}",
                          left == 10 ? "StopRest{attempt 0} | " : "", left));
  }
  EXPECT_EQ(group.tick_at_deadline(),
            "Kill{attempt 0} | ReportStopping{attempt 0, requested, SIGINT, give up in 30 s, live "
            "[1]}");
  group.hear(group::Exited{0, 1, kKilled});
  const auto effects = group.step(group::GroupEmpty{0});
  group::JobOutcome outcome;
  outcome.end = JobEnd::stopped;
  outcome.signal = SIGINT;
  outcome.attempts = 1;
  EXPECT_EQ(effects, (Effects{group::Finish{outcome}}));
}

TEST(WorkerGroupStop, GivesUpOnProcessesThatSurviveKill) {
  GroupDriver group = running_group(2, 3);
  group.hear_all(group::Exited{0, 0, kCode3}, group::KillRequested{});
  std::string last;
  while (!group.waits_for_ever())
    last = group.tick_at_deadline();
  EXPECT_EQ(group.now(), Instant{seconds{32}});
  EXPECT_EQ(last, "Finish{unkillable, 1 attempts, 0 restarts, SIGKILL, stopped for requested}");
}

TEST(WorkerGroupStop, RemainingProcessesGetTermBetweenTwoReportsToo) {
  WorkerGroup::Options options = options_for(1, 0);
  options.grace = seconds{6};
  GroupDriver group = started_group(options);
  group.hear(group::Exited{0, 0, kCode3});
  EXPECT_EQ(group.tick_at_deadline(), "StopRest{attempt 0}");
  EXPECT_EQ(group.now(), Instant{seconds{4}});
  EXPECT_EQ(group.tick_at_deadline(),
            "ReportStopping{attempt 0, failure, SIGTERM, KILL in 1 s, live []}");
  EXPECT_EQ(group.tick_at_deadline().substr(0, 15), "Kill{attempt 0}");
}

TEST(WorkerGroupStop, AGraceOfZeroKillsAtTheNextTick) {
  WorkerGroup::Options options = options_for(1, 0);
  options.grace = Duration::zero();
  GroupDriver group = started_group(options);
  group.hear(group::StopRequested{SIGTERM});
  EXPECT_EQ(group.until_deadline(), Duration::zero());
  EXPECT_EQ(group.hear(group::Tick{}).substr(0, 15), "Kill{attempt 0}");
}

TEST(WorkerGroupStop, AnEndlessGraceNeverOverflows) {
  WorkerGroup::Options options = options_for(1, 0);
  options.grace = Duration::max();
  GroupDriver group = running_group(options);
  group.hear(group::StopRequested{SIGTERM});
  EXPECT_EQ(group.tick_at_deadline().substr(0, 14), "ReportStopping");
  EXPECT_NE(group.status().find("KILL in no time limit"), std::string::npos) << group.status();
}

TEST(WorkerGroupStop, ASecondStopRequestChangesNothing) {
  GroupDriver group = running_group(1, 0);
  group.hear(group::StopRequested{SIGINT});
  group.pass(seconds{1});
  const Duration before = group.until_deadline();
  EXPECT_EQ(group.hear(group::StopRequested{SIGTERM}),
            "Note{StopRequested: the end was requested before}");
  EXPECT_EQ(group.until_deadline(), before);
  group.hear(group::Exited{0, 0, kGood});
  EXPECT_EQ(outcome_in(group.step(group::GroupEmpty{0})).signal, SIGINT);
}

// ---- An engine that signals the workers itself.

GroupDriver group_under_engine(int workers, int max_restarts) {
  WorkerGroup::Options options = options_for(workers, max_restarts);
  options.stop_may_follow = seconds{1};
  return started_group(options);
}

TEST(WorkerGroupStop, AWorkerKilledByTheEnginesStopBeforeTheRequestHasNotFailed) {
  for (const ExitStatus& status :
       {kTerm, ExitStatus::exited(128 + SIGTERM), ExitStatus::signaled(SIGINT)}) {
    GroupDriver group = group_under_engine(2, 3);
    EXPECT_EQ(group.hear(group::Exited{0, 1, status}), "");
    EXPECT_EQ(group.until_deadline(), seconds{1});
    group.pass(milliseconds{900});
    EXPECT_EQ(group.hear(group::StopRequested{SIGTERM}),
              "Stop{attempt 0, SIGTERM} | ReportStopping{attempt 0, requested, SIGTERM, KILL in "
              "30 s, live [0]}");
    group.hear(group::Exited{0, 0, kGood});
    EXPECT_EQ(outcome_in(group.step(group::GroupEmpty{0})).end, JobEnd::stopped);
  }
}

TEST(WorkerGroupStop, AWorkerEndedByASignalHasFailedIfNoStopFollows) {
  GroupDriver group = group_under_engine(3, 1);
  group.hear(group::Exited{0, 1, kTerm});
  group.pass(milliseconds{500});
  EXPECT_EQ(group.hear(group::Exited{0, 0, kCode3}), "") << "the first death may have caused it";
  EXPECT_EQ(group.hear(group::Exited{0, 2, kGood}), "");
  EXPECT_EQ(group.until_deadline(), milliseconds{500});
  EXPECT_EQ(group.tick_at_deadline(),
            "WorkerFailed{attempt 0 rank 1 pid 101 killed by SIGTERM, restart, 0 left} | "
            "Stop{attempt 0, SIGTERM} | ReportStopping{attempt 0, failure, SIGTERM, KILL in 30 s, "
            "live []}");
}

TEST(WorkerGroupStop, OnlyADeathByATerminationSignalAwaitsAStop) {
  for (const ExitStatus& status : {kCode3, kKilled, ExitStatus::signaled(SIGUSR1)}) {
    GroupDriver group = group_under_engine(2, 3);
    EXPECT_EQ(group.hear(group::Exited{0, 1, status}).substr(0, 12), "WorkerFailed");
  }
}

TEST(WorkerGroupStop, ARepeatedStopRestartsTheGrace) {
  GroupDriver group = running_group(1, 0);
  group.hear(group::StopRequested{SIGTERM});
  group.pass(seconds{6});
  EXPECT_EQ(group.hear(group::StopRepeated{}),
            "ReportStopping{attempt 0, requested, SIGTERM, KILL in 30 s, live [0]}");
  group.pass(seconds{29});
  EXPECT_EQ(group.hear(group::Tick{}).substr(0, 37), "StopRest{attempt 0} | ReportStopping{");
  group.pass(seconds{1});
  EXPECT_EQ(group.hear(group::Tick{}).substr(0, 4), "Kill");
  EXPECT_EQ(group.hear(group::StopRepeated{}), "Note{StopRepeated: no grace is running}");
}

TEST(WorkerGroupStop, AKillRequestSkipsTheGrace) {
  GroupDriver group = running_group(2, 0);
  group.hear(group::StopRequested{SIGINT});
  EXPECT_EQ(group.hear(group::KillRequested{}),
            "Kill{attempt 0} | ReportStopping{attempt 0, requested, SIGINT, give up in 30 s, live "
            "[0,1]}");
  group.hear_all(group::Exited{0, 0, kKilled}, group::Exited{0, 1, kKilled});
  EXPECT_EQ(outcome_in(group.step(group::GroupEmpty{0})).signal, SIGINT);
}

TEST(WorkerGroupStop, AStopRequestEndsAPendingRestartButDoesNotHideTheFailureThatEndsTheJob) {
  struct Row {
    int restarts = 0;
    JobEnd end = JobEnd::failed;
    const char* reason = "failure";
    bool kills = false;
  };
  for (const Row& row : {Row{3, JobEnd::stopped, "requested"}, Row{}, Row{.kills = true}}) {
    GroupDriver group = running_group(2, row.restarts);
    group.hear(group::Exited{0, 0, kCode3});
    group.pass(seconds{1});
    const std::string report = fmt::format("ReportStopping{{attempt 0, {}, SIGTERM, ", row.reason);
    EXPECT_EQ(group.hear(group::StopRequested{SIGHUP}), report + "KILL in 29 s, live [1]}");
    if (row.kills) {
      EXPECT_EQ(group.hear(group::KillRequested{}),
                "Kill{attempt 0} | " + report + "give up in 30 s, live [1]}");
    }
    group.hear(group::Exited{0, 1, kTerm});
    const auto effects = group.step(group::GroupEmpty{0});
    EXPECT_EQ(outcome_in(effects).end, row.end);
    EXPECT_EQ(outcome_in(effects).signal, SIGHUP);
  }
}

TEST(WorkerGroupStop, AWorkerStartedDuringAKillIsKilledToo) {
  GroupDriver group(options_for(2, 0));
  group.hear_all(group::Begin{}, group::RoundReady{0}, group::Spawned{0, 0, 100},
                 group::KillRequested{}, group::Exited{0, 0, kKilled});
  EXPECT_EQ(group.hear(group::GroupEmpty{0}), "");
  EXPECT_EQ(group.step(group::Spawned{0, 1, 101}), (Effects{group::Kill{0}}));
  group.hear(group::Exited{0, 1, kKilled});
  EXPECT_EQ(outcome_in(group.step(group::GroupEmpty{0})).end, JobEnd::stopped);
}

// ---- Leftovers.

TEST(WorkerGroupStop, LeftoversOfSuccessfulWorkersAreReportedThenStoppedAfterTheGrace) {
  GroupDriver group = running_group(1, 0);
  group.hear(group::Exited{0, 0, kGood});
  EXPECT_EQ(group.until_deadline(), milliseconds{300});
  EXPECT_EQ(group.tick_at_deadline(), "ReportLeftovers{attempt 0, TERM in 29.7 s}");
  EXPECT_EQ(group.tick_at_deadline(),
            "Stop{attempt 0, SIGTERM} | ReportStopping{attempt 0, leftovers, SIGTERM, KILL in 2 s, "
            "live []}");
  EXPECT_EQ(group.tick_at_deadline(),
            "Kill{attempt 0} | ReportStopping{attempt 0, leftovers, SIGTERM, give up in 30 s, live "
            "[]}");
  EXPECT_EQ(group.now(), Instant{seconds{2 + 30 + 2}});
  EXPECT_EQ(outcome_in(group.step(group::GroupEmpty{0})).end, JobEnd::success);
}

TEST(WorkerGroupStop, AStopRequestWhileDrainingEndsAsStopped) {
  GroupDriver group = running_group(1, 0);
  group.hear_all(group::Exited{0, 0, kGood}, group::StopRequested{SIGINT});
  const auto effects = group.step(group::GroupEmpty{0});
  EXPECT_EQ(outcome_in(effects).end, JobEnd::stopped);
  EXPECT_EQ(outcome_in(effects).signal, SIGINT);
}

// ---- Regroup.

TEST(WorkerGroupStop, ARegroupCostsNoRestartAndBlamesNoWorker) {
  GroupDriver group = running_group(2, 1);
  group.hear(group::Regroup{0});
  group.hear_all(group::Exited{0, 0, kCode3}, group::Exited{0, 1, kTerm});
  EXPECT_EQ(group.step(group::GroupEmpty{0}), (Effects{group::RequestRound{1, 0}}));
  group.start(1, 2);
  group.pass(seconds{2});
  const auto effects = group.step(group::Exited{1, 0, kCode3});
  ASSERT_FALSE(effects.empty());
  EXPECT_EQ(effects[0],
            (WorkerGroup::Effect{group::WorkerFailed{{1, 0, 200, kCode3, ""}, true, 0}}));
}

TEST(WorkerGroupStop, ARegroupDoesNotBackOff) {
  GroupDriver group(options_for(1, 9));
  group.hear(group::Begin{});
  for (int attempt = 0; attempt < 5; ++attempt) {
    group.start(attempt, 1);
    group.hear_all(group::Regroup{attempt}, group::Exited{attempt, 0, kTerm});
    EXPECT_EQ(group.step(group::GroupEmpty{attempt}),
              (Effects{group::RequestRound{attempt + 1, 0}}));
  }
}

// ---- Suspension.

TEST(WorkerGroupStop, NoWorkerIsStartedWhileSuspended) {
  GroupDriver group(options_for(2, 0));
  group.hear_all(group::Begin{}, group::RoundReady{0});
  EXPECT_EQ(group.hear(group::Suspend{}), "SuspendWorkers{attempt 0}");
  EXPECT_EQ(group.hear(group::Spawned{0, 0, 100}), "SuspendWorkers{attempt 0}");
  EXPECT_EQ(group.hear(group::Resume{}), "ResumeWorkers{attempt 0} | Spawn{attempt 0, rank 1}");
}

TEST(WorkerGroupStop, ResumingWhileAWorkerIsBeingStartedDoesNotStartItTwice) {
  GroupDriver group(options_for(2, 0));
  group.hear_all(group::Begin{}, group::RoundReady{0}, group::Suspend{});
  EXPECT_EQ(group.hear(group::Resume{}), "ResumeWorkers{attempt 0}");
  EXPECT_EQ(group.hear(group::Spawned{0, 0, 100}), "Spawn{attempt 0, rank 1}");
}

TEST(WorkerGroupStop, ASuspensionHoldsTheFirstStartOfARound) {
  GroupDriver group(options_for(1, 0));
  group.hear_all(group::Begin{}, group::Suspend{});
  EXPECT_EQ(group.hear(group::RoundReady{0}), "");
  EXPECT_EQ(group.status(),
            "attempt 0, restart 0 of 0: starting workers, 0 of 1 are started; suspended");
  EXPECT_EQ(group.hear(group::Resume{}), "ResumeWorkers{attempt 0} | Spawn{attempt 0, rank 0}");
}

TEST(WorkerGroupStop, AStopBeforeAnyStartOfASuspendedRoundEndsAtOnce) {
  GroupDriver group(options_for(1, 0));
  group.hear_all(group::Begin{}, group::Suspend{}, group::RoundReady{0});
  const auto effects = group.step(group::StopRequested{SIGTERM});
  EXPECT_EQ(effects.size(), 1u);
  EXPECT_EQ(outcome_in(effects).end, JobEnd::stopped);
}

TEST(WorkerGroupStop, SuspendedTimeDoesNotCountAsTheLifeOfAnAttempt) {
  GroupDriver group(options_for(1, 9));
  group.hear(group::Begin{});
  for (int attempt = 0; attempt < 2; ++attempt) {
    group.start(attempt, 1);
    group.hear(group::Suspend{});
    group.pass(seconds{60});
    group.hear(group::Resume{});
    group.hear_all(group::Exited{attempt, 0, kCode3}, group::GroupEmpty{attempt});
  }
  EXPECT_EQ(group.until_deadline(), milliseconds{500});  // Both deaths were quick.
}

TEST(WorkerGroupStop, SuspendedTimeIsNotTakenFromTheGraceOfLeftovers) {
  GroupDriver group = running_group(1, 0);
  group.hear(group::Exited{0, 0, kGood});
  group.tick_at_deadline();
  group.hear(group::Suspend{});
  EXPECT_TRUE(group.waits_for_ever());
  group.pass(seconds{100});
  EXPECT_EQ(group.hear(group::Tick{}), "");
  EXPECT_EQ(group.hear(group::Resume{}), "ResumeWorkers{attempt 0}");
  EXPECT_EQ(group.until_deadline(), milliseconds{29700});
}

TEST(WorkerGroupStop, AStopOfASuspendedGroupKeepsItsClock) {
  GroupDriver group = running_group(1, 0);
  group.hear_all(group::Suspend{}, group::StopRequested{SIGTERM});
  group.pass(seconds{5});
  EXPECT_EQ(group.hear(group::Tick{}),
            "ReportStopping{attempt 0, requested, SIGTERM, KILL in 25 s, live [0]}");
}

TEST(WorkerGroupStop, ARestartOfASuspendedGroupWaitsForResume) {
  GroupDriver group = running_group(1, 1);
  group.hear_all(group::Suspend{}, group::Exited{0, 0, kCode3}, group::GroupEmpty{0});
  EXPECT_EQ(group.hear(group::RoundReady{1}), "");
  EXPECT_EQ(group.hear(group::Resume{}), "ResumeWorkers{attempt 1} | Spawn{attempt 1, rank 0}");
}

// ---- A clock that jumps.

TEST(WorkerGroupStop, AVeryLateTickDelaysTheKillOnce) {
  GroupDriver group = running_group(1, 0);
  group.hear(group::StopRequested{SIGTERM});
  group.pass(seconds{100});
  EXPECT_EQ(
      group.hear(group::Tick{}),
      "StopRest{attempt 0} | Note{Tick: it came so late that we stood still; the group gets a "
      "little longer}");
  EXPECT_EQ(group.until_deadline(), seconds{2});
  group.pass(seconds{100});  // Late again, but the kill is delayed only once.
  EXPECT_EQ(group.hear(group::Tick{}).substr(0, 15), "Kill{attempt 0}");
  group.pass(seconds{100});
  EXPECT_EQ(group.hear(group::Tick{}).substr(0, 10), "Note{Tick:");
  EXPECT_EQ(group.tick_at_deadline().substr(0, 17), "Finish{unkillable");
}

TEST(WorkerGroupStop, ATickSoonAfterTheGraceIsLateIfItMissedReports) {
  GroupDriver group = running_group(1, 0);
  group.hear(group::StopRequested{SIGTERM});
  group.pass(milliseconds{30500});  // 0.5 s after the grace, but 25.5 s after the due report.
  EXPECT_NE(group.hear(group::Tick{}).find("Note{Tick:"), std::string::npos);
}

TEST(WorkerGroupStop, ASlightlyLateTickKillsAtOnce) {
  WorkerGroup::Options options = options_for(1, 0);
  options.grace = seconds{3};
  GroupDriver group = started_group(options);
  group.hear(group::StopRequested{SIGTERM});
  EXPECT_EQ(group.tick_at_deadline(), "StopRest{attempt 0}");
  group.pass(milliseconds{1900});
  EXPECT_EQ(group.hear(group::Tick{}).substr(0, 15), "Kill{attempt 0}");
}

}  // namespace
}  // namespace muster
