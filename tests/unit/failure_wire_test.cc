#include "agent/report/failure_wire.h"

#include <csignal>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "agent/report/cause.h"
#include "agent/report/error_file.h"
#include "agent/report/result_json.h"
#include "agent/report/text.h"
#include "agent/report/verdict.h"
#include "tests/unit/report_samples.h"

namespace muster {
namespace {

// Node rank 1 of three with four workers each, where rank 5 failed.
JobReport culprits_report() {
  JobReport report = sample_job(JobEnd::failed);
  report.host = "node-b";
  report.nnodes = 3;
  report.node_rank = 1;
  report.world_size = 12;
  report.local_world_size = 4;
  report.max_restarts = 3;
  report.restarts_used = 3;
  WorkerFailure culprit = sample_failure(5, ExitStatus::exited(42));
  culprit.local_rank = 1;
  culprit.attempt = 3;
  culprit.device = "GPU 1 (0000:3b:00.0)";
  culprit.max_rss_kib = 4096;
  culprit.cpu_s = 2.5;
  culprit.stderr_tail = "epoch 1\nValueError: boom\n";
  culprit.stdout_log_path = "/logs/5/stdout.log";
  culprit.stderr_log_path = "/logs/5/stderr.log";
  culprit.error_file_path = "/logs/5/error.json";
  culprit.error_file_content = recorded_error("ValueError: boom", "tb", "1795215400");
  report.failures = {sample_failure(4, ExitStatus::signaled(SIGABRT, true)), culprit,
                     sample_stopped(6), sample_stopped(7)};
  for (WorkerFailure& failure : report.failures)
    failure.host = "node-b";
  report.culprit = 1;
  report.cause = classify(culprit, {});
  report.cause.remedy = "do not go boom";
  return report;
}

JobReport report_of(const std::string& host, int node_rank) {
  JobReport report = sample_job(JobEnd::round_failed);
  report.host = host;
  report.nnodes = 3;
  report.node_rank = node_rank;
  report.world_size = 12;
  report.max_restarts = 3;
  return report;
}

RemoteFailure decoded(const std::string& detail) {
  Result<RemoteFailure> remote = decode_failure_detail(detail);
  if (remote) return *std::move(remote);
  ADD_FAILURE() << remote.error().message;
  return {};
}

RemoteFailure passed_on(const JobReport& report) {
  return decoded(encode_failure_detail(report));
}

membership::End end_with(const JobReport& report) {
  membership::End end;
  end.why = membership::EndWhy::failed;
  end.exit_code = 42;
  end.node_rank = 1;
  end.host_name = "node-b";
  end.text = "rank 5 on node-b failed";
  end.restarts = 3;
  end.changes = 2;
  membership::Failure failure;
  failure.rank = 5;
  failure.local_rank = 1;
  failure.exit_code = 42;
  failure.sentence = failure_sentence(report);
  failure.detail = encode_failure_detail(report);
  end.failure = failure;
  return end;
}

JobReport ended(JobReport report, const membership::End& end) {
  apply_end(report, end);
  return report;
}

// The detail with one value replaced, as a liar or another version might send it.
std::string detail_with(const char* pointer, const nlohmann::json& value) {
  auto json = nlohmann::json::parse(encode_failure_detail(culprits_report()));
  json[nlohmann::json::json_pointer(pointer)] = value;
  return json.dump();
}

std::string detail_without(const std::string& object, const std::string& key) {
  auto json = nlohmann::json::parse(encode_failure_detail(culprits_report()));
  auto& at = object.empty() ? json : json.at(object);
  EXPECT_EQ(at.erase(key), 1u) << key;
  return json.dump();
}

std::string repeated(const std::string& text, int times) {
  std::string result;
  for (int i = 0; i < times; ++i)
    result += text;
  return result;
}

// ---- the round trip

TEST(FailureWire, CarriesAllThatAVerdictShows) {
  const JobReport report = culprits_report();
  const RemoteFailure remote = passed_on(report);
  WorkerFailure culprit = report.failures[1];
  culprit.node_rank = 1;
  EXPECT_EQ(remote.culprit, culprit);
  EXPECT_EQ(remote.cause, report.cause);
  EXPECT_EQ(remote.host, "node-b");
  EXPECT_EQ(remote.node_rank, 1);
  EXPECT_EQ(remote.nodes, 3);
  EXPECT_EQ(remote.world_size, 12);
  EXPECT_EQ(remote.restarts_used, 3);
  EXPECT_EQ(remote.max_restarts, 3);
  EXPECT_FALSE(remote.error);
}

TEST(FailureWire, CarriesTheOthersInOrderWithoutTheirOutput) {
  JobReport report = culprits_report();
  report.failures[0].stderr_tail = "not sent\n";
  report.failures[2].declared = "stuck in uninterruptible sleep for 60 s";
  std::vector<WorkerFailure> others = {report.failures[0], report.failures[2], report.failures[3]};
  for (WorkerFailure& other : others) {
    other.node_rank = 1;
    other.attempt = 3;
    other.stderr_tail.clear();
    if (other.status.kind == ExitStatus::Kind::exited) other.status.core_dumped = false;
  }
  EXPECT_EQ(passed_on(report).others, others);
  EXPECT_EQ(passed_on(report).others_untold, 0);
}

TEST(FailureWire, CarriesAnErrorOfTheNodeItself) {
  JobReport report = report_of("node-b", 1);
  report.end = JobEnd::spawn_failed;
  report.error = {ExitCode::not_found, "cannot start \"x\": no such file"};
  const RemoteFailure remote = passed_on(report);
  EXPECT_EQ(remote.error, report.error);
  EXPECT_EQ(remote.host, "node-b");
  EXPECT_EQ(remote.node_rank, 1);
  EXPECT_EQ(failure_sentence(report), "cannot start \"x\": no such file");
}

TEST(FailureWire, SaysNothingWhereNothingFailed) {
  EXPECT_EQ(encode_failure_detail(sample_job(JobEnd::success)), "");
  EXPECT_EQ(encode_failure_detail(sample_job(JobEnd::failed)), "");
  EXPECT_EQ(encode_failure_detail(sample_job(JobEnd::stopped)), "");
}

TEST(FailureWire, NamesTheFailureInOneCleanLine) {
  JobReport report = culprits_report();
  EXPECT_EQ(failure_sentence(report), "exited with 42: ValueError: boom");
  report.cause.sentence = "exited with 1: \x1b[2Jboom\nmore";
  EXPECT_EQ(failure_sentence(report), "exited with 1: boommore");
  EXPECT_EQ(failure_sentence(sample_job(JobEnd::failed)), "no worker's end was seen");
}

TEST(FailureWire, KeepsSignalsAndCoreDumps) {
  for (const ExitStatus status :
       {ExitStatus::exited(0), ExitStatus::exited(255), ExitStatus::signaled(SIGKILL),
        ExitStatus::signaled(SIGSEGV, true), ExitStatus::signaled(SIGRTMAX)}) {
    JobReport report = culprits_report();
    report.failures[1].status = status;
    EXPECT_EQ(passed_on(report).culprit.status, status) << describe(status);
  }
}

TEST(FailureWire, KeepsEveryClassOfFailure) {
  for (int i = 0; i <= static_cast<int>(FailureClass::timer); ++i) {
    JobReport report = culprits_report();
    report.cause.kind = static_cast<FailureClass>(i);
    EXPECT_EQ(passed_on(report).cause, report.cause);
  }
}

// ---- what is long is cut, and still shown

TEST(FailureWire, SendsTheLastThirtyLinesOfStderr) {
  JobReport report = culprits_report();
  report.failures[1].stderr_tail.clear();
  std::string last_thirty;
  for (int i = 1; i <= 100; ++i) {
    const std::string line = "line " + std::to_string(i) + "\n";
    report.failures[1].stderr_tail += line;
    if (i > 70) last_thirty += line;
  }
  EXPECT_EQ(passed_on(report).culprit.stderr_tail, last_thirty);
}

TEST(FailureWire, SendsTheStateOfAProgressBarAndTheBeginningOfALongLine) {
  JobReport report = culprits_report();
  report.failures[1].stderr_tail =
      repeated("\r 50%", 9000) + "\r100%\n" + repeated("x", 9000) + "\n";
  const std::string sent = passed_on(report).culprit.stderr_tail;
  EXPECT_EQ(sent, "100%\n" + repeated("x", 360) + " ... (8640 more characters)\n");
  EXPECT_EQ(last_lines(sent, 30).back(), repeated("x", 360) + " ... (8640 more characters)");
}

TEST(FailureWire, DropsTheOldestLinesWhereAllAreLong) {
  JobReport report = culprits_report();
  report.failures[1].stderr_tail = repeated(repeated("\xF0\x9F\x94\xA5", 400) + "\n", 30);
  const std::string sent = passed_on(report).culprit.stderr_tail;
  EXPECT_EQ(sent, repeated(repeated("\xF0\x9F\x94\xA5", 400) + "\n", 10));
}

TEST(FailureWire, KeepsTheShapeOfALongErrorFile) {
  JobReport report = culprits_report();
  nlohmann::json json;
  json["message"]["message"] = "ValueError: boom";
  json["message"]["extraInfo"]["py_callstack"] = repeated("  File \"a.py\", line 1\n", 5000);
  json["message"]["extraInfo"]["timestamp"] = "1795215400";
  report.failures[1].error_file_content = json.dump();
  const std::string sent = *passed_on(report).culprit.error_file_content;
  EXPECT_LE(sent.size(), 16384u);
  const std::optional<WorkerError> error = parse_error_file(sent);
  ASSERT_TRUE(error);
  EXPECT_TRUE(error->well_formed);
  EXPECT_EQ(error->message, "ValueError: boom");
  EXPECT_EQ(error->unix_time_s, 1795215400);
  EXPECT_EQ(last_lines(error->callstack, 15),
            std::vector<std::string>(15, "  File \"a.py\", line 1"));
}

TEST(FailureWire, KeepsTheEndOfALongErrorFileWithoutShape) {
  JobReport report = culprits_report();
  report.failures[1].error_file_content = repeated("junk ", 20000) + "last";
  const std::string sent = *passed_on(report).culprit.error_file_content;
  EXPECT_EQ(sent.size(), 16384u);
  EXPECT_TRUE(sent.ends_with("junk last"));
}

TEST(FailureWire, CountsTheOthersThatDoNotFit) {
  JobReport report = culprits_report();
  for (int rank = 8; rank < 1008; ++rank)
    report.failures.push_back(sample_failure(rank, ExitStatus::exited(1)));
  const RemoteFailure remote = passed_on(report);
  EXPECT_GE(remote.others.size(), 50u);
  EXPECT_EQ(remote.others.size() + static_cast<size_t>(remote.others_untold), 1003u);
  JobReport elsewhere = report_of("node-a", 0);
  elsewhere.end = JobEnd::failed;
  apply_remote_failure(elsewhere, remote);
  EXPECT_NE(
      render_end(elsewhere, {})
          .find("\n" + std::to_string(remote.others_untold) + " more on node-b did not succeed\n"),
      std::string::npos);
}

TEST(FailureWire, FitsWhateverThereIsToTell) {
  JobReport report = culprits_report();
  WorkerFailure& culprit = report.failures[1];
  // A control character takes six bytes, a broken byte three.
  const std::string worst = repeated(std::string("\x01\xff"), 40000);
  for (std::string* text :
       {&culprit.host, &culprit.role, &culprit.device, &culprit.program, &culprit.binary,
        &culprit.declared, &culprit.stderr_tail, &culprit.stdout_log_path, &culprit.stderr_log_path,
        &culprit.error_file_path, &report.cause.sentence, &report.cause.exception,
        &report.cause.remedy}) {
    *text = worst;
  }
  culprit.error_file_content = worst;
  report.failures.insert(report.failures.end(), 200, WorkerFailure(culprit));
  const std::string detail = encode_failure_detail(report);
  EXPECT_LE(detail.size(), kFailureDetailBytesMax);
  EXPECT_EQ(decoded(detail).culprit.rank, 5);
}

TEST(FailureWire, SendsOddNumbersAsNone) {
  JobReport report = culprits_report();
  WorkerFailure& culprit = report.failures[1];
  culprit.cpu_s = std::numeric_limits<double>::quiet_NaN();
  culprit.max_rss_kib = -1;
  culprit.ran = Duration{-5};
  culprit.time = WallTime{Duration{-5}};
  const WorkerFailure sent = passed_on(report).culprit;
  EXPECT_EQ(sent.cpu_s, 0);
  EXPECT_EQ(sent.max_rss_kib, 0);
  EXPECT_EQ(sent.ran, Duration{0});
  EXPECT_EQ(sent.time, WallTime{});
}

// ---- what comes from the network

TEST(FailureWire, RefusesWhatIsNoDetail) {
  for (const std::string& detail :
       {std::string(), std::string("{"), std::string("[]"), std::string("null"), std::string("7"),
        std::string("{}"), std::string("\"text\""), std::string("\xff\xfe"), std::string(1, '\0'),
        repeated("[", 60000), repeated("{\"a\":", 13000), std::string(65537, ' ')}) {
    EXPECT_FALSE(decode_failure_detail(detail)) << detail.substr(0, 40);
  }
}

TEST(FailureWire, RefusesEveryCutOfADetail) {
  const std::string detail = encode_failure_detail(culprits_report());
  for (size_t size = 0; size < detail.size(); ++size)
    EXPECT_FALSE(decode_failure_detail(detail.substr(0, size))) << size;
}

TEST(FailureWire, SaysWhichFieldIsWrong) {
  const Result<RemoteFailure> remote = decode_failure_detail(detail_with("/culprit/rank", "five"));
  ASSERT_FALSE(remote);
  EXPECT_EQ(remote.error().code, ExitCode::rendezvous);
  EXPECT_EQ(remote.error().message,
            "cannot read what another node told of its failure: field \"rank\" is missing or "
            "wrong; is the same version of muster installed on all nodes?");
}

TEST(FailureWire, RefusesValuesOutOfRange) {
  const std::vector<std::pair<const char*, nlohmann::json>> lies = {
      {"/version", 2},
      {"/node_rank", -1},
      {"/nodes", 0},
      {"/world_size", 0},
      {"/restarts_used", int64_t{1} << 40},
      {"/max_restarts", 1.5},
      {"/host", nullptr},
      {"/culprit", nlohmann::json::array()},
      {"/culprit/rank", -1},
      {"/culprit/pid", std::numeric_limits<uint64_t>::max()},
      {"/culprit/code", 256},
      {"/culprit/code", -65},
      {"/culprit/core", 1},
      {"/culprit/time_ns", std::numeric_limits<int64_t>::max()},
      {"/culprit/time_ns", -1},
      {"/culprit/ran_ns", std::numeric_limits<int64_t>::max()},
      {"/culprit/cpu_us", -1},
      {"/culprit/stderr", nullptr},
      {"/culprit/error_file_content", 7},
      {"/cause", "user"},
      {"/cause/kind", "unheard-of"},
      {"/others", nlohmann::json::object()},
      {"/others", 3},
      {"/others/0", nlohmann::json()},
      {"/others/2/rank", "x"},
      {"/others_untold", -1},
      {"/error", {{"code", 0}, {"message", "m"}}},
      {"/error", {{"code", 256}, {"message", "m"}}},
      {"/error", {{"code", 1}, {"message", 2}}},
      {"/error", "text"},
  };
  for (const auto& [pointer, value] : lies) {
    EXPECT_FALSE(decode_failure_detail(detail_with(pointer, value))) << pointer << " " << value;
  }
}

TEST(FailureWire, MissesNoField) {
  const auto json = nlohmann::json::parse(encode_failure_detail(culprits_report()));
  size_t fields = 0;
  for (const std::string object : {"", "culprit", "cause"}) {
    for (const auto& [key, value] : (object.empty() ? json : json.at(object)).items()) {
      EXPECT_FALSE(decode_failure_detail(detail_without(object, key))) << object << "." << key;
      ++fields;
    }
  }
  EXPECT_EQ(fields, 36u);
}

TEST(FailureWire, IgnoresFieldsOfLaterVersions) {
  EXPECT_TRUE(decode_failure_detail(detail_with("/later", 7)));
  EXPECT_TRUE(decode_failure_detail(detail_with("/culprit/later", {{"a", 1}})));
}

TEST(FailureWire, LetsNoNodeTouchTheTerminalOfAnother) {
  auto json = nlohmann::json::parse(encode_failure_detail(culprits_report()));
  const std::string evil = "\x1b[2J\x1b]0;owned\x07\n\xC2\x9B\xE2\x80\xAE";
  json["host"] = evil;
  for (auto* object : {&json["culprit"], &json["cause"]}) {
    for (auto& [key, value] : object->items()) {
      if (value.is_string() && key != "kind") value = evil + "x";
    }
  }
  JobReport report = report_of("node-a", 0);
  report.end = JobEnd::failed;
  apply_remote_failure(report, decoded(json.dump()));
  const std::string text = render_end(report, {});
  EXPECT_EQ(text.find_first_of("\x1b\a\r"), std::string::npos) << text;
  EXPECT_EQ(text.find("\xE2\x80\xAE"), std::string::npos) << text;
  EXPECT_NE(text.find("x FAILED: rank 5 of 12 x\n"), std::string::npos) << text;
}

// ---- one verdict

TEST(ApplyEnd, GivesEveryNodeTheSameScreenAndCode) {
  const JobReport own = culprits_report();
  const membership::End end = end_with(own);
  const std::string screen = render_end(own, {});
  EXPECT_NE(screen.find("on node-b (node rank 1), pid 1005, GPU 1"), std::string::npos) << screen;
  JobReport at_a = report_of("node-a", 0);
  at_a.program = "/elsewhere/train.py";
  JobReport spare = report_of("node-d", -1);
  spare.nnodes = 1;
  spare.world_size = 1;
  spare.max_restarts = 0;
  for (const JobReport& before : {own, at_a, report_of("node-c", 2), spare}) {
    const JobReport report = ended(before, end);
    EXPECT_EQ(render_end(report, {}), screen) << before.host;
    EXPECT_EQ(exit_code_of(report, ExitCodePolicy::culprit), 42) << before.host;
    EXPECT_EQ(exit_code_of(report, ExitCodePolicy::torchrun), 1) << before.host;
    EXPECT_EQ(report.host, before.host);
    EXPECT_EQ(report.restarts_used, 3);
    EXPECT_EQ(report.membership_changes, 2);
  }
}

TEST(ApplyEnd, ForgetsWhatThisNodeTookForTheReason) {
  JobReport before = report_of("node-a", 0);
  before.failures = {sample_failure(0, ExitStatus::signaled(SIGABRT))};
  before.culprit = 0;
  before.cause = classify(before.failures[0], {});
  before.error = {ExitCode::rendezvous, "the job has ended"};
  before.attempts = {{0, sample_time(-9), std::chrono::seconds{1}, "rank 0 exited with 3"},
                     {1, sample_time(-8), std::chrono::seconds{5}, "round_failed"}};
  const JobReport report = ended(before, end_with(culprits_report()));
  EXPECT_EQ(report.end, JobEnd::failed);
  EXPECT_EQ(report.failures.size(), 4u);
  EXPECT_EQ(report.failures[*report.culprit].rank, 5);
  EXPECT_EQ(report.error, Error());
  EXPECT_EQ(report.attempts[0].why_ended, "rank 0 exited with 3");
  EXPECT_EQ(report.attempts[1].why_ended, "rank 5 on node-b exited with 42: ValueError: boom");
}

TEST(ApplyEnd, WithoutADetailStillNamesNodeRankAndReason) {
  membership::End end = end_with(culprits_report());
  end.exit_code = 139;
  end.failure->exit_code = 139;
  end.failure->sentence = "killed by SIGSEGV";
  for (const std::string& detail : {std::string(), std::string("{\"version\":1}")}) {
    end.failure->detail = detail;
    const JobReport report = ended(report_of("node-a", 0), end);
    EXPECT_EQ(exit_code_of(report, ExitCodePolicy::culprit), 139);
    const std::string rule = std::string(80, '=') + "\n";
    EXPECT_EQ(render_end(report, {}), rule + R"(train.py FAILED: rank 5 of 12 killed by SIGSEGV
on node-b (node rank 1), which could not tell more
Root Cause (first observed failure):
  time      : unknown
  host      : node-b
  rank      : 5 (local_rank: 1)
  exitcode  : -11 (pid: unknown)  (SIGSEGV)
  traceback : killed by SIGSEGV
  failed (exitcode: -11) local_rank: 1 (pid: unknown) of binary: train.py
)" + rule);
    const auto culprit =
        nlohmann::json::parse(result_json(report, ExitCodePolicy::culprit)).at("culprit");
    EXPECT_EQ(culprit.at("node_rank"), 1);
    EXPECT_TRUE(culprit.at("pid").is_null());
    EXPECT_TRUE(culprit.at("time").is_null());
  }
}

TEST(ApplyEnd, InShortKeepsAnOrdinaryExitCode) {
  membership::End end = end_with(culprits_report());
  end.failure->detail.clear();
  end.failure->sentence.clear();
  const JobReport report = ended(report_of("node-a", 0), end);
  EXPECT_EQ(report.failures[0].status, ExitStatus::exited(42));
  EXPECT_EQ(report.cause.sentence, "exited with 42");
  end.failure->exit_code = 0;
  EXPECT_EQ(exit_code_of(ended(report_of("node-a", 0), end), ExitCodePolicy::culprit), 1);
}

TEST(ApplyEnd, OfAProgramThatCannotBeExecutedNamesTheNode) {
  JobReport own = report_of("node-b", 1);
  own.end = JobEnd::spawn_failed;
  own.error = {ExitCode::not_found, "cannot start \"x\": no such file; check the path"};
  membership::End end = end_with(own);
  end.failure->final = true;
  for (const JobReport& before : {own, report_of("node-a", 0)}) {
    const JobReport report = ended(before, end);
    EXPECT_EQ(report.end, JobEnd::spawn_failed);
    EXPECT_EQ(render_end(report, {}),
              "muster: node-b (node rank 1): cannot start \"x\": no such file; check the path\n");
    EXPECT_EQ(exit_code_of(report, ExitCodePolicy::culprit), 127);
  }
}

TEST(ApplyEnd, OfAStopNamesTheNodeThatGotTheSignal) {
  membership::End end;
  end.why = membership::EndWhy::stopped;
  end.exit_code = 143;
  end.signal = SIGTERM;
  end.node_rank = 1;
  end.host_name = "node-b";
  JobReport before = report_of("node-a", 0);
  before.attempts.push_back({});
  before.stop_took = std::chrono::milliseconds{2100};
  const JobReport elsewhere = ended(before, end);
  EXPECT_EQ(render_end(elsewhere, {}),
            "muster: stopped by SIGTERM on node-b (node rank 1) after 2.1 s; all workers of this "
            "node ended within the grace\n");
  EXPECT_EQ(exit_code_of(elsewhere, ExitCodePolicy::culprit), 143);
  const JobReport there = ended(report_of("node-b", 1), end);
  EXPECT_EQ(there.stopped_by, "");
  EXPECT_EQ(exit_code_of(there, ExitCodePolicy::culprit), 143);
}

TEST(ApplyEnd, OfALossOrATimeoutIsAnErrorWithItsText) {
  for (const membership::EndWhy why : {membership::EndWhy::lost, membership::EndWhy::timeout}) {
    membership::End end;
    end.why = why;
    end.exit_code = 122;
    end.text = "node-b (node rank 1) was lost: no sign of life for 3 s; 1 node left, 2 needed";
    JobReport before = report_of("node-a", 0);
    before.attempts = {{0, sample_time(-9), std::chrono::seconds{1}, "round_failed"}};
    const JobReport report = ended(before, end);
    EXPECT_EQ(report.end, JobEnd::round_failed);
    EXPECT_EQ(report.error, (Error{ExitCode::rendezvous, end.text}));
    EXPECT_EQ(report.attempts[0].why_ended, end.text);
    EXPECT_EQ(render_end(report, {}), "muster: " + end.text + "\n");
  }
}

TEST(ApplyEnd, OfALossKeepsWhatFailedHereBefore) {
  JobReport before = culprits_report();
  membership::End end;
  end.why = membership::EndWhy::lost;
  end.exit_code = 122;
  end.text = "node-c (node rank 2) was lost";
  EXPECT_EQ(render_end(ended(before, end), {}),
            "muster: node-c (node rank 2) was lost\n"
            "muster: before that, rank 5 on node-b (pid 1005) exited with 42: ValueError: boom; "
            "failed (exitcode: 42) local_rank: 1 (pid: 1005) of binary: /usr/bin/python3\n");
}

TEST(ApplyEnd, OfAFailureWithoutAWorkerIsItsText) {
  membership::End end;
  end.why = membership::EndWhy::failed;
  end.text = "the job failed";
  const JobReport report = ended(report_of("node-a", 0), end);
  EXPECT_EQ(report.end, JobEnd::round_failed);
  EXPECT_EQ(exit_code_of(report, ExitCodePolicy::culprit), 1);
}

TEST(ApplyEnd, OfSuccessIsSuccessEverywhere) {
  membership::End end;
  end.restarts = 1;
  end.changes = 4;
  const JobReport report = ended(report_of("node-d", -1), end);
  EXPECT_EQ(report.end, JobEnd::success);
  EXPECT_EQ(exit_code_of(report, ExitCodePolicy::culprit), 0);
  EXPECT_EQ(report.restarts_used, 1);
  EXPECT_EQ(report.membership_changes, 4);
}

TEST(ApplyEnd, DoesNotHideProcessesThatOutlivedSigkill) {
  JobReport before = report_of("node-a", 0);
  before.end = JobEnd::unkillable;
  before.stuck = {{77, 3, "python3", 'D', ""}};
  const JobReport report = ended(before, end_with(culprits_report()));
  EXPECT_EQ(report.end, JobEnd::unkillable);
  EXPECT_EQ(exit_code_of(report, ExitCodePolicy::culprit), 123);
  EXPECT_NE(render_end(report, {}).find("before that, rank 5 on node-b (pid 1005) exited with 42"),
            std::string::npos);
}

TEST(ApplyEnd, OnTheOnlyNodeSaysNothingOfNodes) {
  JobReport own = culprits_report();
  own.nnodes = 1;
  own.node_rank = 0;
  const std::string screen = render_end(own, {});
  EXPECT_EQ(screen.find("node rank"), std::string::npos) << screen;
  membership::End end = end_with(own);
  EXPECT_EQ(render_end(ended(own, end), {}), screen);
}

}  // namespace
}  // namespace muster
