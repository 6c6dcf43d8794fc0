// Which of a worker's messages, files and exits count as signs, and which do not.
#include "agent/report/signs.h"

#include <csignal>
#include <string>

#include <gtest/gtest.h>

#include "tests/unit/agent/report/report_samples.h"
#include "tests/unit/instants.h"

namespace muster {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const std::string kTraceback =
    "Traceback (most recent call last):\n  File \"a.py\", line 2\nValueError: boom\n";
// As torch's excepthook prints an uncaught exception.
const std::string kHookedTraceback =
    "[rank3]: Traceback (most recent call last):\n[rank3]:   File \"a.py\", line 2\n"
    "[rank3]: ValueError: boom\n";

// Rank 3 runs from second 1000 to second 1010 and prints at second 1005; the stop, if there is one,
// comes at second 1009.
class Signs : public testing::Test {
 protected:
  Signs() {
    record_.failure = sample_failure(3, ExitStatus::exited(1));
    record_.started = at_ms(1'000'000);
    record_.ended = at_ms(1'010'000);
    record_.at_stop = AtStop::ended;
  }

  void print(const std::string& text, int64_t ms = 1'005'000) {
    WorkerPrinted& printed = record_.printed;
    printed.err_tail += text;
    printed.err_total += text.size();
    printed.err_times.add(printed.err_total, at_ms(ms));
    printed.last_output = at_ms(ms);
    if (!stop_ || at_ms(ms) < stop_->at) printed.err_total_before_stop = printed.err_total;
  }

  void write_error_file(const std::string& message, int64_t second, int64_t written_ms) {
    record_.failure.error_file_content =
        recorded_error(message, "Traceback ...", std::to_string(second));
    record_.error_file_written = WallTime{milliseconds{written_ms}};
  }

  void stop_it(ExitStatus status = ExitStatus::signaled(SIGTERM)) {
    stop_ = StopMark{at_ms(1'009'000), SIGTERM, false};
    record_.failure.status = status;
    record_.at_stop = AtStop::running;
  }

  FailureRecord library_failure(std::vector<int> origin, int64_t ms,
                                FailureCode code = FailureCode::timeout) {
    FailureRecord library;
    library.time_ns = Duration{milliseconds{ms}}.count();
    library.code = code;
    library.origin = std::move(origin);
    library.rank = 3;
    library.message = "all_reduce 17 of group world: rank 5 has not called it within 2 s";
    return library;
  }

  static Departure departure(DepartureKind kind, std::string error) {
    Departure noted;
    noted.time_ns = Duration{milliseconds{1'007'000}}.count();
    noted.kind = kind;
    noted.error = std::move(error);
    noted.site = "a.py:2";
    return noted;
  }

  Examination examined() const { return examine(record_, stop_, Instant{}); }
  WorkerSigns signs() const { return examined().signs; }
  OwnError error() const { return examined().error; }

