#include "agent/report/worker_json.h"

#include <cmath>
#include <csignal>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "agent/report/error_file.h"
#include "tests/unit/agent/report/report_generators.h"
#include "tests/unit/agent/report/report_samples.h"

namespace muster {
namespace {

using wire::Json;

// Sets every field to a distinct value.
WorkerFailure whole_failure() {
  WorkerFailure failure = sample_failure(5, ExitStatus::signaled(SIGSEGV, true));
  failure.local_rank = 1;
  failure.attempt = 3;
  failure.node_rank = 2;
  failure.role = "trainer";
  failure.device = "GPU 1 (0000:3b:00.0)";
  failure.call = "barrier #7 of group 'world' for 3.2 s";
  failure.declared = "stuck for 60 s";
  failure.stopped_by_muster = true;
  failure.part = Part::crashed;
  failure.sentence = "killed by SIGSEGV";
  failure.max_rss_kib = 4096;
  failure.cpu_s = 2.5;
  failure.stderr_tail = "epoch 1\nboom\n";
  failure.stdout_log_path = "/logs/5/stdout.log";
  failure.stderr_log_path = "/logs/5/stderr.log";
  failure.error_file_path = "/logs/5/error.json";
  failure.error_file_content = "{\"message\": \"boom\"}";
  failure.summary_only = true;
  return failure;
}

struct ReadFailure {
  WorkerFailure failure;
  std::string wrong;
};

ReadFailure read_back(const Json& fields, const Json& words) {
  ReadFailure read;
  read.failure = wire::read<WorkerFailure>(fields, read.wrong);
  wire::read_words(words, read.failure, read.wrong);
  read.wrong = field_of(read.wrong);
  return read;
}

ReadFailure sent_over(const WorkerFailure& failure, size_t long_max = wire::kLongTextBytes,
                      size_t text_max = 1000) {
  const auto over_wire = [](const Json& json) { return Json::parse(wire::dump(json)); };
  return read_back(over_wire(wire::json_of(failure, text_max)),
                   over_wire(wire::words_json(failure, long_max, text_max)));
}

TEST(WorkerJson, CarriesEveryFieldOfAFailure) {
  for (const WorkerFailure& failure : {whole_failure(), sample_failure(0, ExitStatus::exited(0))}) {
    const ReadFailure read = sent_over(failure);
    EXPECT_EQ(read.wrong, "");
    EXPECT_EQ(read.failure, failure);
  }
}

TEST(WorkerJson, CarriesStdoutUnlessStderrShowsAnError) {
  WorkerFailure failure = sample_failure(0, ExitStatus::exited(1));
  failure.stdout_tail = "last words\n";
  EXPECT_EQ(sent_over(failure).failure, failure);
  failure.stderr_tail = "Traceback (most recent call last):\n  File \"a\", line 1\nE: boom\n";
  EXPECT_EQ(sent_over(failure).failure.stdout_tail, "");
}

TEST(WorkerJson, LeavesTheWordsOutOfTheShortFields) {
  std::string wrong;
  WorkerFailure expected = whole_failure();
  expected.role = "default";
  expected.program = expected.binary = expected.stderr_tail = "";
  expected.stdout_log_path = expected.stderr_log_path = expected.error_file_path = "";
  expected.error_file_content.reset();
  EXPECT_EQ(wire::read<WorkerFailure>(wire::json_of(whole_failure(), 1000), wrong), expected);
  EXPECT_EQ(wrong, "");
}

TEST(WorkerJson, CarriesEveryExitStatus) {
  for (const ExitStatus status :
       {ExitStatus::exited(0), ExitStatus::exited(1), ExitStatus::exited(255),
        ExitStatus::signaled(1), ExitStatus::signaled(SIGKILL, true),
        ExitStatus::signaled(SIGRTMAX)}) {
    EXPECT_EQ(sent_over(sample_failure(0, status)).failure.status, status) << describe(status);
  }
}

TEST(WorkerJson, NamesAMissingField) {
  const Json fields = wire::json_of(whole_failure(), 1000);
  const Json words = wire::words_json(whole_failure(), 1000, 1000);
  for (const auto& [key, value] : fields.items()) {
    if (key == "call") continue;  // Optional: sent only if the worker was in a call.
    Json json = fields;
    json.erase(key);
    EXPECT_EQ(read_back(json, words).wrong, key);
  }
  for (const auto& [key, value] : words.items()) {
    Json json = words;
    json.erase(key);
    EXPECT_EQ(read_back(fields, json).wrong, key);
  }
}

TEST(WorkerJson, ReadsAFailureWithoutACall) {
  Json fields = wire::json_of(whole_failure(), 1000);
  ASSERT_EQ(fields.erase("call"), 1U);
  const ReadFailure read = read_back(fields, wire::words_json(whole_failure(), 1000, 1000));
  EXPECT_EQ(read.wrong, "");
  WorkerFailure expected = whole_failure();
  expected.call.clear();
  EXPECT_EQ(read.failure, expected);
  EXPECT_EQ(wire::json_of(expected, 1000), fields) << "an empty call is not sent";
}

struct RefusedField {
  const char* pointer;
  Json value;
  const char* wrong;
};

TEST(WorkerJson, RefusesImpossibleValues) {
  const std::vector<RefusedField> cases = {
      {"/rank", -1, "rank"},
      {"/rank", wire::kCountMax + 1, "rank"},
      {"/node_rank", -2, "node_rank"},
      {"/status", 1, "status"},
      {"/status/code", 256, "code"},
      {"/status/code", -SIGRTMAX - 1, "code"},
      {"/status/core", 1, "core"},
      {"/part", static_cast<int>(Part::crashed) + 1, "part"},
      {"/time_ns", -1, "time_ns"},
      {"/time_ns", wire::kTimeMax + 1, "time_ns"},
      {"/ran_ns", -1, "ran_ns"},
      {"/ran_ns", wire::kTimeMax + 1, "ran_ns"},
      {"/cpu_us", -1, "cpu_us"},
      {"/cpu_us", wire::kBigMax + 1, "cpu_us"},
      {"/max_rss_kib", -1, "max_rss_kib"},
      {"/stopped", 1, "stopped"},
      {"/call", 1, "call"},
  };
  for (const RefusedField& one : cases) {
    Json json = wire::json_of(whole_failure(), 1000);
    json[Json::json_pointer(one.pointer)] = one.value;
    std::string wrong;
    wire::read<WorkerFailure>(json, wrong);
    EXPECT_EQ(field_of(wrong), one.wrong) << one.pointer << " " << one.value;
  }
}

TEST(WorkerJson, SendsOnlyNumbersThatItCanRead) {
  WorkerFailure failure = whole_failure();
  failure.max_rss_kib = -1;
  EXPECT_EQ(sent_over(failure).failure.max_rss_kib, 0);
  for (const double cpu_s : {-1.0, 1e300, HUGE_VAL, std::nan("")}) {
    failure.cpu_s = cpu_s;
    failure.max_rss_kib = std::numeric_limits<long>::max();
    failure.ran = Duration{-1};
    failure.time = WallTime{Duration{-1}};
    failure.node_rank = -7;
    const ReadFailure read = sent_over(failure);
    EXPECT_EQ(read.wrong, "");
    EXPECT_EQ(read.failure.cpu_s, 0);
    EXPECT_EQ(read.failure.max_rss_kib, wire::kBigMax);
    EXPECT_EQ(read.failure.ran, Duration{0});
    EXPECT_EQ(read.failure.time, WallTime{});
    EXPECT_EQ(read.failure.node_rank, -1);
  }
}

TEST(WorkerJson, CutsLongTexts) {
  WorkerFailure failure = whole_failure();
  failure.sentence = failure.program = std::string(20, 'x');
  const ReadFailure read = sent_over(failure, 1000, 10);
  EXPECT_EQ(read.wrong, "");
  EXPECT_EQ(read.failure.sentence, "xxxxxxx...");
  EXPECT_EQ(read.failure.program, "xxxxxxx...");
}

std::string sent_tail(const std::string& tail, size_t long_max) {
  WorkerFailure failure = whole_failure();
  failure.stderr_tail = tail;
  return sent_over(failure, long_max).failure.stderr_tail;
}

TEST(WorkerJson, SendsTheLastWholeLinesOfStderrThatFit) {
  EXPECT_EQ(sent_tail("one\ntwo\nthree\n", 10), "two\nthree\n");
  EXPECT_EQ(sent_tail("one\ntwo\nthree\n", 9), "three\n");
  EXPECT_EQ(sent_tail("one\ntwo\nthree", 6), "three\n");
  EXPECT_EQ(sent_tail("one\ntwo\nthree\n", 5), "");
  EXPECT_EQ(sent_tail("one\n\n \n\n", 100), "one\n");
  EXPECT_EQ(sent_tail("\x1b[31mred\x1b[0m\xff\n", 100), "red\xEF\xBF\xBD\n");
  EXPECT_EQ(sent_tail("one\n", 0), "");
}

TEST(WorkerJson, SendsThirtyLinesOfStderr) {
  std::string thirty;
  for (int line = 0; line < 30; ++line)
    thirty += std::to_string(line) + "\n";
  EXPECT_EQ(sent_tail("first\n" + thirty, 10'000), thirty);
}

RC_GTEST_PROP(WorkerJson, SendsStderrAsItWillBeShown, ()) {
  const std::string tail = *any_output();
  const std::string sent = sent_tail(tail, wire::kLongTextBytes);
  std::string shown;
  for (const std::string& line : last_lines(sent, 30))
    shown += line + "\n";
  RC_ASSERT(shown == sent);
  RC_ASSERT(sent_tail(sent, wire::kLongTextBytes) == sent);
}

std::optional<std::string> sent_error(const std::string& content, size_t long_max) {
  WorkerFailure failure = whole_failure();
  failure.error_file_content = content;
  return sent_over(failure, long_max).failure.error_file_content;
}

TEST(WorkerJson, SendsAnErrorFileThatFitsAsItIs) {
  EXPECT_EQ(sent_error("not JSON \xff", 100), "not JSON \xEF\xBF\xBD");
  EXPECT_EQ(sent_error("", 100), "");
  EXPECT_EQ(sent_error("12345", 5), "12345");
  EXPECT_EQ(sent_error("12345", 0), std::nullopt);
}

TEST(WorkerJson, SendsTheMessageAndTheEndOfTheCallStackOfALongErrorFile) {
  const std::string stack = std::string(5000, 'a') + "the end";
  const std::string sent = sent_error(recorded_error("boom", stack, "1795215400"), 1000).value();
  EXPECT_LE(sent.size(), 1000u);
  const WorkerError error = parse_error_file(sent).value();
  EXPECT_TRUE(error.well_formed);
  EXPECT_EQ(error.message, "boom");
  EXPECT_EQ(error.callstack, std::string(493, 'a') + "the end");
  EXPECT_EQ(error.unix_time_s, 1795215400);
}

TEST(WorkerJson, SendsTheEndOfALongErrorFileOfAnotherForm) {
  EXPECT_EQ(sent_error(std::string(500, 'x') + "the end", 10), "xxxthe end");
}

TEST(WorkerJson, CarriesACause) {
  const Cause cause{FailureClass::limit, "exited with 1: E: x", "E: x", "do less"};
  std::string wrong;
  EXPECT_EQ(wire::read<Cause>(wire::json_of(cause, 100), wrong), cause);
  EXPECT_EQ(wrong, "");
  Json json = wire::json_of(cause, 100);
  json["kind"] = static_cast<int>(FailureClass::limit) + 1;
  wire::read<Cause>(json, wrong);
  EXPECT_EQ(wrong, "kind is not a whole number in range");
}

RC_GTEST_PROP(WorkerJson, ReadsAnyJsonWithoutHarm, ()) {
  Json fields = wire::json_of(whole_failure(), 100);
  Json words = wire::words_json(whole_failure(), 100, 100);
  const auto any_value = rc::gen::element<Json>(Json(), 0, -1, ~uint64_t{0}, 1e300, "x", true,
                                                Json::array({1}), Json::object());
  for (Json* json : {&fields, &words}) {
    const size_t at = *rc::gen::inRange<size_t>(0, json->size());
    std::next(json->begin(), static_cast<std::ptrdiff_t>(at)).value() = *any_value;
  }
  const ReadFailure read = read_back(fields, words);
  if (read.wrong.empty()) {
    RC_ASSERT(sent_over(read.failure).wrong.empty());
  }
}

}  // namespace
}  // namespace muster
