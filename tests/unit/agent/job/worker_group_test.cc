#include "agent/job/worker_group.h"

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

// ---- Starting.

TEST(WorkerGroup, StartsOneWorkerAfterTheOther) {
  GroupDriver group(options_for(2, 0));
  EXPECT_EQ(group.step(group::Begin{}), (Effects{group::RequestRound{0, 0}}));
  EXPECT_EQ(group.step(group::RoundReady{0}), (Effects{group::Spawn{0, 0}}));
  EXPECT_EQ(group.step(group::Spawned{0, 0, 100}), (Effects{group::Spawn{0, 1}}));
  EXPECT_EQ(group.step(group::Spawned{0, 1, 101}), Effects{});
  EXPECT_TRUE(group.waits_for_ever());
}

TEST(WorkerGroup, SucceedsWhenAllWorkersExitWithZeroAndNoProcessIsLeft) {
  GroupDriver group = running_group(2, 3);
  EXPECT_EQ(group.step(group::Exited{0, 1, kGood}), Effects{});
  EXPECT_EQ(group.step(group::Exited{0, 0, kGood}), (Effects{group::WatchLeftovers{0}}));
  group::JobOutcome outcome;
  outcome.end = JobEnd::success;
  outcome.attempts = 1;
  EXPECT_EQ(group.step(group::GroupEmpty{0}), (Effects{group::Finish{outcome}}));
  EXPECT_TRUE(group.machine().finished());
}

TEST(WorkerGroup, CountsTheWorkersThatEndWhileOthersAreBeingStarted) {
  GroupDriver group(options_for(2, 0));
  group.hear_all(group::Begin{}, group::RoundReady{0}, group::Spawned{0, 0, 100});
  EXPECT_EQ(group.step(group::Exited{0, 0, kGood}), Effects{});
  EXPECT_EQ(group.step(group::Spawned{0, 1, 101}), Effects{});
  EXPECT_EQ(group.step(group::Exited{0, 1, kGood}), (Effects{group::WatchLeftovers{0}}));
}

TEST(WorkerGroup, NeverRestartsAProgramThatCannotBeExecuted) {
  GroupDriver group(options_for(2, 3));
  group.hear_all(group::Begin{}, group::RoundReady{0});
  const Error error{ExitCode::not_found, "no such program"};
  const auto effects = group.step(group::SpawnFailed{0, 0, error});
  EXPECT_EQ(effects.size(), 1u);  // No worker was started, so none is stopped.
  EXPECT_EQ(outcome_in(effects).end, JobEnd::spawn_failed);
  EXPECT_EQ(outcome_in(effects).error, error);
}

TEST(WorkerGroup, StopsTheStartedWorkersBeforeItEndsForAFailedSpawn) {
  GroupDriver group(options_for(2, 3));
  group.hear_all(group::Begin{}, group::RoundReady{0}, group::Spawned{0, 0, 100});
  const Error error{ExitCode::not_found, "no such program"};
  EXPECT_EQ(group.step(group::SpawnFailed{0, 1, error}),
            (Effects{group::Stop{0, SIGTERM},
                     group::ReportStopping{
                         0, group::StopReason::spawn_failed, SIGTERM, false, seconds{30}, {0}}}));
  EXPECT_EQ(group.hear(group::Exited{0, 0, kTerm}), "");
  const auto effects = group.step(group::GroupEmpty{0});
  EXPECT_EQ(outcome_in(effects).end, JobEnd::spawn_failed);
}

TEST(WorkerGroup, AFailedSpawnDuringAStopForARestartEndsTheJob) {
  GroupDriver group(options_for(2, 3));
  group.hear_all(group::Begin{}, group::RoundReady{0}, group::Spawned{0, 0, 100},
                 group::Exited{0, 0, kCode3}, group::GroupEmpty{0});
  const auto effects = group.step(group::SpawnFailed{0, 1, {ExitCode::environment, "no memory"}});
  EXPECT_EQ(outcome_in(effects).end, JobEnd::spawn_failed);
}

// ---- Failure, restart.

