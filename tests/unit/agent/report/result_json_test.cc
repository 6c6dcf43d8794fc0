#include "agent/report/result_json.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "agent/report/cause.h"
#include "tests/unit/agent/report/report_samples.h"

namespace muster {
namespace {

nlohmann::json parsed_result(const JobReport& report) {
  return nlohmann::json::parse(result_json(report, ExitCodePolicy::culprit));
}

JobReport sample_failed_job() {
  JobReport report = sample_job(JobEnd::failed);
  WorkerFailure culprit = sample_failure(3, ExitStatus::exited(42));
  culprit.attempt = 1;
  culprit.device = "GPU 3";
  culprit.call = "all_reduce #17 of group 'world' for 3.2 s";
  culprit.max_rss_kib = 1024;
  culprit.cpu_s = 2.5;
  culprit.stderr_tail = "one\nValueError: boom\n";
  culprit.stderr_log_path = "/logs/3/stderr.log";
  culprit.error_file_path = "/logs/3/error.json";
  culprit.error_file_content = R"({"message": "ValueError: boom"})";
  judge_failures(report, {culprit, sample_stopped(0)});
  report.log_dir = "/logs";
  report.max_restarts = 1;
  report.restarts_used = 1;
  report.attempts = {{0, sample_time(-140), std::chrono::seconds{5}, "rank 1 exited with 3"},
                     {1, sample_time(-134), std::chrono::milliseconds{134'500}, "rank 3 failed"}};
  return report;
}

TEST(ResultJson, HasTheWholeStoryOfAFailedJob) {
  EXPECT_EQ(result_json(sample_failed_job(), ExitCodePolicy::culprit), R"({
  "version": 1,
  "outcome": "failed",
  "exit_code": 42,
  "class": "user",
  "summary": "rank 3 exited with 42: ValueError: boom",
  "remedy": null,
  "run_id": "run-1",
  "program": "train.py",
  "host": "node-7",
  "role": "default",
  "log_dir": "/logs",
  "world": {
    "size": 8,
    "local_size": 8,
    "nnodes": 1,
    "node_rank": 0
  },
  "started": "2026-11-20T22:54:28.123Z",
  "ended": "2026-11-20T22:56:49.123Z",
  "seconds": 141.0,
  "restarts": {
    "used": 1,
    "max": 1
  },
  "membership_changes": 0,
  "attempts": [
    {
      "attempt": 0,
      "started": "2026-11-20T22:54:28.123Z",
      "seconds": 5.0,
      "why_ended": "rank 1 exited with 3"
    },
    {
      "attempt": 1,
      "started": "2026-11-20T22:54:34.123Z",
      "seconds": 134.5,
      "why_ended": "rank 3 failed"
    }
  ],
  "culprit": {
    "rank": 3,
    "local_rank": 3,
    "pid": 1003,
    "attempt": 1,
    "host": "node-7",
    "node_rank": 0,
    "device": "GPU 3",
    "call": "all_reduce #17 of group 'world' for 3.2 s",
    "exit_code": 42,
    "signal": null,
    "core_dumped": false,
    "part": "culprit",
    "stopped_by_muster": false,
    "time": "2026-11-20T22:56:48.123Z",
    "seconds": 134.5,
    "max_rss_kib": 1024,
    "cpu_seconds": 2.5,
    "stdout_log": null,
    "stderr_log": "/logs/3/stderr.log",
    "role": "default",
    "program": "train.py",
    "binary": "/usr/bin/python3",
    "exception": "ValueError: boom",
    "stderr": [
      "one",
      "ValueError: boom"
    ],
    "error_file": "/logs/3/error.json",
    "error_file_content": "{\"message\": \"ValueError: boom\"}"
  },
  "others": [
    {
      "rank": 0,
      "local_rank": 0,
      "pid": 1000,
      "attempt": 0,
      "host": "node-7",
      "node_rank": 0,
      "device": null,
      "call": null,
      "exit_code": null,
      "signal": "SIGTERM",
      "core_dumped": false,
      "part": "bystander",
      "stopped_by_muster": true,
      "time": "2026-11-20T22:56:48.123Z",
      "seconds": 134.5,
      "max_rss_kib": 0,
      "cpu_seconds": 0.0,
      "stdout_log": null,
      "stderr_log": null
    }
  ],
  "others_untold": 0,
  "stopped_elsewhere": [],
  "reason": "only_failure",
  "hang": null,
  "mismatch": null,
  "stop": null,
  "left": [],
  "stuck": []
}
)");
}

TEST(ResultJson, NamesNoCulpritForASuccess) {
  const auto json = parsed_result(sample_job(JobEnd::success));
  EXPECT_EQ(json.at("outcome"), "success");
  EXPECT_EQ(json.at("class"), "success");
  EXPECT_EQ(json.at("exit_code"), 0);
  EXPECT_EQ(json.at("summary"), "all workers succeeded");
  EXPECT_TRUE(json.at("culprit").is_null());
  EXPECT_EQ(json.at("others"), nlohmann::json::array());
}

TEST(ResultJson, HasTheExitCodeOfThePolicy) {
  const auto json =
      nlohmann::json::parse(result_json(sample_failed_job(), ExitCodePolicy::torchrun));
  EXPECT_EQ(json.at("exit_code"), 1);
  EXPECT_EQ(json.at("culprit").at("exit_code"), 42);
}

TEST(ResultJson, HasTheRanksThatOutlivedTheGraceAndThoseThatFailedInTheStop) {
  JobReport report = sample_job(JobEnd::stopped);
  report.stop_signal = SIGTERM;
  report.failed_in_stop = {sample_failure(2, ExitStatus::exited(7))};
  report.failed_in_stop[0].sentence = "exited with 7: boom";
  report.left = {{0, std::chrono::seconds{30}, "evaluate", "", "", ""},
                 {1, std::chrono::seconds{30}, "", "it is gone", "barrier #7", "world"}};
  const auto json = parsed_result(report);
  EXPECT_EQ(json.at("left")[0].dump(),
            R"({"call":null,"group":null,"missing":null,"rank":0,"seconds":30.0,)"
            R"("where":"evaluate"})");
  EXPECT_EQ(json.at("left")[1].dump(),
            R"({"call":"barrier #7","group":"world","missing":"it is gone","rank":1,)"
            R"("seconds":30.0,"where":null})");
  EXPECT_EQ(json.at("stop").at("failed").dump(),
            R"([{"core_dumped":false,"exit_code":7,"rank":2,"signal":null,)"
            R"("text":"exited with 7: boom"}])");
}

TEST(ResultJson, TellsAPreemptionFromAnInterruption) {
  JobReport report = sample_job(JobEnd::stopped);
  report.stop_took = std::chrono::milliseconds{2100};
  report.killed_ranks = {1, 3};
  report.stop_signal = SIGTERM;
  EXPECT_EQ(parsed_result(report).at("class"), "preempted");
  EXPECT_EQ(parsed_result(report).at("summary"), "stopped by SIGTERM");
  EXPECT_EQ(parsed_result(report).at("stop").dump(),
            R"({"by":null,"failed":[],"kill_requested":false,"killed_ranks":[1,3],"seconds":2.1,)"
            R"("signal":"SIGTERM"})");
  report.stop_signal = SIGUSR1;
  EXPECT_EQ(parsed_result(report).at("class"), "preempted");
  for (const int signal : {SIGINT, SIGQUIT, SIGHUP}) {
    report.stop_signal = signal;
    EXPECT_EQ(parsed_result(report).at("class"), "interrupted") << signal;
  }
}

TEST(ResultJson, NamesTheNodeThatGotTheSignal) {
  JobReport report = sample_job(JobEnd::stopped);
  report.stop_signal = SIGTERM;
  report.stopped_by = "SIGTERM on node-b (node rank 1)";
  EXPECT_EQ(parsed_result(report).at("summary"), "stopped by SIGTERM on node-b (node rank 1)");
  EXPECT_EQ(parsed_result(report).at("class"), "preempted");
  EXPECT_EQ(parsed_result(report).at("stop").at("by"), "SIGTERM on node-b (node rank 1)");
}

TEST(ResultJson, TellsTheNodesOfAJobApart) {
  JobReport report = sample_failed_job();
  report.nnodes = 3;
  report.node_rank = 2;
  report.membership_changes = 4;
  EXPECT_EQ(parsed_result(report).at("culprit").at("node_rank"), 2);
  for (WorkerFailure& failure : report.failures)
    failure.node_rank = 1;
  report.others_untold = 7;
  const auto json = parsed_result(report);
  EXPECT_EQ(json.at("world").dump(), R"({"local_size":8,"nnodes":3,"node_rank":2,"size":8})");
  EXPECT_EQ(json.at("culprit").at("node_rank"), 1);
  EXPECT_EQ(json.at("others").at(0).at("node_rank"), 1);
  EXPECT_EQ(json.at("others_untold"), 7);
  EXPECT_EQ(json.at("membership_changes"), 4);
}

TEST(ResultJson, HasTheVerdictOnAHangOrAMismatch) {
  JobReport report = sample_job(JobEnd::stopped);
  report.stop_signal = SIGINT;
  report.hang = sample_hang();
  report.hang->attempt = 2;
  report.hang->ordinal = 0;
  EXPECT_EQ(parsed_result(report).at("hang").dump(),
            R"({"attempt":2,"by":"time","class":"never_entered","confidence":"high",)"
            R"("group":"world","operation":"all_reduce (sum) of 8 float32","ordinal":null,)"
            R"("ranks":[5],"seconds":12.4,"text":"rank 5 never entered all_reduce #1042",)"
            R"("waiting":[0,1,2]})");
  EXPECT_TRUE(parsed_result(report).at("mismatch").is_null());
  report.hang->is_mismatch = true;
  EXPECT_EQ(parsed_result(report).at("mismatch").at("ranks").dump(), "[5]");
  EXPECT_TRUE(parsed_result(report).at("hang").is_null());
}

TEST(ResultJson, ClassifiesSetupErrors) {
  for (const JobEnd end : {JobEnd::spawn_failed, JobEnd::round_failed}) {
    JobReport report = sample_job(end);
    report.error = {ExitCode::not_found, "no such program \"x\""};
    EXPECT_EQ(parsed_result(report).at("class"), "setup");
    EXPECT_EQ(parsed_result(report).at("outcome"), outcome_name(end));
    EXPECT_EQ(parsed_result(report).at("exit_code"), 127);
    EXPECT_EQ(parsed_result(report).at("summary"), "no such program \"x\"");
  }
}

TEST(ResultJson, NamesStuckProcesses) {
  JobReport report = sample_job(JobEnd::unkillable);
  report.stuck = {{77, 3, "python3", 'D', "nfs_wait"}, {78, -1, "dd", 'D', "", 0}};
  const auto json = parsed_result(report);
  EXPECT_EQ(json.at("class"), "stuck");
  EXPECT_EQ(json.at("summary"), "2 processes outlived SIGKILL");
  EXPECT_EQ(json.at("stuck").dump(),
            R"([{"name":"python3","pid":77,"rank":3,"state":"D","uid":null,"wchan":"nfs_wait"},)"
            R"({"name":"dd","pid":78,"rank":null,"state":"D","uid":0,"wchan":null}])");
}

TEST(ResultJson, IsWrittenEvenForAnUnobservedFailure) {
  const auto json = parsed_result(sample_job(JobEnd::failed));
  EXPECT_EQ(json.at("summary"), "a worker failed");
  EXPECT_TRUE(json.at("culprit").is_null());
}

TEST(ResultJson, StaysValidWhateverBytesAProgramWrote) {
  JobReport report = sample_failed_job();
  report.failures[0].error_file_content = std::string("\xff\x00\x1b[31m", 7);
  report.failures[0].device = "\xC3";
  report.program = "\xfe.py";
  const auto json = parsed_result(report);
  EXPECT_EQ(json.at("program"), "\xEF\xBF\xBD.py");
  EXPECT_EQ(json.at("culprit").at("device"), "\xEF\xBF\xBD");
}

}  // namespace
}  // namespace muster
