#include "agent/job/job_recorder.h"

#include <algorithm>
#include <csignal>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace muster {
namespace {

// A job of two workers on one node; the test reports its events as the agent does.
class Job : public testing::Test {
 protected:
  Job() : record_(job(), options()) { record_.job_started(2); }

  static JobReport job() {
    JobReport result;
    result.run_id = "job1";
    result.program = "train.py";
    result.host = "node7";
    result.max_restarts = 1;
    return result;
  }

  JobRecorder::Options options() {
    JobRecorder::Options result;
    result.binary = "/usr/bin/python3";
    result.rdzv_backend = "c10d";
    result.torch_events = true;
    result.say_raw = [this](const std::string& line) { said_.push_back(line); };
    result.append_event = [this](const std::string& line) { events_.push_back(line); };
    return result;
  }

  void start_attempt(int attempt, int restart_count) {
    RoundView round;
    round.local_world_size = round.world_size = round.role_world_size = 2;
    round.master_addr = "node7";
    round.master_port = 4000 + attempt;
    round.restarts = restart_count;
    round.max_restarts = 1;
    record_.round_ready(
        attempt, round, std::chrono::milliseconds(2),
        {{"", "/logs/0/stderr.log", "/logs/0/error.json", "GPU 0"}, {"", "", "", "GPU 1"}});
    record_.worker_started(0, 100 + 10 * attempt);
    record_.worker_started(1, 101 + 10 * attempt);
  }

  WorkerExit exit_of(int local_rank, pid_t pid, ExitStatus status) {
    return {local_rank, pid, status, std::chrono::seconds(3), 2048, 1.5};
  }

  std::vector<std::string> event_names() const {
    std::vector<std::string> names;
    for (const std::string& line : events_)
      names.push_back(nlohmann::json::parse(line).at("event"));
    return names;
  }

  group::JobOutcome failed() {
    group::JobOutcome outcome;
    outcome.end = JobEnd::failed;
    outcome.restarts = 1;
    return outcome;
  }

  static group::JobOutcome stopped_by_sigint() {
    group::JobOutcome outcome;
    outcome.end = JobEnd::stopped;
    outcome.signal = SIGINT;
    return outcome;
  }

  // `seen` empty: both workers ran when the stop came, unless they had ended.
  void stop(int signal = SIGTERM, std::vector<AtStop> seen = {}) {
    record_.stop_begins(signal, std::chrono::seconds(30), seen);
  }

  // Rank 0 ends, then rank 1, and they have printed nothing.
  void workers_end(int attempt, ExitStatus first, ExitStatus second) {
    record_.worker_exited(exit_of(0, 100 + 10 * attempt, first), {});
    record_.worker_exited(exit_of(1, 101 + 10 * attempt, second), {});
    record_.attempt_drained({});
  }

  void rank_1_exits_with_3(int attempt) {
    record_.worker_exited(exit_of(1, 101 + 10 * attempt, ExitStatus::exited(3)), {});
    stop(SIGTERM, {AtStop::running, AtStop::ended});
    record_.worker_exited(exit_of(0, 100 + 10 * attempt, ExitStatus::signaled(SIGTERM)), {});
  }

  static AttemptRemains remains(const std::string& err0, const std::string& err1) {
    AttemptRemains all;
    for (const std::string& err : {err0, err1}) {
      WorkerRemains& one = all.workers.emplace_back();
      one.printed.err_tail = err;
      one.printed.err_total = one.printed.err_total_before_stop = err.size();
    }
    return all;
  }