TEST(WorkerGroup, RestartsAllWorkersWhenOneFails) {
  GroupDriver group = running_group(2, 1);
  EXPECT_EQ(group.step(group::Exited{0, 1, kCode3}),
            (Effects{group::WorkerFailed{{0, 1, 101, kCode3, ""}, true, 0}, group::Stop{0, SIGTERM},
                     group::ReportStopping{
                         0, group::StopReason::failure, SIGTERM, false, seconds{30}, {0}}}));
  EXPECT_EQ(group.step(group::Exited{0, 0, kTerm}), Effects{});
  EXPECT_EQ(group.step(group::GroupEmpty{0}), (Effects{group::RequestRound{1, 1}}));
  EXPECT_EQ(group.step(group::RoundReady{1}), (Effects{group::Spawn{1, 0}}));
}

TEST(WorkerGroup, WaitsForBothTheLastReapedWorkerAndTheLastDescendant) {
  GroupDriver group = running_group(2, 1);
  group.hear(group::Exited{0, 1, kCode3});
  EXPECT_EQ(group.hear(group::GroupEmpty{0}), "");  // Arrives before the exit.
  EXPECT_EQ(group.hear(group::Exited{0, 0, kTerm}), "RequestRound{attempt 1, restart 1}");
}

TEST(WorkerGroup, FailsWhenTheRestartBudgetIsUsed) {
  GroupDriver group = running_group(3, 0);
  EXPECT_EQ(group.hear(group::Exited{0, 2, ExitStatus::signaled(SIGSEGV, true)}),
            "WorkerFailed{attempt 0 rank 2 pid 102 killed by SIGSEGV (core dumped), no restart, 0 "
            "left} | Stop{attempt 0, SIGTERM} | ReportStopping{attempt 0, failure, SIGTERM, KILL "
            "in 30 s, live [0,1]}");
  group.hear_all(group::Exited{0, 0, kTerm}, group::Exited{0, 1, kCode3});
  const auto effects = group.step(group::GroupEmpty{0});
  group::JobOutcome outcome;
  outcome.end = JobEnd::failed;
  outcome.attempts = 1;
  EXPECT_EQ(effects, (Effects{group::Finish{outcome}}));
}

TEST(WorkerGroup, AFailureWhileWorkersAreBeingStartedStopsThemAll) {
  GroupDriver group(options_for(2, 0));
  group.hear_all(group::Begin{}, group::RoundReady{0}, group::Spawned{0, 0, 100});
  group.hear(group::Exited{0, 0, kCode3});
  EXPECT_EQ(group.hear(group::GroupEmpty{0}), "");  // A worker is still being started.
  EXPECT_EQ(group.step(group::Spawned{0, 1, 101}), (Effects{group::Stop{0, SIGTERM}}));
  EXPECT_EQ(group.hear(group::Exited{0, 1, kTerm}), "");  // That GroupEmpty preceded its start.
  EXPECT_EQ(outcome_in(group.step(group::GroupEmpty{0})).end, JobEnd::failed);
}

TEST(WorkerGroup, FailWorkerFailsTheGroupThoughTheWorkerHasNotEnded) {
  GroupDriver group = running_group(2, 0);
  EXPECT_EQ(group.step(group::FailWorker{0, 1, "hangs in the kernel", false}).front(),
            WorkerGroup::Effect(group::WorkerFailed{
                {0, 1, 101, std::nullopt, "hangs in the kernel", true}, false, 0}));
  group.hear_all(group::Exited{0, 0, kTerm}, group::Exited{0, 1, kKilled});
  const auto effects = group.step(group::GroupEmpty{0});
  EXPECT_EQ(outcome_in(effects).end, JobEnd::failed);
}

TEST(WorkerGroup, UsesExactlyItsRestartBudget) {
  GroupDriver group = running_group(1, 3);
  for (int attempt = 0; attempt < 3; ++attempt) {
    group.hear(group::Exited{attempt, 0, kCode3});
    EXPECT_EQ(group.step(group::GroupEmpty{attempt}),
              (Effects{group::RequestRound{attempt + 1, attempt + 1}}));
    group.start(attempt + 1, 1);
    group.pass(seconds{2});
  }
  group.hear(group::Exited{3, 0, kCode3});
  const auto effects = group.step(group::GroupEmpty{3});
  EXPECT_EQ(outcome_in(effects).end, JobEnd::failed);
  EXPECT_EQ(outcome_in(effects).attempts, 4);
  EXPECT_EQ(outcome_in(effects).restarts, 3);
}

