#include "agent/report/verdict.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "agent/report/cause.h"
#include "tests/unit/agent/report/report_samples.h"

namespace muster {
namespace {

const std::string kRule = std::string(80, '=') + "\n";

JobReport failed_job(std::vector<WorkerFailure> failures, const HostEvidence& evidence = {}) {
  JobReport report = sample_job(JobEnd::failed);
  judge_failures(report, failures, evidence);
  return report;
}

std::string numbered_lines(int count, const std::string& word = "line") {
  std::string text;
  for (int i = 1; i <= count; ++i)
    text += word + " " + std::to_string(i) + "\n";
  return text;
}

size_t line_count(const std::string& text) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

TEST(Verdict, IsOneBlockForAPythonJob) {
  WorkerFailure culprit = sample_failure(3, ExitStatus::exited(1));
  culprit.device = "GPU 3 (0000:3b:00.0)";
  culprit.stderr_tail =
      "epoch 1\n\r 50%\r100%\n"
      "Traceback (most recent call last):\n"
      "  File \"train.py\", line 8, in <module>\n"
      "    raise ValueError(\"boom\")\n"
      "ValueError: boom\n";
  culprit.stderr_log_path = "/logs/attempt_0/3/stderr.log";
  culprit.stdout_log_path = "/logs/attempt_0/3/stdout.log";
  const JobReport report = failed_job(
      {culprit, sample_failure(1, ExitStatus::exited(1)), sample_failure(2, ExitStatus::exited(1)),
       sample_failure(5, ExitStatus::exited(1)), sample_failure(6, ExitStatus::signaled(SIGABRT)),
       sample_stopped(0), sample_stopped(4), sample_stopped(7, ExitStatus::signaled(SIGKILL))});
  EXPECT_EQ(render_end(report, {}),
            kRule +
                R"(train.py FAILED: rank 3 of 8 exited with 1: ValueError: boom
on node-7, pid 1003, GPU 3 (0000:3b:00.0), 2 min 14 s after its start
The last 6 lines of its stderr:
  | epoch 1
  | 100%
  | Traceback (most recent call last):
  |   File "train.py", line 8, in <module>
  |     raise ValueError("boom")
  | ValueError: boom
Root Cause (first observed failure): failed (exitcode: 1) local_rank: 3 (pid: 1003) of binary: /usr/bin/python3
  rank      : 3 (local_rank: 3), exitcode  : 1 (pid: 1003), time: 2026-11-20_22:56:48
Log: /logs/attempt_0/3/stderr.log
Log: /logs/attempt_0/3/stdout.log
4 others failed afterwards: ranks 1-2,5 exited with 1; rank 6 killed by SIGABRT
3 others were stopped by muster: ranks 0,4 killed by SIGTERM; rank 7 killed by SIGKILL
)" + kRule);
}

TEST(Verdict, ShowsTorchrunsWholeBlockIfAsked) {
  WorkerFailure culprit = sample_failure(3, ExitStatus::signaled(SIGSEGV));
  culprit.error_file_content = "{}";
  culprit.error_file_path = "/logs/error.json";
  const std::string text = render_end(failed_job({culprit}), {.whole_block = true});
  EXPECT_NE(text.find(R"(
Root Cause (first observed failure):
  time      : 2026-11-20_22:56:48
  host      : node-7
  rank      : 3 (local_rank: 3)
  exitcode  : -11 (pid: 1003)  (SIGSEGV)
  error_file: /logs/error.json
  traceback : killed by SIGSEGV
  failed (exitcode: -11) local_rank: 3 (pid: 1003) of binary: /usr/bin/python3
)"),
            std::string::npos)
      << text;
}

TEST(Verdict, SaysWhatIsKnownOfASilentCrash) {
  WorkerFailure culprit = sample_failure(0, ExitStatus::signaled(SIGSEGV));
  culprit.program = culprit.binary = "./solver";
  HostEvidence evidence;
  evidence.core_limit_bytes = 0;
  JobReport report = failed_job({culprit}, evidence);
  report.program = "./solver";
  report.world_size = 1;
  RenderOptions options;
  options.width = 40;
  options.utc_offset = std::chrono::hours{1};
  EXPECT_EQ(render_end(report, options), R"(========================================
./solver FAILED: rank 0 killed by SIGSEGV (no core: ulimit -c is 0)
on node-7, pid 1000, 2 min 14 s after its start
It wrote nothing to stderr.
Root Cause (first observed failure): failed (exitcode: -11) local_rank: 0 (pid: 1000) of binary: ./solver
  rank      : 0 (local_rank: 0), exitcode  : -11 (pid: 1000)  (SIGSEGV), time: 2026-11-20_23:56:48
Log: none was kept (--log-dir DIR --tee 3 keeps both streams of every rank)
========================================
)");
}

TEST(Verdict, SaysWhatToDoInColourAndCountsAttempts) {
  WorkerFailure culprit = sample_failure(1, ExitStatus::signaled(SIGKILL));
  culprit.attempt = 2;
  culprit.stderr_tail = "loading\n";
  HostEvidence evidence;
  evidence.oom_kills = 1;
  JobReport report = failed_job({culprit, sample_stopped(0)}, evidence);
  report.max_restarts = 2;
  report.restarts_used = 2;
  RenderOptions options;
  options.colour = true;
  EXPECT_EQ(
      render_end(report, options),
      kRule +
          "\x1b[1;31mtrain.py FAILED: rank 1 of 8 killed by the kernel's out-of-memory "
          "killer\x1b[0m\n"
          "on node-7, pid 1001, 2 min 14 s after its start, in attempt 2 (0 of 2 restarts left)\n"
          "\x1b[33mWhat to do: use less memory per worker (batch size, data-loading processes) or "
          "raise the limit (docker run --memory, Kubernetes resources.limits.memory, Slurm "
          "--mem)\x1b[0m\n"
          R"(The last line of its stderr:
  | loading
Root Cause (first observed failure): failed (exitcode: -9) local_rank: 1 (pid: 1001) of binary: /usr/bin/python3
  rank      : 1 (local_rank: 1), exitcode  : -9 (pid: 1001)  (SIGKILL), time: 2026-11-20_22:56:48
Log: none was kept (--log-dir DIR --tee 3 keeps both streams of every rank)
1 other was stopped by muster: rank 0 killed by SIGTERM
)" + kRule);
}

TEST(Verdict, ShowsTheErrorFileWhenStderrDoesNotHaveIt) {
  WorkerFailure culprit = sample_failure(0, ExitStatus::exited(1));
  culprit.error_file_path = "/logs/attempt_0/0/error.json";
  culprit.error_file_content = recorded_error(
      "ValueError: boom", R"(Traceback (most recent call last):\n  File \"a\"\nValueError: boom\n)",
      "1795215400");
  const std::string text = render_end(failed_job({culprit}), {});
  EXPECT_NE(text.find("From its error file /logs/attempt_0/0/error.json:\n"
                      "  | Traceback (most recent call last):\n"
                      "  |   File \"a\"\n"
                      "  | ValueError: boom\n"
                      "It wrote nothing to stderr.\n"),
            std::string::npos)
      << text;
}

TEST(Verdict, DoesNotRepeatAnErrorFileThatStderrShows) {
  WorkerFailure culprit = sample_failure(0, ExitStatus::exited(1));
  culprit.error_file_content = recorded_error("ValueError: boom", "tb", "1795215400");
  culprit.stderr_tail = "ValueError: boom\n";
  const std::string text = render_end(failed_job({culprit}), {});
  EXPECT_EQ(text.find("From its error file"), std::string::npos) << text;
}

TEST(Verdict, QuotesStdoutIfStderrIsEmpty) {
  WorkerFailure culprit = sample_failure(0, ExitStatus::exited(1));
  culprit.stdout_tail = "no room\n";
  culprit.error_file_path = "/full/error.json";
  const std::string text = render_end(failed_job({culprit}), {});
  EXPECT_NE(text.find("It wrote nothing to stderr.\n"
                      "The last line of its stdout:\n  | no room\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("Log: none could be written to /full; make room"), std::string::npos) << text;
}

TEST(Verdict, QuotesBothStreamsIfOnlyStdoutShowsTheError) {
  WorkerFailure culprit = sample_failure(0, ExitStatus::exited(1));
  culprit.stdout_tail = "Traceback (most recent call last):\n  File \"a\", line 1, in f\nE: boom\n";
  culprit.stderr_tail = "run finished\n";
  JobReport report = failed_job({culprit});
  EXPECT_EQ(render_end(report, {}).find("stdout"), std::string::npos);
  report.cause.exception = "E: boom";
  const std::string text = render_end(report, {});
  EXPECT_NE(text.find("The last 3 lines of its stdout:\n  | Traceback (most recent call last):\n"
                      "  |   File \"a\", line 1, in f\n  | E: boom\n"
                      "The last line of its stderr:\n  | run finished\n"),
            std::string::npos)
      << text;
}

TEST(Verdict, DoesNotCallUnreadOutputEmpty) {
  WorkerFailure culprit = sample_failure(0, ExitStatus::exited(1));
  culprit.unread = true;
  culprit.error_file_path = "/hung/error.json";
  const std::string text = render_end(failed_job({culprit}), {});
  EXPECT_NE(text.find("What it printed last was not read.\n"), std::string::npos) << text;
  EXPECT_NE(text.find("Log: the disk of /hung does not answer\n"), std::string::npos) << text;
}

TEST(Verdict, ShowsAMalformedErrorFileAsItIs) {
  WorkerFailure culprit = sample_failure(0, ExitStatus::exited(1));
  culprit.error_file_path = "/logs/error.json";
  culprit.error_file_content = "{\"message\": \"torn";
  culprit.stderr_tail = "bye\n";
  const std::string text = render_end(failed_job({culprit}), {});
  EXPECT_NE(text.find("From its error file /logs/error.json:\n  | {\"message\": \"torn\n"
                      "The last line of its stderr:\n  | bye\n"),
            std::string::npos)
      << text;
}

TEST(Verdict, ShowsTheLastThirtyLinesAndStaysOnOneScreen) {
  WorkerFailure culprit = sample_failure(0, ExitStatus::exited(3));
  culprit.stderr_tail = numbered_lines(100);
  culprit.stderr_log_path = "/logs/0/stderr.log";
  const std::string text = render_end(failed_job({culprit, sample_stopped(1)}), {});
  EXPECT_EQ(text.find("  | line 70\n"), std::string::npos);
  EXPECT_NE(text.find("The last 30 lines of its stderr:\n  | line 71\n"), std::string::npos);
  EXPECT_NE(text.find("  | line 100\nRoot Cause"), std::string::npos);
  EXPECT_LE(line_count(text), 45u);
}

TEST(Verdict, SharesItsLinesBetweenALongErrorFileAndALongStderr) {
  WorkerFailure culprit = sample_failure(0, ExitStatus::exited(1));
  culprit.stderr_tail = numbered_lines(100);
  culprit.error_file_path = "/logs/error.json";
  culprit.error_file_content = numbered_lines(50, "record");
  culprit.stderr_log_path = "/logs/0/stderr.log";
  const std::string text = render_end(failed_job({culprit, sample_stopped(1)}), {});
  EXPECT_NE(text.find("From its error file /logs/error.json:\n  | record 36\n"), std::string::npos)
      << text;
  EXPECT_NE(text.find("The last 15 lines of its stderr:\n  | line 86\n"), std::string::npos);
  EXPECT_LE(line_count(text), 47u);
}

TEST(Verdict, LetsNoProgramTouchTheTerminal) {
  WorkerFailure culprit = sample_failure(0, ExitStatus::exited(1));
  culprit.stderr_tail =
      "Traceback (most recent call last):\n  File \"a\"\n"
      "ValueError: \x1b[2J\x1b]0;owned\x07 boom\x9b\n";
  culprit.error_file_path = "/tmp/\x1b[31m";
  culprit.error_file_content = "\x1b[2Jraw";
  culprit.host = "node\x1b[5m";
  JobReport report = failed_job({culprit});
  report.program = "a\nb\x1b[2J.py";
  const std::string text = render_end(report, {});
  EXPECT_EQ(text.find('\x1b'), std::string::npos) << text;
  EXPECT_EQ(text.find('\a'), std::string::npos) << text;
}

TEST(Verdict, IsShownEvenIfNoExitWasObserved) {
  EXPECT_EQ(render_end(sample_job(JobEnd::failed), {}),
            "muster: train.py FAILED: no worker's exit was observed\n");
}

TEST(Verdict, NamesTheNodeRankOnlyIfThereAreSeveralNodes) {
  JobReport report = failed_job({sample_failure(3, ExitStatus::exited(1)), sample_stopped(0)});
  const std::string alone = render_end(report, {});
  EXPECT_EQ(alone.find("node rank"), std::string::npos) << alone;
  EXPECT_NE(alone.find("\n1 other was stopped by muster"), std::string::npos) << alone;
  report.nnodes = 2;
  report.node_rank = 1;
  const std::string with_nodes = render_end(report, {});
  EXPECT_NE(with_nodes.find("\non node-7 (node rank 1), pid 1003"), std::string::npos);
  EXPECT_NE(with_nodes.find("\n1 other was stopped by muster"), std::string::npos);
}

TEST(Verdict, IsTheSameOnAnotherNode) {
  JobReport there = failed_job({sample_failure(3, ExitStatus::exited(1)), sample_stopped(0)});
  there.nnodes = 2;
  there.node_rank = 1;
  JobReport here = there;
  here.node_rank = 0;
  here.host = "node-6";
  here.program = "../train.py";
  for (WorkerFailure& failure : here.failures)
    failure.node_rank = 1;
  EXPECT_EQ(render_end(here, {}), render_end(there, {}));
}

TEST(Verdict, CountsTheOthersThatItCannotList) {
  JobReport report = failed_job({sample_failure(3, ExitStatus::exited(1))});
  report.nnodes = 2;
  report.others_untold = 12;
  EXPECT_NE(render_end(report, {}).find("\n12 more did not succeed\n"), std::string::npos);
}

TEST(NodeRankOf, PrefersTheFailuresNodeRankToTheReports) {
  JobReport report = sample_job(JobEnd::failed);
  WorkerFailure failure = sample_failure(0, ExitStatus::exited(1));
  EXPECT_EQ(node_rank_of(report, failure), std::nullopt);
  report.nnodes = 4;
  report.node_rank = 3;
  EXPECT_EQ(node_rank_of(report, failure), 3);
  failure.node_rank = 0;
  EXPECT_EQ(node_rank_of(report, failure), 0);
}

AttemptRecord failed_attempt(int number, int rank, ExitStatus status,
                             const std::string& exception = "") {
  const std::string sentence = describe(status) + (exception.empty() ? "" : ": " + exception);
  return {.attempt = number,
          .why_ended = "rank " + std::to_string(rank) + " " + sentence,
          .culprit =
              AttemptCulprit{rank, status, exception, sentence, std::chrono::milliseconds{1300}}};
}

// The lines between those about the last culprit and its output.
std::string attempts_in(const JobReport& report) {
  const std::string screen = render_end(report, {});
  const size_t from = screen.find("Attempt");
  return from == std::string::npos ? "" : screen.substr(from, screen.find("It wrote") - from);
}

TEST(RenderEnd, TellsTheFirstFailureFromThoseOfLaterAttempts) {
  JobReport report = failed_job({sample_failure(1, ExitStatus::exited(1))});
  report.attempts = {failed_attempt(0, 0, ExitStatus::signaled(SIGKILL))};
  EXPECT_EQ(attempts_in(report), "");
  for (const int number : {1, 2, 3})
    report.attempts.push_back(
        failed_attempt(number, number % 2, ExitStatus::exited(1), "EOFError"));
  EXPECT_EQ(attempts_in(report),
            "Attempt 0: rank 0 killed by SIGKILL, 1.3 s after its start\n"
            "Attempts 1 to 3: ranks 0-1 exited with 1: EOFError, the same each time\n");
  report.nnodes = 2;
  EXPECT_EQ(attempts_in(report), "");
  report.nnodes = 1;
  report.attempts[2] = AttemptRecord{.attempt = 2};  // Nodes came or went.
  EXPECT_EQ(attempts_in(report),
            "Attempt 0: rank 0 killed by SIGKILL, 1.3 s after its start\n"
            "Attempts 1 to 3: rank 1 exited with 1: EOFError, the same each time\n");
}

// One of the ranks is stopped for the other's failure before it has ended of its own.
TEST(RenderEnd, CallsAttemptsAlikeThoughARankWasStoppedAsItDied) {
  JobReport report = failed_job({sample_failure(1, ExitStatus::exited(1))});
  report.attempts = {failed_attempt(0, 0, ExitStatus::signaled(SIGKILL)),
                     failed_attempt(1, 0, ExitStatus::signaled(SIGTERM), "EOFError"),
                     failed_attempt(2, 1, ExitStatus::exited(1), "EOFError")};
  EXPECT_EQ(attempts_in(report),
            "Attempt 0: rank 0 killed by SIGKILL, 1.3 s after its start\n"
            "Attempts 1 to 2: ranks 0-1 exited with 1: EOFError, the same each time\n");
}

TEST(RenderEnd, LeavesOutTheMiddleOfManyAttempts) {
  JobReport report = failed_job({sample_failure(1, ExitStatus::exited(1))});
  for (int number = 0; number < 20; ++number)
    report.attempts.push_back(failed_attempt(number, 1, ExitStatus::exited(number + 1)));
  const std::string lines = attempts_in(report);
  EXPECT_EQ(std::ranges::count(lines, '\n'), 7);
  EXPECT_NE(
      lines.find("Attempt 2: rank 1 exited with 3, 1.3 s after its start\n(14 more that differ)\n"
                 "Attempt 17: "),
      std::string::npos)
      << lines;
}

TEST(RenderEnd, IsSilentAfterASuccess) {
  EXPECT_EQ(render_end(sample_job(JobEnd::success), {}), "");
}

TEST(RenderEnd, SaysHowAStopWent) {
  JobReport report = sample_job(JobEnd::stopped);
  report.attempts.push_back({});
  report.stop_signal = SIGTERM;
  report.stop_took = std::chrono::milliseconds{2149};
  EXPECT_EQ(render_end(report, {}),
            "muster: stopped by SIGTERM after 2.1 s; all workers ended within the grace period\n");
  report.killed_ranks = {1, 3};
  EXPECT_EQ(render_end(report, {}),
            "muster: stopped by SIGTERM after 2.1 s; ranks 1,3 did not end within the grace period "
            "and had to be killed\n");
  report.kill_requested = true;
  EXPECT_EQ(render_end(report, {}),
            "muster: stopped by SIGTERM after 2.1 s; ranks 1,3 had not ended when a second signal "
            "killed them\n");
  report.kill_requested = false;
  WorkerFailure failure = sample_failure(0, ExitStatus::exited(1));
  failure.part = Part::crashed;
  failure.sentence = "exited with 1: OSError: disk full";
  report.failed_in_stop = {failure};
  EXPECT_EQ(render_end(report, {}),
            "muster: stopped by SIGTERM after 2.1 s; ranks 1,3 did not end within the grace period "
            "and had to be killed; 1 failed while muster stopped it: rank 0 exited with 1: "
            "OSError: disk full\n");
  report.killed_ranks = {};
  failure.rank = 4;
  report.failed_in_stop.push_back(failure);
  EXPECT_EQ(render_end(report, {}),
            "muster: stopped by SIGTERM after 2.1 s; 2 failed while muster stopped them: ranks 0,4 "
            "exited with 1: OSError: disk full\n");
}

TEST(RenderEnd, ClaimsNothingAboutWorkersIfStoppedBeforeTheFirstRound) {
  JobReport report = sample_job(JobEnd::stopped);
  report.stop_signal = SIGINT;
  EXPECT_EQ(render_end(report, {}), "muster: stopped by SIGINT before any worker was started\n");
}

TEST(RenderEnd, KeepsAFailureBeforeAStop) {
  JobReport report = failed_job({sample_failure(1, ExitStatus::exited(3))});
  report.end = JobEnd::stopped;
  report.attempts.push_back({});
  report.stop_signal = SIGINT;
  report.stop_took = std::chrono::milliseconds{20};
  EXPECT_EQ(render_end(report, {}),
            "muster: stopped by SIGINT after 20 ms; all workers ended within the grace period\n"
            "muster: before that, rank 1 (pid 1001) exited with 3; failed (exitcode: 3) "
            "local_rank: 1 (pid: 1001) of binary: /usr/bin/python3\n");
}

TEST(RenderEnd, ShowsTheMessageOfASetupError) {
  JobReport report = sample_job(JobEnd::spawn_failed);
  report.error = {ExitCode::not_found, "cannot start \"x\": no such file; check the path"};
  EXPECT_EQ(render_end(report, {}), "muster: cannot start \"x\": no such file; check the path\n");
  report.end = JobEnd::round_failed;
  report.error = {ExitCode::environment, "port 29500 is taken by pid 7 (python)"};
  EXPECT_EQ(render_end(report, {}), "muster: port 29500 is taken by pid 7 (python)\n");
}

TEST(RenderEnd, NamesEachUnkillableProcess) {
  JobReport report = sample_job(JobEnd::unkillable);
  report.stuck = {{77, 3, "python3", 'D', "nfs_wait_bit_killable"}, {78, -1, "dd", 'R', ""}};
  EXPECT_EQ(render_end(report, {}),
            "muster: 2 processes did not exit after SIGKILL and will remain until the kernel "
            "releases them; check the disk, file server or GPU that they wait for:\n"
            "  pid 77 (python3, rank 3) in uninterruptible sleep (state D) in the kernel's "
            "nfs_wait_bit_killable\n"
            "  pid 78 (dd) in state R\n");
  report.stuck.resize(1);
  EXPECT_EQ(
      render_end(report, {}),
      "muster: 1 process did not exit after SIGKILL and will remain until the kernel releases it; "
      "check the disk, file server or GPU that it waits for:\n"
      "  pid 77 (python3, rank 3) in uninterruptible sleep (state D) in the kernel's "
      "nfs_wait_bit_killable\n");
}

TEST(RenderEnd, NamesProcessesThatMayNotBeSignalled) {
  JobReport report;
  report.end = JobEnd::unkillable;
  report.stuck = {{77, -1, "sudo", 'S', "", 0}};
  EXPECT_EQ(render_end(report, {}),
            "muster: 1 process runs as another user and could not be stopped; end it as that user "
            "or as root:\n"
            "  pid 77 (sudo) runs as uid 0\n");
  report.stuck.push_back({78, -1, "dd", 'D', ""});
  EXPECT_EQ(render_end(report, {}),
            "muster: 2 processes did not exit after SIGKILL and will remain until the kernel "
            "releases them; check the disk, file server or GPU that they wait for:\n"
            "  pid 77 (sudo) runs as uid 0\n"
            "  pid 78 (dd) in uninterruptible sleep (state D)\n");
}

TEST(RenderRestart, IsOneLine) {
  const WorkerFailure culprit = sample_failure(1, ExitStatus::exited(3));
  const Cause cause = cause_of(culprit, {});
  EXPECT_EQ(render_restart(culprit, cause, 2, 3),
            "rank 1 exited with 3; failed (exitcode: 3) local_rank: 1 (pid: 1001) of "
            "binary: /usr/bin/python3; restarting, 2 of 3 restarts left");
  EXPECT_EQ(render_restart(culprit, cause, 0, 3, std::chrono::milliseconds{500}),
            "rank 1 exited with 3; failed (exitcode: 3) local_rank: 1 (pid: 1001) of "
            "binary: /usr/bin/python3; restarting in 500 ms, 0 of 3 restarts left");
}

TEST(RenderRestart, NamesTheNodeIfThereAreSeveral) {
  WorkerFailure culprit = sample_failure(1, ExitStatus::exited(3));
  culprit.node_rank = 0;
  EXPECT_EQ(render_restart(culprit, cause_of(culprit, {}), 2, 3),
            "rank 1 on node-7 exited with 3; failed (exitcode: 3) local_rank: 1 (pid: 1001) of "
            "binary: /usr/bin/python3; restarting, 2 of 3 restarts left");
}

TEST(ExitCodeOf, IsTheCulpritsExitCode) {
  EXPECT_EQ(exit_code_of(failed_job({sample_failure(0, ExitStatus::exited(42))}),
                         ExitCodePolicy::culprit),
            42);
  EXPECT_EQ(exit_code_of(failed_job({sample_failure(0, ExitStatus::signaled(SIGSEGV))}),
                         ExitCodePolicy::culprit),
            139);
}

TEST(ExitCodeOf, IsNeverZeroForAFailure) {
  WorkerFailure declared = sample_failure(0, ExitStatus::exited(0));
  declared.declared = "stuck";
  EXPECT_EQ(exit_code_of(failed_job({declared}), ExitCodePolicy::culprit), 1);
  EXPECT_EQ(exit_code_of(sample_job(JobEnd::failed), ExitCodePolicy::culprit), 120);
}

TEST(ExitCodeOf, IsTheDocumentedCodeOfOtherEnds) {
  JobReport report = sample_job(JobEnd::success);
  EXPECT_EQ(exit_code_of(report, ExitCodePolicy::culprit), 0);
  report.end = JobEnd::stopped;
  report.stop_signal = SIGTERM;
  EXPECT_EQ(exit_code_of(report, ExitCodePolicy::culprit), 143);
  report.end = JobEnd::spawn_failed;
  report.error.code = ExitCode::cannot_execute;
  EXPECT_EQ(exit_code_of(report, ExitCodePolicy::culprit), 126);
  report.end = JobEnd::round_failed;
  report.error.code = ExitCode::environment;
  EXPECT_EQ(exit_code_of(report, ExitCodePolicy::culprit), 121);
  report.end = JobEnd::unkillable;
  EXPECT_EQ(exit_code_of(report, ExitCodePolicy::culprit), 123);
}

TEST(ExitCodeOf, IsZeroOrOneUnderTheTorchrunPolicy) {
  JobReport report = sample_job(JobEnd::success);
  EXPECT_EQ(exit_code_of(report, ExitCodePolicy::torchrun), 0);
  report.end = JobEnd::stopped;
  report.stop_signal = SIGTERM;
  EXPECT_EQ(exit_code_of(report, ExitCodePolicy::torchrun), 1);
  EXPECT_EQ(exit_code_of(failed_job({sample_failure(0, ExitStatus::exited(42))}),
                         ExitCodePolicy::torchrun),
            1);
}

TEST(ExitCodeOf, IsTheCodeGivenForTheCause) {
  ExitCodes codes = ExitCodePolicy::torchrun;
  int code = 10;
  for (const std::string_view cause : exit_causes())
    codes.by_cause.emplace(cause, code++);
  const auto of = [&codes](std::string_view cause) { return codes.by_cause.find(cause)->second; };

  JobReport failed = failed_job({sample_failure(0, ExitStatus::exited(42))});
  EXPECT_EQ(exit_code_of(failed, codes), of("user"));
  failed.cause.kind = FailureClass::oom;
  EXPECT_EQ(exit_code_of(failed, codes), of("oom"));
  failed.reason = Reason::hang;
  EXPECT_EQ(exit_code_of(failed, codes), of("hang"));
  failed.reason = Reason::node_lost;
  EXPECT_EQ(exit_code_of(failed, codes), of("lost"));

  JobReport report = sample_job(JobEnd::stopped);
  report.stop_signal = SIGTERM;
  EXPECT_EQ(exit_code_of(report, codes), of("stopped"));
  report.end = JobEnd::round_failed;
  report.error.code = ExitCode::rendezvous;
  EXPECT_EQ(exit_code_of(report, codes), of("rendezvous"));
  report.lost_node = true;
  EXPECT_EQ(exit_code_of(report, codes), of("lost"));
  report.end = JobEnd::unkillable;
  EXPECT_EQ(exit_code_of(report, codes), of("stuck"));
}

TEST(ExitCodeOf, FallsBackToThePolicyWithoutACodeForTheCause) {
  ExitCodes codes;
  codes.by_cause = {{"rendezvous", 7}, {"user", 8}};
  JobReport report = sample_job(JobEnd::success);
  EXPECT_EQ(exit_code_of(report, codes), 0);
  report.end = JobEnd::round_failed;
  report.error.code = ExitCode::environment;
  EXPECT_EQ(exit_code_of(report, codes), 121);
  report.end = JobEnd::unkillable;
  EXPECT_EQ(exit_code_of(report, codes), 123);
  EXPECT_EQ(exit_code_of(sample_job(JobEnd::failed), codes), 120) << "no culprit, so no cause";
}

}  // namespace
}  // namespace muster