  WorkerRecord record_;
  std::optional<StopMark> stop_;
};

TEST_F(Signs, HaveTheTimeAndTextOfAnUncaughtException) {
  print(kTraceback);
  EXPECT_EQ(signs().raised, at_ms(1'005'000));
  EXPECT_EQ(signs().blame, std::nullopt);
  EXPECT_EQ(error(), (OwnError{"ValueError: boom", true, {}}));
}

TEST_F(Signs, KeepTheBlameOfAnException) {
  print(kPeerTraceback);
  EXPECT_TRUE(signs().blame);
  EXPECT_TRUE(error().is_reason);
}

TEST_F(Signs, IgnoreAnErrorBeforeManyLines) {
  print(kPeerTraceback);
  for (int i = 0; i < 30; ++i)
    print("step " + std::to_string(i) + "\n", 1'006'000 + i);
  EXPECT_EQ(signs().raised, std::nullopt);
  EXPECT_EQ(signs().blame, std::nullopt);
}

TEST_F(Signs, IgnoreAnErrorThatTheProgramOutlived) {
  print(kPeerTraceback);
  EXPECT_TRUE(signs().blame);
  EXPECT_TRUE(error().is_reason);
  print("leaving\n", 1'005'900);  // During its teardown.
  EXPECT_TRUE(signs().blame);
  EXPECT_TRUE(error().is_reason);
  print("FATAL: loss is NaN\n", 1'008'000);
  EXPECT_FALSE(signs().blame);
  EXPECT_FALSE(signs().raised);
  EXPECT_FALSE(error().is_reason);
  EXPECT_EQ(error().text.substr(0, 12), "RuntimeError");
}

TEST_F(Signs, TakeTorchsHookAsTheEndWhateverThreadsPrintLater) {
  print(kHookedTraceback);
  print(kPeerTraceback, 1'008'000);
  EXPECT_EQ(signs().raised, at_ms(1'005'000));
  EXPECT_EQ(signs().blame, std::nullopt);
  EXPECT_EQ(error().text, "ValueError: boom");
}

TEST_F(Signs, IgnoreOutputBeforeAFaultOrAKill) {
  print(kPeerTraceback);
  for (const int signal : {SIGSEGV, SIGKILL, SIGBUS, SIGFPE, SIGILL, SIGTERM}) {
    record_.failure.status = ExitStatus::signaled(signal);
    EXPECT_EQ(signs().raised, std::nullopt) << signal;
    EXPECT_EQ(signs().blame, std::nullopt) << signal;
    EXPECT_FALSE(error().is_reason) << signal;
  }
  record_.failure.status = ExitStatus::signaled(SIGABRT);
  EXPECT_TRUE(signs().blame);
}

TEST_F(Signs, TakeAnExceptionAsCaughtIfTheExitCodeDiffers) {
  record_.failure.status = ExitStatus::exited(3);
  print(kTraceback);
  EXPECT_FALSE(error().is_reason);
}

// ---- the error file

TEST_F(Signs, RefineAnErrorFilesTimestampByItsLastChange) {
  write_error_file("ValueError: boom", 1004, 1'004'250);
  EXPECT_EQ(signs().raised, at_ms(1'004'250));
  EXPECT_EQ(signs().raised_error, Duration{0});
  EXPECT_EQ(error(), (OwnError{"ValueError: boom", true, {}}));
}

TEST_F(Signs, DistrustTheClockOfAFileServer) {
  write_error_file("ValueError: boom", 1004, 900'000);
  EXPECT_EQ(signs().raised, at_ms(1'004'000));
  EXPECT_EQ(signs().raised_error, seconds(1));
}

TEST_F(Signs, IgnoreAnErrorFileOfAnEarlierProcess) {
  write_error_file("ValueError: old", 900, 900'100);
  EXPECT_EQ(signs().raised, std::nullopt);
  EXPECT_EQ(error().text, "");
}

TEST_F(Signs, PreferStderrToATruncatedErrorFile) {
  record_.failure.error_file_content = R"({"message":{"message":"HugeError: xxxx)";  // Full disk.
  EXPECT_EQ(error().text, *record_.failure.error_file_content);
  print(kTraceback);
  EXPECT_EQ(error().text, "ValueError: boom");
}

TEST_F(Signs, UseTheEarlierTimeOfErrorFileAndStderr) {
  write_error_file("ValueError: boom", 1004, 1'004'250);
  print(kTraceback, 1'004'400);
  EXPECT_EQ(signs().raised, at_ms(1'004'250));
}

TEST_F(Signs, FindBlameInAnErrorFile) {
  record_.failure.error_file_content = recorded_error(
      "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by "
      "peer [127.0.0.1]:4711",
      "", "1004");
  EXPECT_TRUE(signs().blame);
}

// ---- the stop

TEST_F(Signs, AttributeAnEndByTheStopSignalToTheStop) {
  for (const ExitStatus status : {ExitStatus::signaled(SIGTERM), ExitStatus::exited(143)}) {
    stop_it(status);
    EXPECT_TRUE(signs().by_stop) << describe(status);
  }
  stop_it(ExitStatus::signaled(SIGKILL));
  EXPECT_FALSE(signs().by_stop);
  stop_->killed = true;
  EXPECT_TRUE(signs().by_stop);
  stop_it(ExitStatus::exited(1));
  EXPECT_FALSE(signs().by_stop);
}

TEST_F(Signs, DoNotAttributeAnEarlierEndToTheStop) {
  stop_it();
  for (const AtStop seen : {AtStop::exiting, AtStop::ended}) {
    record_.at_stop = seen;
    EXPECT_FALSE(signs().by_stop);
  }
  record_.at_stop = AtStop::unknown;
  EXPECT_TRUE(signs().by_stop);
  record_.ended = at_ms(1'008'000);
  EXPECT_FALSE(signs().by_stop);
}

TEST_F(Signs, KeepTheExceptionOfAWorkerThatHungUntilTheStop) {
  stop_it();
  print(kTraceback);
  EXPECT_EQ(signs().raised, at_ms(1'005'000));
  EXPECT_EQ(error(), (OwnError{"ValueError: boom", true, seconds(4)}));
}

TEST_F(Signs, PresumeWhatOnlyTheOutputOfARunningWorkerShows) {
  stop_it();
  print(kTraceback);
  EXPECT_TRUE(signs().presumed);
  write_error_file("ValueError: boom", 1004, 1'004'900);
  EXPECT_FALSE(signs().presumed);
}

TEST_F(Signs, AreCertainOfWhatTorchsHookPrinted) {
  stop_it();
  print(kHookedTraceback);
  EXPECT_EQ(signs().raised, at_ms(1'005'000));
  EXPECT_FALSE(signs().presumed);
}

TEST_F(Signs, AreCertainOfTheOutputOfAWorkerThatEndedByItself) {
  print(kTraceback);
  EXPECT_FALSE(signs().presumed);
}

TEST_F(Signs, DateALogThatTheWorkerWritesByItsLastChange) {
  stop_it();
  record_.printed.err_tail = kTraceback;
  record_.printed.err_total = record_.printed.err_total_before_stop = kTraceback.size();
  EXPECT_EQ(signs().raised, std::nullopt);
  record_.printed.err_written = WallTime{milliseconds{1'005'000}};
  EXPECT_EQ(signs().raised, at_ms(1'005'000));
  EXPECT_EQ(signs().raised_error, milliseconds(10));
  EXPECT_EQ(error().text, "ValueError: boom");
}

TEST_F(Signs, CountADeclaredFailureFromItsDeclaration) {
  stop_it();
  record_.failure.declared = "in uninterruptible sleep for 5.0 s";
  record_.declared = at_ms(1'008'900);
  EXPECT_EQ(signs().ended, at_ms(1'008'900));
  record_.ended.reset();  // It outlives SIGKILL.
  EXPECT_EQ(signs().ended, at_ms(1'008'900));
}

TEST_F(Signs, LetAnExceptionAfterTheStopExplainOnlyAnExit) {
  stop_it(ExitStatus::exited(1));
  print(kTraceback, 1'009'500);
  EXPECT_EQ(signs().raised, std::nullopt);
  EXPECT_EQ(error().text, "ValueError: boom");
  stop_it(ExitStatus::signaled(SIGTERM));
  EXPECT_EQ(error().text, "");
}

TEST_F(Signs, DateAnExceptionAlreadyInThePipeBeforeTheStop) {
  stop_it();
  print(kTraceback, 1'009'004);  // muster read it late.
  record_.printed.err_total_before_stop = record_.printed.err_total;
  ASSERT_TRUE(signs().raised);
  EXPECT_LT(*signs().raised, stop_->at);
  EXPECT_EQ(signs().raised_error, milliseconds(10));
  EXPECT_EQ(error().text, "ValueError: boom");
}

TEST_F(Signs, IgnoreALoggedExceptionThatAStoppedProgramOutlived) {
  stop_it();
  print(kTraceback);
  record_.printed.last_output = at_ms(1'008'000);  // To stdout.
  EXPECT_EQ(signs().raised, std::nullopt);
  EXPECT_EQ(error().text, "");
}

TEST_F(Signs, IgnoreAnErrorFileFromAfterTheStop) {
  stop_it(ExitStatus::exited(1));
  write_error_file("SignalException: 15", 1009, 1'009'200);
  EXPECT_EQ(signs().raised, std::nullopt);
  write_error_file("ValueError: boom", 1008, 1'008'900);
  EXPECT_EQ(signs().raised, at_ms(1'008'900));
}

TEST_F(Signs, AcceptAnExceptionAfterTheStopFromAnExitingWorker) {
  stop_it(ExitStatus::exited(1));
  record_.at_stop = AtStop::exiting;
  print(kTraceback, 1'009'500);
  EXPECT_EQ(signs().raised, at_ms(1'009'500));
}

// ---- the worker library

TEST_F(Signs, TakeTheBlamedRankFromTheLibrary) {
  record_.library = library_failure({5}, 1'009'000);
  EXPECT_EQ(signs().blame, (Blame{.ranks = {5}, .about = Blame::About::timeout}));
  EXPECT_EQ(signs().raised, at_ms(1'009'000));
  EXPECT_EQ(error().text, record_.library->message);
}

TEST_F(Signs, TreatALossWithoutARankAsBlame) {
  for (const FailureCode code : {FailureCode::rendezvous, FailureCode::peer_failed}) {
    record_.library = library_failure({}, 1'009'000, code);
    record_.printed = {};
    print("Traceback (most recent call last):\n  File \"a.py\"\nRuntimeError: " +
              record_.library->message + "\n",
          1'009'600);
    EXPECT_EQ(signs().blame, Blame{});
  }
  record_.library = library_failure({}, 1'009'000, FailureCode::backend);
  EXPECT_EQ(signs().blame, std::nullopt);
}

TEST_F(Signs, BlameNoPeerForALibraryFailureThatBeganHere) {
  record_.library = library_failure({3}, 1'009'000, FailureCode::aborted);
  print(
      "terminate called after throwing an instance of 'muster::DistributedError'\n"
      "  what():  " +
      record_.library->message + "\n");
  EXPECT_EQ(signs().blame, std::nullopt);
}

TEST_F(Signs, IgnoreALibraryFailureLongBeforeTheEnd) {
  record_.library = library_failure({5}, 1'001'000);
  record_.ended = at_ms(1'500'000);
  EXPECT_EQ(signs().blame, std::nullopt);
}

TEST_F(Signs, TakeARecoverableLibraryFailureOnlyIfTheProgramPrintsItLast) {
  record_.library = library_failure({0}, 1'009'000, FailureCode::system);
  print(kTraceback, 1'009'500);
  EXPECT_EQ(signs().blame, std::nullopt);
  record_.printed = {};
  print("Traceback (most recent call last):\n  File \"a.py\"\nRuntimeError: " +
            record_.library->message + "\n",
        1'009'600);
  EXPECT_EQ(signs().blame, Blame{{0}});
}

TEST_F(Signs, TakeALibraryFailureThatIsAllTheProgramPrinted) {
  record_.library = library_failure({0}, 1'009'000, FailureCode::system);
  record_.library->message = "save_checkpoint of group world on rank 0: cannot create /x/model";
  print("train: " + record_.library->message + "\n", 1'009'500);
  EXPECT_EQ(signs().blame, Blame{{0}});
  EXPECT_EQ(signs().raised, at_ms(1'009'000));
  record_.ended = at_ms(1'500'000);
  EXPECT_EQ(signs().blame, std::nullopt);
}

TEST_F(Signs, TreatAStopOrderAsNoFailure) {
  record_.library = library_failure({}, 1'009'000, FailureCode::stopped);
  EXPECT_EQ(signs().raised, std::nullopt);
}

TEST_F(Signs, TakeTheErrorThatOnlyStdoutShows) {
  record_.printed.out_tail = kTraceback + "bye\n";
  EXPECT_EQ(error(), (OwnError{"ValueError: boom", true, {}}));
  EXPECT_EQ(signs().raised, std::nullopt);  // When it was printed is unknown.
  record_.printed.out_tail = kPeerTraceback;
  EXPECT_TRUE(signs().blame);
  stop_it();
  EXPECT_EQ(error().text, "");
  stop_.reset();
  print(
      "NameError: on stderr\nTraceback (most recent call last):\n  File \"a\", line 1\nE: boom\n");
  EXPECT_EQ(error().text, "E: boom");
}

TEST_F(Signs, IgnoreAnErrorFarAboveTheEndOfStdout) {
  record_.printed.out_tail = kTraceback;
  for (int i = 0; i < 30; ++i)
    record_.printed.out_tail += "step " + std::to_string(i) + "\n";
  EXPECT_EQ(error().text, "");
}

// ---- what Python's hook noted before the stop

TEST_F(Signs, TakeAnExceptionThatWasNotPrintedYet) {
  stop_it();
  record_.departure = departure(DepartureKind::raised, "ValueError: boom");
  EXPECT_EQ(signs().raised, at_ms(1'007'000));
  EXPECT_TRUE(signs().presumed);  // It may have been caught.
  EXPECT_EQ(error(), (OwnError{"ValueError: boom", true, seconds{3}, "a.py:2"}));
  record_.departure = departure(DepartureKind::uncaught, "ValueError: boom");
  EXPECT_FALSE(signs().presumed);
}

TEST_F(Signs, TakeTheExceptionOfAWorkerThatEndedByItselfAfterTheStop) {
  stop_it(ExitStatus::exited(1));
  record_.departure = departure(DepartureKind::raised, "ValueError: boom");
  print(kTraceback, 1'009'500);
  EXPECT_EQ(signs().raised, at_ms(1'007'000));
  EXPECT_FALSE(signs().presumed);
  EXPECT_FALSE(signs().blame);
  EXPECT_EQ(error().text, "ValueError: boom");
}

TEST_F(Signs, PreferANotedExceptionToTheLostConnectionsOfTheTeardown) {
  stop_it();
  print(kPeerTraceback, 1'008'000);
  EXPECT_TRUE(signs().blame);
  record_.departure = departure(DepartureKind::raised, "ValueError: boom");
  EXPECT_FALSE(signs().blame);
  EXPECT_EQ(error().text, "ValueError: boom");
}

TEST_F(Signs, KeepTheWholeMessageOfANotedException) {
  stop_it();
  print(kTraceback);
  record_.departure = departure(DepartureKind::uncaught, "ValueError: bo");
  EXPECT_EQ(signs().raised, at_ms(1'005'000));
  EXPECT_EQ(error().text, "ValueError: boom");
  EXPECT_FALSE(signs().presumed);
}

TEST_F(Signs, TreatANotedLossOfAPeerAsBlame) {
  stop_it();
  record_.departure =
      departure(DepartureKind::raised,
                "RuntimeError: [gloo/transport/tcp/pair.cc:1] Connection closed by peer");
  EXPECT_TRUE(signs().blame);
}

TEST_F(Signs, KnowWhenAWorkerLeftItsGroups) {
  stop_it();
  record_.departure = departure(DepartureKind::left, "");
  EXPECT_EQ(signs().left, at_ms(1'007'000));
  EXPECT_EQ(signs().raised, std::nullopt);
  EXPECT_EQ(error().text, "");
}

TEST_F(Signs, IgnoreALibraryRecordOfAnEarlierProcess) {
  record_.library = library_failure({5}, 900'000);
  EXPECT_EQ(signs().blame, std::nullopt);
}

}  // namespace
}  // namespace muster