TEST(WorkerGroup, SucceedsAfterARestart) {
  GroupDriver group = running_group(1, 1);
  group.hear_all(group::Exited{0, 0, kCode3}, group::GroupEmpty{0});
  group.start(1, 1);
  group.hear(group::Exited{1, 0, kGood});
  const auto effects = group.step(group::GroupEmpty{1});
  EXPECT_EQ(outcome_in(effects).end, JobEnd::success);
  EXPECT_EQ(outcome_in(effects).restarts, 1);
}

// ---- Back-off.

// Returns the delays before restarts if every attempt lives for `life`.
std::vector<Duration> backoff_delays(int restarts, Duration life) {
  GroupDriver group(options_for(1, restarts));
  group.hear(group::Begin{});
  std::vector<Duration> delays;
  for (int attempt = 0; attempt < restarts; ++attempt) {
    group.start(attempt, 1);
    group.pass(life);
    group.hear_all(group::Exited{attempt, 0, kCode3}, group::GroupEmpty{attempt});
    delays.push_back(group.waits_for_ever() ? Duration::zero() : group.until_deadline());
    if (!group.waits_for_ever()) group.tick_at_deadline();
  }
  return delays;
}

TEST(WorkerGroup, QuickDeathsBackOffUpToACap) {
  const std::vector<Duration> expected = {milliseconds{0}, milliseconds{500}, seconds{1},
                                          seconds{2},      seconds{4},        seconds{8},
                                          seconds{10},     seconds{10}};
  EXPECT_EQ(backoff_delays(8, milliseconds{0}), expected);
  EXPECT_EQ(backoff_delays(8, milliseconds{999}), expected);
}

TEST(WorkerGroup, AttemptsThatLiveForASecondRestartAtOnce) {
  EXPECT_EQ(backoff_delays(4, seconds{1}), std::vector<Duration>(4, Duration::zero()));
}

TEST(WorkerGroup, ALongerLifeForgivesTheQuickDeathsBeforeIt) {
  GroupDriver group(options_for(1, 9));
  group.hear(group::Begin{});
  const std::vector<int> lives_s = {0, 5, 0};
  for (int attempt = 0; attempt < 3; ++attempt) {
    group.start(attempt, 1);
    group.pass(seconds{lives_s[static_cast<size_t>(attempt)]});
    group.hear(group::Exited{attempt, 0, kCode3});
    EXPECT_EQ(group.step(group::GroupEmpty{attempt}),
              (Effects{group::RequestRound{attempt + 1, attempt + 1}}));
  }
}

TEST(WorkerGroup, BackOffIsAnnouncedAndEndsWithANewRound) {
  GroupDriver group(options_for(1, 5));
  group.hear(group::Begin{});
  for (int attempt = 0; attempt < 2; ++attempt) {
    group.start(attempt, 1);
    group.hear(group::Exited{attempt, 0, kCode3});
    if (attempt == 0) group.hear(group::GroupEmpty{0});
  }
  EXPECT_EQ(group.step(group::GroupEmpty{1}), (Effects{group::BackOff{2, 2, milliseconds{500}}}));
  EXPECT_EQ(
      group.status(),
      "attempt 1, restart 1 of 5: 2 attempts in a row died at once; the next starts in 0.5 s");
  EXPECT_EQ(group.tick_at_deadline(), "RequestRound{attempt 2, restart 2}");
}

TEST(WorkerGroup, SaysInOneLineWhatItWaitsFor) {
  GroupDriver group = running_group(3, 2);
  group.hear(group::Exited{0, 1, kCode3});
  EXPECT_EQ(group.status(),
            "attempt 0, restart 0 of 2: stopping, since a worker failed; waiting for local ranks "
            "0,2; KILL in 30.0 s");
}

TEST(WorkerGroupDeathTest, InvalidOptionsEndTheProgram) {
  WorkerGroup::Options negative = options_for(1, 0);
  negative.grace = milliseconds{-1};
  EXPECT_DEATH(WorkerGroup{options_for(0, 0)}, "internal error: CHECK");
  EXPECT_DEATH(WorkerGroup{options_for(1, -1)}, "internal error: CHECK");
  EXPECT_DEATH(WorkerGroup{negative}, "internal error: CHECK");
}

}  // namespace
}  // namespace muster
