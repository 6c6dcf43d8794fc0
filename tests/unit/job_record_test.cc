#include "agent/job_record.h"

#include <csignal>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace muster {
namespace {

// A job of two workers on one node, as the agent would report it.
class Job : public testing::Test {
 protected:
  Job() : record_(options()) { record_.job_started(2); }

  JobRecord::Options options() {
    JobRecord::Options result;
    result.run_id = "job1";
    result.program = "train.py";
    result.binary = "/usr/bin/python3";
    result.host = "node7";
    result.rdzv_backend = "c10d";
    result.max_restarts = 1;
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
    round.restart_count = restart_count;
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

  group::Outcome failed(int attempt, int culprit, int pid) {
    group::Outcome outcome;
    outcome.kind = group::Outcome::Kind::failed;
    group::Failure failure;
    failure.culprit = {attempt, culprit, pid, ExitStatus::exited(3), ""};
    failure.workers = {
        {1 - culprit, pid - 1, group::WorkerEnd::How::stopped, ExitStatus::signaled(SIGTERM)},
        {culprit, pid, group::WorkerEnd::How::failed, ExitStatus::exited(3)}};
    outcome.failure = failure;
    outcome.restarts = 1;
    return outcome;
  }

  std::vector<std::string> said_;
  std::vector<std::string> events_;
  JobRecord record_;
};

TEST_F(Job, TheCulpritOfTheLastAttemptExplainsTheJob) {
  start_attempt(0, 0);
  record_.worker_exited(exit_of(1, 101, ExitStatus::exited(3)), {});
  record_.stop_sent(SIGTERM);
  record_.worker_exited(exit_of(0, 100, ExitStatus::signaled(SIGTERM)), {});
  AttemptRemains remains;
  remains.err_tails = {"", "ValueError: first\n"};
  record_.attempt_drained(remains);
  const std::string line = record_.restart_line(1, 0, Duration{0});
  EXPECT_NE(line.find("rank 1 exited with 3"), std::string::npos) << line;
  EXPECT_NE(line.find("restarting, 0 of 1 restarts left"), std::string::npos) << line;

  start_attempt(1, 1);
  record_.worker_exited(exit_of(1, 111, ExitStatus::exited(3)), {});
  record_.worker_exited(exit_of(0, 110, ExitStatus::signaled(SIGTERM)), {});
  remains.err_tails = {"", "last words\n"};
  record_.attempt_drained(remains);
  const JobReport report = record_.finish(failed(1, 1, 111));

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

TEST_F(Job, EventsTellTheStoryInOrder) {
  start_attempt(0, 0);
  record_.worker_exited(exit_of(0, 100, ExitStatus::exited(0)), {});
  record_.worker_exited(exit_of(1, 101, ExitStatus::exited(0)), {});
  record_.attempt_drained({});
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

TEST_F(Job, AWorkerThatWasDeclaredFailedStaysTheCulpritThoughItEndsWell) {
  start_attempt(0, 0);
  record_.declared_failed(0, "in uninterruptible sleep for 5.0 s");
  record_.worker_exited(exit_of(0, 100, ExitStatus::exited(0)), {});
  record_.worker_exited(exit_of(1, 101, ExitStatus::signaled(SIGTERM)), {});
  record_.attempt_drained({});
  group::Outcome outcome;
  outcome.kind = group::Outcome::Kind::failed;
  group::Failure failure;
  failure.culprit = {0, 0, 100, std::nullopt, "in uninterruptible sleep for 5.0 s"};
  failure.workers = {{0, 100, group::WorkerEnd::How::succeeded, ExitStatus::exited(0)},
                     {1, 101, group::WorkerEnd::How::stopped, ExitStatus::signaled(SIGTERM)}};
  outcome.failure = failure;
  const JobReport report = record_.finish(outcome);
  ASSERT_TRUE(report.culprit);
  EXPECT_EQ(report.failures[*report.culprit].local_rank, 0);
  EXPECT_EQ(report.cause.sentence, "in uninterruptible sleep for 5.0 s");
  EXPECT_NE(exit_code_of(report, ExitCodePolicy::culprit), 0);
}

TEST_F(Job, LaterEvidenceIsAddedToTheRightWorkerAndOverwritesNoOther) {
  start_attempt(0, 0);
  HostEvidence memory;
  memory.oom_kills = 1;
  record_.worker_exited(exit_of(1, 101, ExitStatus::signaled(SIGKILL)), memory);
  HostEvidence core;
  core.core_path = "/cores/core.101";
  record_.add_evidence(101, core);
  record_.add_evidence(999, {});
  record_.attempt_drained({});
  group::Outcome outcome = failed(0, 1, 101);
  outcome.failure->culprit.status = ExitStatus::signaled(SIGKILL);
  const JobReport report = record_.finish(outcome);
  EXPECT_EQ(report.cause.kind, FailureClass::oom);
}

}  // namespace
}  // namespace muster