  std::vector<std::string> said_;
  std::vector<std::string> events_;
  JobRecorder record_;
};

TEST_F(Job, TheCulpritOfTheLastAttemptExplainsTheJob) {
  start_attempt(0, 0);
  rank_1_exits_with_3(0);
  record_.attempt_drained(remains("", "ValueError: first\n"));
  const std::string line = record_.restart_line(0, Duration{0});
  EXPECT_NE(line.find("rank 1 exited with 3"), std::string::npos) << line;
  EXPECT_NE(line.find("restarting, 0 of 1 restarts left"), std::string::npos) << line;

  start_attempt(1, 1);
  rank_1_exits_with_3(1);
  record_.attempt_drained(remains("", "last words\n"));
  const JobReport report = record_.finish(failed());

  EXPECT_EQ(report.end, JobEnd::failed);
  ASSERT_TRUE(report.culprit);
  const WorkerFailure& culprit = report.failures[*report.culprit];
  EXPECT_EQ(culprit.rank, 1);
  EXPECT_EQ(culprit.pid, 111);
  EXPECT_EQ(culprit.attempt, 1);
  EXPECT_EQ(culprit.device, "GPU 1");
  EXPECT_EQ(culprit.stderr_tail, "last words\n");
  EXPECT_EQ(culprit.max_rss_kib, 2048);
  ASSERT_EQ(report.failures.size(), 2u);
  EXPECT_TRUE(report.failures[1].stopped_by_muster);
  ASSERT_EQ(report.attempts.size(), 2u);
  EXPECT_EQ(report.attempts[0].why_ended, "rank 1 exited with 3");
  EXPECT_EQ(exit_code_of(report, ExitCodePolicy::culprit), 3);
}

// The line, the screen and the events come from one verdict, whose rank need not be the one whose
// death began the stop.
TEST_F(Job, ACrashThatIsReapedLateIsNamedEverywhere) {
  start_attempt(0, 0);
  record_.worker_exited(exit_of(0, 100, ExitStatus::exited(3)), {});
  stop(SIGTERM, {AtStop::ended, AtStop::exiting});
  record_.worker_exited(exit_of(1, 101, ExitStatus::signaled(SIGSEGV)), {});
  record_.attempt_drained({});
  const std::string line = record_.restart_line(0, Duration{0});
  EXPECT_NE(line.find("rank 1 killed by SIGSEGV"), std::string::npos) << line;
  const auto told = nlohmann::json::parse(events_.at(events_.size() - 2));
  EXPECT_EQ(told.at("event"), "attempt_failed");
  EXPECT_EQ(told.at("rank"), 1);
  const JobReport report = record_.finish(failed());
  EXPECT_EQ(report.failures[*report.culprit].rank, 1);
  EXPECT_EQ(report.attempts[0].why_ended, "rank 1 killed by SIGSEGV");
}

TEST_F(Job, AFailureOfAnEarlierAttemptIsStillKnownWhenTheJobIsStopped) {
  start_attempt(0, 0);
  rank_1_exits_with_3(0);
  record_.attempt_drained({});
  record_.restart_line(0, Duration{0});
  start_attempt(1, 1);
  record_.stop_requested();
  stop(SIGINT, {AtStop::running, AtStop::running});
  workers_end(1, ExitStatus::signaled(SIGINT), ExitStatus::signaled(SIGINT));
  const JobReport report = record_.finish(stopped_by_sigint());
  ASSERT_TRUE(report.culprit);
  EXPECT_EQ(report.failures[*report.culprit].pid, 101);
}

// ---- reports of an earlier attempt do not leak into the last one

TEST_F(Job, TheDurationOfAStopCountsFromItsRequest) {
  start_attempt(0, 0);
  stop(SIGTERM, {AtStop::running, AtStop::running});  // For a membership change.
  record_.worker_exited(exit_of(0, 100, ExitStatus::signaled(SIGTERM)), {});
  record_.worker_exited(exit_of(1, 101, ExitStatus::signaled(SIGTERM)), {});
  record_.stop_ended();
  record_.attempt_drained({});
  start_attempt(1, 0);
  const auto before = std::chrono::steady_clock::now();
  record_.stop_requested();
  stop(SIGINT, {AtStop::running, AtStop::running});
  const JobReport report = record_.finish(stopped_by_sigint());
  EXPECT_LE(report.stop_took, std::chrono::steady_clock::now() - before);
  const std::vector<std::string> names = event_names();
  EXPECT_EQ(std::ranges::count(names, "stopping"), 2);
  EXPECT_EQ(std::ranges::count(names, "stopped"), 1);
}

TEST_F(Job, KilledRanksAreThoseOfTheLastAttemptOnly) {
  start_attempt(0, 0);
  stop(SIGTERM, {AtStop::running, AtStop::running});
  record_.kill_sent("100 (python3)");
  workers_end(0, ExitStatus::signaled(SIGKILL), ExitStatus::signaled(SIGTERM));
  start_attempt(1, 0);
  stop(SIGINT, {AtStop::running, AtStop::running});
  workers_end(1, ExitStatus::signaled(SIGINT), ExitStatus::signaled(SIGINT));
  EXPECT_EQ(record_.finish(stopped_by_sigint()).killed_ranks, std::vector<int>{});
}

TEST_F(Job, ARankThatOutlivesTheGraceIsCalledKilledWhateverSignalEndsIt) {
  start_attempt(0, 0);
  stop(SIGTERM, {AtStop::running, AtStop::running});
  record_.worker_exited(exit_of(0, 100, ExitStatus::signaled(SIGTERM)), {});
  record_.kill_sent("101 (python3)");
  record_.worker_exited(exit_of(1, 101, ExitStatus::signaled(SIGTERM)), {});
  record_.attempt_drained({});
  EXPECT_EQ(record_.finish(stopped_by_sigint()).killed_ranks, std::vector<int>{1});
}

TEST_F(Job, AWorkerThatFailsDuringAStopIsReported) {
  start_attempt(0, 0);
  stop(SIGTERM, {AtStop::running, AtStop::running});
  record_.worker_exited(exit_of(0, 100, ExitStatus::exited(1)), {});
  record_.worker_exited(exit_of(1, 101, ExitStatus::signaled(SIGTERM)), {});
  AttemptRemains remains;
  remains.workers.resize(2);
  remains.workers[0].printed.err_tail =
      "Traceback (most recent call last):\n  File \"t.py\", line "
      "1, in <module>\nOSError: disk full\n";
  remains.workers[0].printed.err_total = remains.workers[0].printed.err_tail.size();
  record_.attempt_drained(remains);
  const JobReport report = record_.finish(stopped_by_sigint());
  ASSERT_EQ(report.failed_in_stop.size(), 1u);
  EXPECT_EQ(report.failed_in_stop[0].rank, 0);
  EXPECT_EQ(report.failed_in_stop[0].sentence, "exited with 1: OSError: disk full");
}

TEST_F(Job, ADeathByTermInAStopByAnotherSignalIsNoFailure) {
  start_attempt(0, 0);
  stop(SIGINT, {AtStop::running, AtStop::running});
  workers_end(0, ExitStatus::signaled(SIGTERM), ExitStatus::exited(143));
  EXPECT_TRUE(record_.finish(stopped_by_sigint()).failed_in_stop.empty());
}

TEST_F(Job, RanksThatOutliveTheGraceAreReportedOnceAndOnlyInTheirAttempt) {
  start_attempt(0, 0);
  LeftRank rank;
  rank.where = "save";
  EXPECT_EQ(record_.grace_is_over({rank}), "");  // No stop has begun.
  stop(SIGTERM, {AtStop::running, AtStop::running});
  EXPECT_TRUE(record_.grace_is_over({rank}).ends_with(" and was in save"));
  record_.kill_sent("100 (python3)");
  EXPECT_EQ(record_.grace_is_over({rank}), "");
  EXPECT_EQ(record_.finish(stopped_by_sigint()).left.size(), 1u);
  start_attempt(1, 0);
  EXPECT_TRUE(record_.finish(stopped_by_sigint()).left.empty());
}

// ---- evidence for the job's host

TEST_F(Job, ANodeWhereNothingFailedHasNoEvidence) {
  start_attempt(0, 0);
  stop(SIGTERM, {AtStop::running, AtStop::running});
  workers_end(0, ExitStatus::signaled(SIGTERM), ExitStatus::signaled(SIGTERM));
  EXPECT_FALSE(record_.has_evidence());
}

TEST_F(Job, AnEarlyExitWithZeroIsEvidence) {
  start_attempt(0, 0);
  record_.worker_exited(exit_of(0, 100, ExitStatus::exited(0)), {});
  stop(SIGTERM, {AtStop::ended, AtStop::running});
  record_.worker_exited(exit_of(1, 101, ExitStatus::signaled(SIGTERM)), {});
  record_.attempt_drained({});
  EXPECT_TRUE(record_.has_evidence());
  ASSERT_EQ(record_.evidence().workers.size(), 2u);
  EXPECT_TRUE(record_.evidence().workers[1].signs.by_stop);
}

TEST_F(Job, AnErrorOfTheNodeItselfOutlivesItsDrain) {
  start_attempt(0, 0);
  record_.node_failed({ExitCode::not_found, "no such program"});
  record_.attempt_drained({});
  EXPECT_TRUE(record_.has_evidence());
  EXPECT_EQ(record_.evidence().error->message, "no such program");
}

TEST_F(Job, EventsAreWrittenInOrder) {
  start_attempt(0, 0);
  workers_end(0, ExitStatus::exited(0), ExitStatus::exited(0));
  const JobReport report = record_.finish({});
  record_.write_final_events(report, 0);
  EXPECT_EQ(event_names(), (std::vector<std::string>{"job_started", "round_ready", "worker_started",
                                                     "worker_started", "worker_exited",
                                                     "worker_exited", "job_ended"}));
  EXPECT_EQ(report.attempts.at(0).why_ended, "all workers succeeded");
  EXPECT_FALSE(report.culprit);
  // RENDEZVOUS, ASSIGN_WORKER_RANKS, START twice, SUCCEEDED for both workers and the agent.
  EXPECT_EQ(said_.size(), 7u);
}

TEST_F(Job, TheLastAttemptsFailureIsAnEventToo) {
  start_attempt(0, 1);
  rank_1_exits_with_3(0);
  record_.attempt_drained({});
  record_.write_final_events(record_.finish(failed()), 3);
  const std::vector<std::string> names = event_names();
  ASSERT_GE(names.size(), 2U);
  EXPECT_EQ(names.back(), "job_ended");
  EXPECT_EQ(names[names.size() - 2], "attempt_failed");
  const auto told = nlohmann::json::parse(events_[events_.size() - 2]);
  EXPECT_EQ(told.at("rank"), 1);
  EXPECT_EQ(told.at("text"), "exited with 3");
}

TEST_F(Job, AWorkerDeclaredFailedStaysTheCulpritThoughItExitsWithZero) {
  start_attempt(0, 0);
  record_.declared_failed(0, "in uninterruptible sleep for 5.0 s");
  stop(SIGTERM, {AtStop::running, AtStop::running});
  workers_end(0, ExitStatus::exited(0), ExitStatus::signaled(SIGTERM));
  const JobReport report = record_.finish(failed());
  ASSERT_TRUE(report.culprit);
  EXPECT_EQ(report.failures[*report.culprit].local_rank, 0);
  EXPECT_EQ(report.cause.sentence, "in uninterruptible sleep for 5.0 s");
  EXPECT_NE(exit_code_of(report, ExitCodePolicy::culprit), 0);
}

TEST_F(Job, LaterEvidenceIsAddedToItsWorkerAndOverwritesNone) {
  start_attempt(0, 0);
  HostEvidence memory;
  memory.oom_kills = 1;
  record_.worker_exited(exit_of(1, 101, ExitStatus::signaled(SIGKILL)), memory);
  GatheredEvidence core;
  core.core_path = "/cores/core.101";
  record_.add_evidence(101, core);
  record_.add_evidence(999, {});
  record_.attempt_drained({});
  const JobReport report = record_.finish(failed());
  EXPECT_EQ(report.cause.kind, FailureClass::oom);
}

// The kernel killed only one of them for lack of memory: its counter does not say which.
TEST_F(Job, TwoKillsForOneCountedOomKillAreBothOnlyProbable) {
  start_attempt(0, 0);
  HostEvidence memory;
  memory.oom_kills = 1;
  record_.worker_exited(exit_of(0, 100, ExitStatus::signaled(SIGKILL)), memory);
  record_.worker_exited(exit_of(1, 101, ExitStatus::signaled(SIGKILL)), memory);
  record_.attempt_drained({});
  const JobReport report = record_.finish(failed());
  EXPECT_EQ(report.cause.kind, FailureClass::oom);
  EXPECT_THAT(report.cause.sentence, testing::HasSubstr("probably"));
}

TEST_F(Job, AKillByTheAgentDoesNotMakeTheKernelsKillDoubtful) {
  start_attempt(0, 0);
  HostEvidence memory;
  memory.oom_kills = 1;
  record_.worker_exited(exit_of(1, 101, ExitStatus::signaled(SIGKILL)), memory);
  stop(SIGKILL, {AtStop::running, AtStop::ended});
  record_.worker_exited(exit_of(0, 100, ExitStatus::signaled(SIGKILL)), memory);
  record_.attempt_drained({});
  const JobReport report = record_.finish(failed());
  EXPECT_THAT(report.cause.sentence, testing::Not(testing::HasSubstr("probably")));
}

TEST_F(Job, TheReportNamesTheFilesWithTheLastLinesOfEachRank) {
  start_attempt(0, 0);
  rank_1_exits_with_3(0);
  AttemptRemains all = remains("", "");
  all.workers[1].printed.kept_out = "/run/attempt_0/1/stdout_tail.log";
  all.workers[1].printed.kept_err = "/run/attempt_0/1/stderr_tail.log";
  record_.attempt_drained(all);
  const JobReport report = record_.finish(failed());
  ASSERT_TRUE(report.culprit);
  EXPECT_EQ(report.failures[*report.culprit].stdout_log_path, "/run/attempt_0/1/stdout_tail.log");
  EXPECT_EQ(report.failures[*report.culprit].stderr_log_path, "/run/attempt_0/1/stderr_tail.log");
  EXPECT_EQ(report.tails_dir, "/run/attempt_0");
}

}  // namespace
}  // namespace muster
