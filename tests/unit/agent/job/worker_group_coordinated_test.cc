// A group in a job of several nodes: the job's host decides on restarts and on the end.
#include <csignal>

#include <gtest/gtest.h>

#include "tests/unit/agent/job/worker_group_harness.h"

namespace muster {
namespace {

WorkerGroup::Options coordinated_options(int workers) {
  WorkerGroup::Options options = options_for(workers, 0);
  options.coordinated = true;
  return options;
}

GroupDriver coordinated_group() {
  return running_group(coordinated_options(2));
}

void let_all_succeed(GroupDriver& group) {
  group.hear_all(group::Exited{0, 0, kGood}, group::Exited{0, 1, kGood});
}

TEST(CoordinatedWorkerGroup, AsksForARoundAfterAFailureWhateverItsOwnBudget) {
  GroupDriver group = coordinated_group();
  EXPECT_EQ(group.hear(group::Exited{0, 1, kCode3}),
            "WorkerFailed{attempt 0 rank 1 pid 101 exited with 3, restart, 0 left} | "
            "Stop{attempt 0, SIGTERM} | "
            "ReportStopping{attempt 0, failure, SIGTERM, KILL in 30 s, live [0]}");
  group.hear(group::Exited{0, 0, kTerm});
  EXPECT_EQ(group.hear(group::GroupEmpty{0}), "RequestRound{attempt 1, restart 0}");
}

TEST(CoordinatedWorkerGroup, TakesTheJobsRestartCountFromTheRound) {
  GroupDriver group = coordinated_group();
  group.hear_all(group::Regroup{0}, group::Exited{0, 0, kTerm}, group::Exited{0, 1, kTerm},
                 group::GroupEmpty{0}, group::RoundReady{1, 2});
  EXPECT_EQ(group.status(), "attempt 1, restart 2: starting workers, 0 of 2 are started");
}

TEST(CoordinatedWorkerGroup, StaysSucceededUntilTheJobEnds) {
  GroupDriver group = coordinated_group();
  let_all_succeed(group);
  EXPECT_EQ(group.hear(group::GroupEmpty{0}), "Succeeded{attempt 0}");
  EXPECT_TRUE(group.waits_for_ever());
  EXPECT_EQ(group.status(),
            "attempt 0, restart 0: all workers succeeded; waiting for the other nodes");
  EXPECT_EQ(group.hear(group::JobEnded{}), "Finish{ended, 1 attempts, 0 restarts}");
}

TEST(CoordinatedWorkerGroup, AsksForARoundWhenAnotherNodeFailsAfterItsOwnSuccess) {
  GroupDriver group = coordinated_group();
  let_all_succeed(group);
  group.hear(group::GroupEmpty{0});
  EXPECT_EQ(group.hear(group::Regroup{0}), "RequestRound{attempt 1, restart 0}");
}

TEST(CoordinatedWorkerGroup, StopsLeftoversBeforeANewRound) {
  GroupDriver group = coordinated_group();
  let_all_succeed(group);
  EXPECT_EQ(group.hear(group::Regroup{0}),
            "Stop{attempt 0, SIGTERM} | "
            "ReportStopping{attempt 0, regroup, SIGTERM, KILL in 30 s, live []}");
  EXPECT_EQ(group.hear(group::GroupEmpty{0}), "RequestRound{attempt 1, restart 0}");
}

TEST(CoordinatedWorkerGroup, ARegroupWhileLeftoversAreStoppedAsksForARound) {
  GroupDriver group = coordinated_group();
  let_all_succeed(group);
  group.tick_at_deadline();  // Reports the leftovers.
  group.tick_at_deadline();  // Stops the leftovers.
  group.hear(group::Regroup{0});
  EXPECT_EQ(group.hear(group::GroupEmpty{0}), "RequestRound{attempt 1, restart 0}");
}

TEST(CoordinatedWorkerGroup, TheEndOfTheJobStopsRunningWorkersAndFinishes) {
  GroupDriver group = coordinated_group();
  EXPECT_EQ(group.hear(group::JobEnded{}),
            "Stop{attempt 0, SIGTERM} | "
            "ReportStopping{attempt 0, ended, SIGTERM, KILL in 30 s, live [0,1]}");
  group.hear_all(group::Exited{0, 0, kTerm}, group::Exited{0, 1, kTerm});
  EXPECT_EQ(group.hear(group::GroupEmpty{0}), "Finish{ended, 1 attempts, 0 restarts}");
}

TEST(CoordinatedWorkerGroup, TheEndOfTheJobDuringAStopWaitsForTheStop) {
  GroupDriver group = coordinated_group();
  group.hear(group::Exited{0, 1, kCode3});
  EXPECT_EQ(group.hear(group::JobEnded{}), "");
  group.hear(group::Exited{0, 0, kTerm});
  const auto effects = group.step(group::GroupEmpty{0});
  EXPECT_EQ(outcome_in(effects).end, std::nullopt);
}

TEST(CoordinatedWorkerGroup, TheEndOfTheJobFinishesAGroupThatWaitsForARound) {
  GroupDriver group(coordinated_options(1));
  group.hear(group::Begin{});
  EXPECT_EQ(group.hear(group::JobEnded{}), "Finish{ended, 1 attempts, 0 restarts}");
}

TEST(CoordinatedWorkerGroup, AFailedSpawnWaitsForTheDecisionOfTheHost) {
  GroupDriver group(coordinated_options(1));
  group.hear_all(group::Begin{}, group::RoundReady{0});
  const Error error{ExitCode::not_found, "no such file"};
  EXPECT_EQ(group.hear(group::SpawnFailed{0, 0, error}), "RequestRound{attempt 1, restart 0}");
  const auto effects = group.step(group::JobEnded{});
  EXPECT_EQ(outcome_in(effects).end, std::nullopt);
  EXPECT_EQ(outcome_in(effects).error, error);
}

TEST(CoordinatedWorkerGroup, AStopSignalBeatsTheEndOfTheJob) {
  GroupDriver group = coordinated_group();
  group.hear(group::StopRequested{SIGTERM});
  EXPECT_EQ(group.hear(group::JobEnded{}), "Note{JobEnded: the end was requested before}");
  group.hear_all(group::Exited{0, 0, kTerm}, group::Exited{0, 1, kTerm});
  EXPECT_EQ(outcome_in(group.step(group::GroupEmpty{0})).end, JobEnd::stopped);
}

TEST(CoordinatedWorkerGroup, AStopSignalAfterTheEndOfTheJobChangesNothing) {
  GroupDriver group = coordinated_group();
  group.hear_all(group::JobEnded{}, group::StopRequested{SIGTERM});
  group.hear_all(group::Exited{0, 0, kTerm}, group::Exited{0, 1, kTerm});
  EXPECT_EQ(outcome_in(group.step(group::GroupEmpty{0})).end, std::nullopt);
}

TEST(CoordinatedWorkerGroup, QuickDeathsBackOffBeforeTheNextRoundIsRequested) {
  GroupDriver group(coordinated_options(1));
  group.hear(group::Begin{});
  for (int attempt = 0; attempt < 2; ++attempt) {
    group.start(attempt, 1);
    group.hear(group::Exited{attempt, 0, kCode3});
    if (attempt == 0) group.hear(group::GroupEmpty{attempt});
  }
  EXPECT_EQ(group.hear(group::GroupEmpty{1}), "BackOff{attempt 2, 2 quick deaths, 0.5 s}");
  EXPECT_EQ(group.tick_at_deadline(), "RequestRound{attempt 2, restart 0}");
}

}  // namespace
}  // namespace muster
