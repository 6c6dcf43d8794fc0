#include "agent/report/error_file.h"

#include <gtest/gtest.h>

#include "tests/unit/agent/report/report_samples.h"

namespace muster {
namespace {

TEST(ErrorFile, ReadsWhatTorchsRecordWrites) {
  const WorkerError expected{"ValueError: boom", "Traceback ...\nValueError: boom\n", 1795277816,
                             true};
  EXPECT_EQ(parse_error_file(recorded_error("ValueError: boom",
                                            R"(Traceback ...\nValueError: boom\n)", "1795277816")),
            expected);
}

TEST(ErrorFile, ReadsTheFlatShapeWithANumberOrAText) {
  EXPECT_EQ(parse_error_file(R"({"message": "bad", "timestamp": 10})"),
            (WorkerError{"bad", "", 10, true}));
  EXPECT_EQ(parse_error_file(R"({"message": "bad", "timestamp": "10"})"),
            (WorkerError{"bad", "", 10, true}));
  EXPECT_EQ(parse_error_file(R"({"message": "bad", "timestamp": 10.9})"),
            (WorkerError{"bad", "", 10, true}));
  EXPECT_EQ(parse_error_file(R"({"message": "bad", "timestamp": "10.9"})"),
            (WorkerError{"bad", "", 10, true}));
}

TEST(ErrorFile, TakesAMissingOrSenselessTimeAsNone) {
  for (const char* content :
       {R"({"message": "bad"})", R"({"message": "bad", "timestamp": "soon"})",
        R"({"message": "bad", "timestamp": [1]})", R"({"message": "bad", "timestamp": 1e300})",
        R"({"message": "bad", "timestamp": ""})"}) {
    EXPECT_EQ(parse_error_file(content), (WorkerError{"bad", "", {}, true})) << content;
  }
}

TEST(ErrorFile, AcceptsAnObjectWithoutExtraInfo) {
  EXPECT_EQ(parse_error_file(R"({"message": {"message": "bad"}})"),
            (WorkerError{"bad", "", {}, true}));
  EXPECT_EQ(parse_error_file(R"({"message": {"message": "bad", "extraInfo": 7}})"),
            (WorkerError{"bad", "", {}, true}));
}

TEST(ErrorFile, TakesTheMessageFromTheCallstackIfThereIsNoOther) {
  const std::string callstack =
      R"(Traceback (most recent call last):\n  File \"a\"\nOSError: disk\n)";
  const std::optional<WorkerError> error = parse_error_file(recorded_error("", callstack, "5"));
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->message, "OSError: disk");
  EXPECT_EQ(error->unix_time_s, 5);
}

TEST(ErrorFile, ShowsMalformedContentAsItIs) {
  for (const char* content :
       {"{\"message\": ", "plain words", "[1, 2]", R"({"error": "no message"})",
        R"({"message": 42})", R"({"message": {}})", R"("just a string")"}) {
    EXPECT_EQ(parse_error_file(content), (WorkerError{content, "", {}, false})) << content;
  }
}

TEST(ErrorFile, IsNoErrorIfBlank) {
  EXPECT_EQ(parse_error_file(""), std::nullopt);
  EXPECT_EQ(parse_error_file(" \n"), std::nullopt);
}

TEST(ErrorFile, KeepsAnEmptyMessageEmpty) {
  EXPECT_EQ(parse_error_file(R"({"message": "", "timestamp": 3})"), (WorkerError{"", "", 3, true}));
}

TEST(ErrorFile, SurvivesAbsurdNesting) {
  const std::string deep = std::string(500'000, '[') + std::string(500'000, ']');
  EXPECT_EQ(parse_error_file(deep), (WorkerError{deep, "", {}, false}));
}

TEST(LauncherErrorFile, CopiesTheCulpritsFileWithItsExitCode) {
  WorkerFailure culprit = sample_failure(1, ExitStatus::exited(3));
  culprit.error_file_content = recorded_error("ValueError: boom", "tb", "10");
  EXPECT_EQ(launcher_error_file(culprit),
            R"({"message":{"message":"ValueError: boom","extraInfo":{"py_callstack":"tb",)"
            R"("timestamp":"10"},"errorCode":3}})");
}

TEST(LauncherErrorFile, WritesASignalAsANegativeNumber) {
  WorkerFailure culprit = sample_failure(1, ExitStatus::signaled(SIGSEGV));
  culprit.error_file_content = R"({"message": {"message": "m"}})";
  EXPECT_EQ(launcher_error_file(culprit), R"({"message":{"message":"m","errorCode":-11}})");
}

TEST(LauncherErrorFile, LeavesTheFlatShapeAlone) {
  WorkerFailure culprit = sample_failure(1, ExitStatus::exited(3));
  culprit.error_file_content = R"({"message": "text", "timestamp": 10})";
  EXPECT_EQ(launcher_error_file(culprit), R"({"message":"text","timestamp":10})");
}

TEST(LauncherErrorFile, IsNotWrittenWithoutACulpritsErrorFile) {
  WorkerFailure culprit = sample_failure(1, ExitStatus::exited(3));
  EXPECT_EQ(launcher_error_file(culprit), std::nullopt);
  culprit.error_file_content = "\n";
  EXPECT_EQ(launcher_error_file(culprit), std::nullopt);
  culprit.error_file_content = "not JSON";
  EXPECT_EQ(launcher_error_file(culprit), std::nullopt);
}

TEST(LauncherErrorFile, RecordsErrorsOfMusterInTheSameShape) {
  const Error error{ExitCode::environment, "cannot create the log folder \"/x\""};
  const std::string content = launcher_error_file(error, sample_time());
  EXPECT_EQ(content,
            R"({"message":{"message":"muster: cannot create the log folder \"/x\"",)"
            R"("extraInfo":{"py_callstack":"","timestamp":"1795215408"},"errorCode":121}})");
  EXPECT_EQ(parse_error_file(content),
            (WorkerError{"muster: cannot create the log folder \"/x\"", "", kSampleSecond, true}));
}

}  // namespace
}  // namespace muster
