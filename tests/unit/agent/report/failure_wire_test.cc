#include "agent/report/failure_wire.h"

#include <algorithm>
#include <csignal>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "agent/report/cause.h"
#include "agent/report/result_json.h"
#include "agent/report/text.h"
#include "agent/report/verdict.h"
#include "tests/unit/agent/report/report_samples.h"

namespace muster {
namespace {

// Rank 5 failed, on node rank 1 of three with four workers each.
JudgedAttempt culprits_verdict() {
  WorkerFailure culprit = sample_failure(5, ExitStatus::exited(42));
  culprit.local_rank = 1;
  culprit.device = "GPU 1 (0000:3b:00.0)";
  culprit.max_rss_kib = 4096;
  culprit.cpu_s = 2.5;
  culprit.stderr_tail = "epoch 1\nValueError: boom\n";
  culprit.stdout_log_path = "/logs/5/stdout.log";
  culprit.stderr_log_path = "/logs/5/stderr.log";
  culprit.error_file_path = "/logs/5/error.json";
  culprit.error_file_content = recorded_error("ValueError: boom", "tb", "1795215400");
  culprit.part = Part::culprit;
  JudgedAttempt judged;
  judged.attempt = 3;
  judged.failures = {sample_failure(4, ExitStatus::signaled(SIGABRT, true)), culprit,
                     sample_stopped(6), sample_stopped(7)};
  for (WorkerFailure& failure : judged.failures) {
    failure.host = "node-b";
    failure.node_rank = 1;
    failure.attempt = 3;
  }
  for (const size_t other : {0U, 2U, 3U})  // Sent only for failures that the verdict quotes.
    judged.failures[other].program = judged.failures[other].binary = "";
  judged.culprit = 1;
  judged.reason = Reason::raised_first;
  judged.cause = cause_of(culprit);
  judged.cause.remedy = "do not go boom";
  judged.stopped_elsewhere = {0, 1, 2, 3, 8, 9, 10, 11};
  return judged;
}

WorkerFailure& culprit_of(JudgedAttempt& judged) {
  return judged.failures[*judged.culprit];
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

// The report of the culprit's own node.
JobReport culprits_report() {
  JobReport report = report_of("node-b", 1);
  report.end = JobEnd::failed;
  report.restarts_used = 3;
  apply_judged(report, culprits_verdict());
  return report;
}

JudgedAttempt passed_on(const JudgedAttempt& judged) {
  return decoded_verdict(encode_verdict(judged));
}

membership::End end_with(const JudgedAttempt& judged) {
  membership::End end;
  end.why = membership::EndWhy::failed;
  end.exit_code = 42;
  end.node_rank = 1;
  end.host_name = "node-b";
  end.text = "rank 5 on node-b failed";
  end.restarts = 3;
  end.changes = 2;
  end.verdict = membership::Verdict{
      5, 1, 1, "node-b", 42, 0, verdict_sentence(judged), encode_verdict(judged)};
  return end;
}

JobReport ended_report(JobReport report, const membership::End& end) {
  apply_end(report, end);
  return report;
}

// The detail with one value replaced, as a faulty peer or another version might send it.
std::string detail_with(const char* pointer, const nlohmann::json& value) {
  auto json = nlohmann::json::parse(encode_verdict(culprits_verdict()));
  json[nlohmann::json::json_pointer(pointer)] = value;
  return json.dump();
}

std::string detail_without(const std::string& object, const std::string& key) {
  auto json = nlohmann::json::parse(encode_verdict(culprits_verdict()));
  auto& at = json.at(nlohmann::json::json_pointer(object));
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
  EXPECT_EQ(passed_on(culprits_verdict()), culprits_verdict());
}

TEST(FailureWire, CarriesTheOutputOfTheFailuresThatAVerdictQuotes) {
  JudgedAttempt judged = culprits_verdict();
  for (WorkerFailure& failure : judged.failures)
    failure.stderr_tail = "said\n";
  judged.failures[0].part = Part::simultaneous;
  judged.witness = 2;
  const JudgedAttempt sent = passed_on(judged);
  EXPECT_EQ(sent.failures[0].stderr_tail, "said\n");
  EXPECT_EQ(sent.failures[1].stderr_tail, "said\n");
  EXPECT_EQ(sent.failures[2].stderr_tail, "said\n");
  EXPECT_EQ(sent.failures[3].stderr_tail, "");
  EXPECT_EQ(sent.witness, 2u);
}

TEST(FailureWire, CarriesAnErrorOfTheNodeItself) {
  JudgedAttempt judged;
  judged.error = {ExitCode::not_found, "cannot start \"x\": no such file"};
  judged.error_host = "node-b";
  judged.error_node_rank = 1;
  EXPECT_EQ(passed_on(judged), judged);
  EXPECT_EQ(verdict_sentence(judged), "cannot start \"x\": no such file");
}

TEST(FailureWire, NamesTheFailureInOneCleanLine) {
  JudgedAttempt judged = culprits_verdict();
  EXPECT_EQ(verdict_sentence(judged), "exited with 42: ValueError: boom");
  judged.cause.sentence = "exited with 1: \x1b[2Jboom\nmore";
  EXPECT_EQ(verdict_sentence(judged), "exited with 1: boommore");
  EXPECT_EQ(verdict_sentence({}), "no worker's exit was observed");
}

TEST(FailureWire, KeepsEveryClassReasonAndPart) {
  for (int i = 0; i <= static_cast<int>(FailureClass::limit); ++i) {
    JudgedAttempt judged = culprits_verdict();
    judged.cause.kind = static_cast<FailureClass>(i);
    EXPECT_EQ(passed_on(judged).cause, judged.cause);
  }
  for (int i = 0; i <= static_cast<int>(Reason::hang); ++i) {
    JudgedAttempt judged = culprits_verdict();
    judged.reason = static_cast<Reason>(i);
    EXPECT_EQ(passed_on(judged).reason, judged.reason);
  }
  for (int i = 0; i <= static_cast<int>(Part::crashed); ++i) {
    JudgedAttempt judged = culprits_verdict();
    judged.failures[3].part = static_cast<Part>(i);
    EXPECT_EQ(passed_on(judged).failures[3].part, judged.failures[3].part);
  }
}

TEST(FailureWire, CarriesARestartLineInItsShortForm) {
  JudgedAttempt judged = culprits_verdict();
  culprit_of(judged).stderr_tail = repeated("word ", 4000);
  const std::string detail = encode_verdict(judged, VerdictLength::line);
  EXPECT_LE(detail.size(), 2048u);
  JudgedAttempt line = decoded_verdict(detail);
  EXPECT_EQ(render_restart(culprit_of(line), line.cause, 2, 3),
            render_restart(culprit_of(judged), judged.cause, 2, 3));
}

// ---- cuts of long texts

TEST(FailureWire, SendsTheStateOfAProgressBarAndTheBeginningOfALongLine) {
  JudgedAttempt judged = culprits_verdict();
  culprit_of(judged).stderr_tail =
      repeated("\r 50%", 9000) + "\r100%\n" + repeated("x", 9000) + "\n";
  JudgedAttempt received = passed_on(judged);
  const std::string sent = culprit_of(received).stderr_tail;
  EXPECT_EQ(sent, "100%\n" + repeated("x", 360) + " ... (8640 more characters)\n");
  EXPECT_EQ(last_lines(sent, 30).back(), repeated("x", 360) + " ... (8640 more characters)");
}

TEST(FailureWire, DropsTheOldestLinesIfAllAreLong) {
  JudgedAttempt judged = culprits_verdict();
  culprit_of(judged).stderr_tail = repeated(repeated("\xF0\x9F\x94\xA5", 400) + "\n", 30);
  JudgedAttempt received = passed_on(judged);
  const std::string sent = culprit_of(received).stderr_tail;
  EXPECT_EQ(sent, repeated(repeated("\xF0\x9F\x94\xA5", 400) + "\n", 10));
}

TEST(FailureWire, SendsSixteenKibOfALongErrorFile) {
  JudgedAttempt judged = culprits_verdict();
  culprit_of(judged).error_file_content = repeated("junk ", 20000) + "last";
  JudgedAttempt received = passed_on(judged);
  const std::string sent = *culprit_of(received).error_file_content;
  EXPECT_EQ(sent.size(), 16384u);
  EXPECT_TRUE(sent.ends_with("junk last"));
}

TEST(FailureWire, CountsTheOthersThatDoNotFit) {
  JudgedAttempt judged = culprits_verdict();
  for (int rank = 12; rank < 1012; ++rank)
    judged.failures.push_back(sample_failure(rank, ExitStatus::exited(1)));
  std::ranges::rotate(judged.failures,
                      judged.failures.begin() + 2);  // Puts the culprit last.
  judged.culprit = judged.failures.size() - 1;
  JudgedAttempt sent = passed_on(judged);
  EXPECT_GE(sent.failures.size(), 30u);
  EXPECT_EQ(sent.failures.size() + static_cast<size_t>(sent.others_untold), 1004u);
  EXPECT_EQ(culprit_of(sent).rank, 5);
  JobReport elsewhere = report_of("node-a", 0);
  elsewhere.end = JobEnd::failed;
  apply_judged(elsewhere, sent);
  const std::string untold = std::to_string(sent.others_untold);
  EXPECT_NE(render_end(elsewhere, {}).find("\n" + untold + " more did not succeed\n"),
            std::string::npos);
}

TEST(FailureWire, FitsTheLimitWhateverItCarries) {
  JudgedAttempt judged = culprits_verdict();
  WorkerFailure& culprit = culprit_of(judged);
  // A control character takes six bytes, a broken byte three.
  const std::string worst = repeated(std::string("\x01\xff"), 40000);
  for (std::string* text :
       {&culprit.host, &culprit.role, &culprit.device, &culprit.program, &culprit.binary,
        &culprit.declared, &culprit.stderr_tail, &culprit.stdout_log_path, &culprit.stderr_log_path,
        &culprit.error_file_path, &culprit.sentence, &judged.cause.sentence,
        &judged.cause.exception, &judged.cause.remedy}) {
    *text = worst;
  }
  culprit.error_file_content = worst;
  WorkerFailure simultaneous = culprit;
  simultaneous.part = Part::simultaneous;
  judged.failures.insert(judged.failures.end(), 200, simultaneous);
  const std::string detail = encode_verdict(judged);
  EXPECT_LE(detail.size(), kVerdictBytesMax);
  JudgedAttempt sent = decoded_verdict(detail);
  EXPECT_EQ(culprit_of(sent).rank, 5);
}

// ---- hostile input

TEST(FailureWire, RefusesBytesThatAreNoDetail) {
  for (const std::string& detail :
       {std::string(), std::string("{"), std::string("[]"), std::string("null"), std::string("7"),
        std::string("{}"), std::string("\"text\""), std::string("\xff\xfe"), std::string(1, '\0'),
        repeated("[", 60000), repeated("{\"a\":", 13000), std::string(65537, ' ')}) {
    EXPECT_FALSE(decode_verdict(detail)) << detail.substr(0, 40);
  }
}

TEST(FailureWire, SaysWhichFieldIsWrong) {
  const Result<JudgedAttempt> judged = decode_verdict(detail_with("/failures/1/rank", "five"));
  ASSERT_FALSE(judged);
  EXPECT_EQ(judged.error().code, ExitCode::rendezvous);
  EXPECT_EQ(judged.error().message,
            "cannot decode the failure report from the job's host: rank is not a whole number in "
            "range; is the same version of muster installed on all nodes?");
}

TEST(FailureWire, RefusesValuesOutOfRange) {
  const std::vector<std::pair<const char*, nlohmann::json>> lies = {
      {"/version", 1},
      {"/attempt", -1},
      {"/reason", 10},
      {"/reason", "named"},
      {"/lost_node", -1},
      {"/culprit", 4},
      {"/culprit", -1},
      {"/witness", 4},
      {"/failures", nlohmann::json::object()},
      {"/failures", 3},
      {"/failures/0", nlohmann::json()},
      {"/failures/2/rank", "x"},
      {"/failures/1/pid", std::numeric_limits<uint64_t>::max()},
      {"/failures/1/host", nullptr},
      {"/failures/1/words", 3},
      {"/failures/1/words/stderr", nullptr},
      {"/failures/1/words/error_file_content", 7},
      {"/cause", "user"},
      {"/cause/kind", 10},
      {"/others_untold", -1},
      {"/stopped_elsewhere/ranges", {3, 2}},
      {"/stopped_elsewhere/ranges", {0, 5, 4, 6}},
      {"/stopped_elsewhere/ranges", {0, int64_t{1} << 29}},
      {"/stopped_elsewhere/ranges", {"a"}},
      {"/error", {{"code", 0}, {"message", "m"}, {"host", "h"}, {"node_rank", 0}}},
      {"/error", {{"code", 256}, {"message", "m"}, {"host", "h"}, {"node_rank", 0}}},
      {"/error", {{"code", 1}, {"message", 2}, {"host", "h"}, {"node_rank", 0}}},
      {"/error", "text"},
  };
  for (const auto& [pointer, value] : lies) {
    EXPECT_FALSE(decode_verdict(detail_with(pointer, value))) << pointer << " " << value;
  }
}

TEST(FailureWire, NoticesEveryMissingField) {
  const auto json = nlohmann::json::parse(encode_verdict(culprits_verdict()));
  size_t fields = 0;
  for (const std::string object : {"", "/failures/1", "/failures/1/status", "/failures/1/words",
                                   "/cause", "/stopped_elsewhere"}) {
    for (const auto& [key, value] : json.at(nlohmann::json::json_pointer(object)).items()) {
      if (key == "words") continue;  // Optional: only quoted failures have it.
      EXPECT_FALSE(decode_verdict(detail_without(object, key))) << object << "." << key;
      ++fields;
    }
  }
  EXPECT_EQ(fields, 43u);
}

TEST(FailureWire, IgnoresFieldsOfLaterVersions) {
  EXPECT_TRUE(decode_verdict(detail_with("/later", 7)));
  EXPECT_TRUE(decode_verdict(detail_with("/failures/1/later", {{"a", 1}})));
}

TEST(FailureWire, LetsNoNodeTouchTheTerminalOfAnother) {
  auto json = nlohmann::json::parse(encode_verdict(culprits_verdict()));
  const std::string evil = "\x1b[2J\x1b]0;owned\x07\n\xC2\x9B\xE2\x80\xAE";
  for (auto* object : {&json["failures"][1], &json["failures"][1]["words"], &json["cause"]}) {
    for (auto& [key, value] : object->items()) {
      if (value.is_string()) value = evil + "x";
    }
  }
  JobReport report = report_of("node-a", 0);
  report.end = JobEnd::failed;
  apply_judged(report, decoded_verdict(json.dump()));
  const std::string text = render_end(report, {});
  EXPECT_EQ(text.find_first_of("\x1b\a\r"), std::string::npos) << text;
  EXPECT_EQ(text.find("\xE2\x80\xAE"), std::string::npos) << text;
  EXPECT_NE(text.find("x FAILED: rank 5 of 12 x\n"), std::string::npos) << text;
}

// ---- one verdict

TEST(ApplyEnd, GivesEveryNodeTheSameScreenAndExitCode) {
  const JobReport own = culprits_report();
  const membership::End end = end_with(culprits_verdict());
  const std::string screen = render_end(own, {});
  EXPECT_NE(screen.find("on node-b (node rank 1), pid 1005, GPU 1"), std::string::npos) << screen;
  JobReport at_a = report_of("node-a", 0);
  at_a.program = "/elsewhere/train.py";
  JobReport spare = report_of("node-d", -1);
  for (const JobReport& before : {own, at_a, report_of("node-c", 2), spare}) {
    const JobReport report = ended_report(before, end);
    EXPECT_EQ(render_end(report, {}), screen) << before.host;
    EXPECT_EQ(exit_code_of(report, ExitCodePolicy::culprit), 42) << before.host;
    EXPECT_EQ(exit_code_of(report, ExitCodePolicy::torchrun), 1) << before.host;
    EXPECT_EQ(report.host, before.host);
    EXPECT_EQ(report.restarts_used, 3);
    EXPECT_EQ(report.membership_changes, 2);
  }
}

TEST(ApplyEnd, ReplacesTheReasonThatThisNodeAssumed) {
  JobReport before = report_of("node-a", 0);
  before.failures = {sample_failure(0, ExitStatus::signaled(SIGABRT))};
  before.culprit = 0;
  before.cause = cause_of(before.failures[0]);
  before.error = {ExitCode::rendezvous, "the job has ended"};
  before.attempts = {{0, sample_time(-9), std::chrono::seconds{1}, "rank 0 exited with 3"},
                     {1, sample_time(-8), std::chrono::seconds{5}, "round_failed", true}};
  const JobReport report = ended_report(before, end_with(culprits_verdict()));
  EXPECT_EQ(report.end, JobEnd::failed);
  EXPECT_EQ(report.failures.size(), 4u);
  EXPECT_EQ(report.failures[*report.culprit].rank, 5);
  EXPECT_EQ(report.error, Error());
  EXPECT_EQ(report.attempts[0].why_ended, "rank 0 exited with 3");
  EXPECT_EQ(report.attempts[1].why_ended, "rank 5 on node-b exited with 42: ValueError: boom");
}

TEST(ApplyEnd, NamesNodeRankAndReasonWithoutADetail) {
  membership::End end = end_with(culprits_verdict());
  end.exit_code = 139;
  end.verdict->exit_code = 139;
  end.verdict->signal = SIGSEGV;
  end.verdict->sentence = "killed by SIGSEGV";
  for (const std::string& detail : {std::string(), std::string("{\"version\":1}")}) {
    end.verdict->detail = detail;
    const JobReport report = ended_report(report_of("node-a", 0), end);
    EXPECT_EQ(exit_code_of(report, ExitCodePolicy::culprit), 139);
    const std::string rule = std::string(80, '=') + "\n";
    EXPECT_EQ(render_end(report, {}), rule + R"(train.py FAILED: rank 5 of 12 killed by SIGSEGV
on node-b (node rank 1), which could not report more
Root Cause (first observed failure): failed (exitcode: -11) local_rank: 1 (pid: unknown) of binary: train.py
  rank      : 5 (local_rank: 1), exitcode  : -11 (pid: unknown)  (SIGSEGV), time: unknown
)" + rule);
    const auto culprit =
        nlohmann::json::parse(result_json(report, ExitCodePolicy::culprit)).at("culprit");
    EXPECT_EQ(culprit.at("node_rank"), 1);
    EXPECT_TRUE(culprit.at("pid").is_null());
    EXPECT_TRUE(culprit.at("time").is_null());
  }
}

TEST(ApplyEnd, KeepsAnOrdinaryExitCodeWithoutADetail) {
  membership::End end = end_with(culprits_verdict());
  end.verdict->detail.clear();
  end.verdict->sentence.clear();
  const JobReport report = ended_report(report_of("node-a", 0), end);
  EXPECT_EQ(report.failures[0].status, ExitStatus::exited(42));
  EXPECT_EQ(report.cause.sentence, "exited with 42");
  end.verdict->exit_code = 0;
  EXPECT_EQ(exit_code_of(ended_report(report_of("node-a", 0), end), ExitCodePolicy::culprit), 1);
}

TEST(ApplyEnd, NamesTheNodeThatCannotExecuteTheProgram) {
  JudgedAttempt judged;
  judged.error = {ExitCode::not_found, "cannot start \"x\": no such file; check the path"};
  judged.error_host = "node-b";
  judged.error_node_rank = 1;
  for (const JobReport& before : {report_of("node-b", 1), report_of("node-a", 0)}) {
    const JobReport report = ended_report(before, end_with(judged));
    EXPECT_EQ(report.end, JobEnd::spawn_failed);
    EXPECT_EQ(render_end(report, {}),
              "muster: node-b (node rank 1): cannot start \"x\": no such file; check the path\n");
    EXPECT_EQ(exit_code_of(report, ExitCodePolicy::culprit), 127);
  }
}

TEST(ApplyEnd, NamesTheNodeThatGotTheStopSignal) {
  membership::End end;
  end.why = membership::EndWhy::stopped;
  end.exit_code = 143;
  end.signal = SIGTERM;
  end.node_rank = 1;
  end.host_name = "node-b";
  JobReport before = report_of("node-a", 0);
  before.attempts.push_back({});
  before.stop_took = std::chrono::milliseconds{2100};
  const JobReport elsewhere = ended_report(before, end);
  EXPECT_EQ(render_end(elsewhere, {}),
            "muster: stopped by SIGTERM on node-b (node rank 1) after 2.1 s; all workers of this "
            "node ended within the grace period\n");
  EXPECT_EQ(exit_code_of(elsewhere, ExitCodePolicy::culprit), 143);
  for (const char* name : {"node-b", "node-b (10.0.0.2)"}) {
    end.host_name = name;
    const JobReport there = ended_report(report_of("node-b", 1), end);
    EXPECT_EQ(there.stopped_by, "") << "the host may add the address to tell it from a namesake";
    EXPECT_EQ(exit_code_of(there, ExitCodePolicy::culprit), 143);
  }
}

TEST(ApplyEnd, GivesEveryNodeTheSameFailureBeforeAStop) {
  membership::End end = end_with(culprits_verdict());
  end.why = membership::EndWhy::stopped;
  end.exit_code = 143;
  end.signal = SIGTERM;
  JobReport victim = report_of("node-a", 0);
  victim.failures = {sample_failure(0, ExitStatus::signaled(SIGABRT))};
  victim.culprit = 0;
  for (const JobReport& before : {victim, report_of("node-c", 2)}) {
    const JobReport report = ended_report(before, end);
    EXPECT_EQ(exit_code_of(report, ExitCodePolicy::culprit), 143);
    EXPECT_EQ(report.failures, culprits_verdict().failures);
    EXPECT_EQ(report.culprit, culprits_verdict().culprit);
  }
  end.verdict->detail = "";  // The host may send no more than a line.
  EXPECT_EQ(ended_report(victim, end).failures, victim.failures);
}

TEST(ApplyEnd, ReportsALossOrATimeoutAsAnError) {
  for (const membership::EndWhy why : {membership::EndWhy::lost, membership::EndWhy::timeout}) {
    membership::End end;
    end.why = why;
    end.exit_code = 122;
    end.text = "node-b (node rank 1) was lost: no sign of life for 3 s; 1 node left, 2 needed";
    JobReport before = report_of("node-a", 0);
    before.attempts = {{0, sample_time(-9), std::chrono::seconds{1}, "round_failed", true}};
    const JobReport report = ended_report(before, end);
    EXPECT_EQ(report.end, JobEnd::round_failed);
    EXPECT_EQ(report.error, (Error{ExitCode::rendezvous, end.text}));
    EXPECT_EQ(report.attempts[0].why_ended, end.text);
    EXPECT_EQ(render_end(report, {}), "muster: " + end.text + "\n");
  }
}

TEST(ApplyEnd, KeepsALocalFailureBeforeALoss) {
  JobReport before = culprits_report();
  membership::End end;
  end.why = membership::EndWhy::lost;
  end.exit_code = 122;
  end.text = "node-c (node rank 2) was lost";
  EXPECT_EQ(render_end(ended_report(before, end), {}),
            "muster: node-c (node rank 2) was lost\n"
            "muster: before that, rank 5 on node-b (pid 1005) exited with 42: ValueError: boom; "
            "failed (exitcode: 42) local_rank: 1 (pid: 1005) of binary: /usr/bin/python3\n");
}

TEST(ApplyEnd, ReportsAFailureWithoutAWorkerAsAFailedRound) {
  membership::End end;
  end.why = membership::EndWhy::failed;
  end.text = "the job failed";
  const JobReport report = ended_report(report_of("node-a", 0), end);
  EXPECT_EQ(report.end, JobEnd::round_failed);
  EXPECT_EQ(report.error.message, end.text);
  EXPECT_EQ(exit_code_of(report, ExitCodePolicy::culprit), 1);
}

TEST(ApplyEnd, ReportsASuccessOnEveryNode) {
  membership::End end;
  end.restarts = 1;
  end.changes = 4;
  const JobReport report = ended_report(report_of("node-d", -1), end);
  EXPECT_EQ(report.end, JobEnd::success);
  EXPECT_EQ(exit_code_of(report, ExitCodePolicy::culprit), 0);
  EXPECT_EQ(report.restarts_used, 1);
  EXPECT_EQ(report.membership_changes, 4);
}

TEST(ApplyEnd, DoesNotHideProcessesThatOutlivedSigkill) {
  JobReport before = report_of("node-a", 0);
  before.end = JobEnd::unkillable;
  before.stuck = {{77, 3, "python3", 'D', ""}};
  const JobReport report = ended_report(before, end_with(culprits_verdict()));
  EXPECT_EQ(report.end, JobEnd::unkillable);
  EXPECT_EQ(exit_code_of(report, ExitCodePolicy::culprit), 123);
  EXPECT_NE(render_end(report, {}).find("before that, rank 5 on node-b (pid 1005) exited with 42"),
            std::string::npos);
}

}  // namespace
}  // namespace muster
