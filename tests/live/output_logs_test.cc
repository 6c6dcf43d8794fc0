// Log folders with real processes: the files that are written, and what a full disk or a low limit
// does.
#include <algorithm>

#include <sys/resource.h>
#include <sys/stat.h>

#include "tests/live/output_harness.h"

namespace muster {

namespace {

namespace fs = std::filesystem;

class OutputLogs : public testing::Test {
 protected:
  OutputLogs() : options_(options_for(console_)) { options_.log.dir = folder_.path() + "/logs"; }

  // Ends the harness and returns what the console received.
  std::string console_text(OutputHarness& harness) {
    ConsoleReader reader(console_.read_end.get());
    harness.destroy();
    console_.write_end.reset();
    return reader.text();
  }

  static std::vector<std::string> files_below(const std::string& dir) {
    std::vector<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(dir)) {
      if (!entry.is_directory()) names.push_back(fs::relative(entry.path(), dir).string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  ConsolePipe console_;
  TempFolder folder_;
  OutputOptions options_;
};

TEST_F(OutputLogs, ARedirectedWorkerWritesItsFilesItself) {
  options_.log.redirects.all = Streams::both;
  OutputHarness harness(options_);
  const DrainReport report = harness.run_workers(
      {"echo out; echo err >&2; test -f /dev/fd/1 && echo regular", "printf 'no newline' >&2"});
  EXPECT_EQ(
      files_below(harness.attempt()),
      (std::vector<std::string>{"0/stderr.log", "0/stdout.log", "1/stderr.log", "1/stdout.log"}));
  EXPECT_EQ(file_content(harness.attempt() + "/0/stdout.log"), "out\nregular\n");
  EXPECT_EQ(err_tails(report), (std::vector<std::string>{"err\n", "no newline"}));
  EXPECT_EQ(console_text(harness), "");
}

TEST_F(OutputLogs, OpeningReturnsThePathsOfLogsAndErrorFiles) {
  options_.log.tee.by_rank = {{0, Streams::err}};
  OutputHarness harness(options_);
  harness.open(2, 3);
  const std::string attempt = harness.run.run_dir + "/attempt_3";
  EXPECT_EQ(harness.streams[0].out_log, "");
  EXPECT_EQ(harness.streams[0].err_log, attempt + "/0/stderr.log");
  EXPECT_EQ(harness.streams[0].error_file, attempt + "/0/error.json");
  EXPECT_EQ(harness.streams[1].err_log, "");
  EXPECT_EQ(harness.streams[1].error_file, attempt + "/1/error.json");
  EXPECT_TRUE(fs::is_directory(attempt + "/1"));
}

TEST_F(OutputLogs, ATeedStreamIsRawInItsFileAndPrefixedOnTheConsole) {
  options_.log.tee.all = Streams::out;
  options_.log.prefix_template = "<${role_name}.${rank}@${hostname}> ";
  options_.role = "trainer";
  OutputHarness harness(options_);
  harness.run_workers({"printf 'one\\r\\ntw'; printf 'o\\377\\nend'"});
  EXPECT_EQ(file_content(harness.attempt() + "/0/stdout.log"), "one\r\ntwo\xff\nend");
  EXPECT_EQ(console_text(harness),
            "<trainer.0@testhost> one\r\n<trainer.0@testhost> two\xff\n<trainer.0@testhost> end");
}

TEST_F(OutputLogs, MatchingLinesAreCopiedToOneFilePerAttempt) {
  options_.log.tee.all = Streams::both;
  options_.log.duplicate_stdout_filters = {"loss"};
  options_.log.duplicate_stderr_filters = {"never"};
  OutputHarness harness(options_);
  harness.run_workers({"echo loss 1; echo other; printf 'loss end'", "echo a loss; echo loss >&2"});
  auto lines = lines_of(file_content(harness.attempt() + "/filtered_stdout.log"));
  std::sort(lines.begin(), lines.end());
  EXPECT_EQ(lines, (std::vector<std::string>{"[default0]:loss 1", "[default0]:loss end",
                                             "[default1]:a loss"}));
  EXPECT_TRUE(fs::exists(harness.attempt() + "/filtered_stderr.log"));
  EXPECT_EQ(file_content(harness.attempt() + "/filtered_stderr.log"), "");
}

TEST_F(OutputLogs, AFilterWithoutTeeLeavesAnEmptyFile) {
  options_.log.duplicate_stdout_filters = {"loss"};
  OutputHarness harness(options_);
  harness.run_workers({"echo loss"});
  EXPECT_EQ(files_below(harness.attempt()), std::vector<std::string>{"filtered_stdout.log"});
  EXPECT_EQ(file_content(harness.attempt() + "/filtered_stdout.log"), "");
}

TEST_F(OutputLogs, AHiddenRankIsInItsFileOnly) {
  options_.log.tee.all = Streams::out;
  options_.log.local_ranks_filter = {1};
  options_.log.duplicate_stdout_filters = {"rank"};
  OutputHarness harness(options_);
  harness.run_workers({"echo rank 0; echo hidden >&2", "echo rank 1"});
  EXPECT_EQ(file_content(harness.attempt() + "/0/stdout.log"), "rank 0\n");
  EXPECT_EQ(file_content(harness.attempt() + "/1/stdout.log"), "rank 1\n");
  EXPECT_EQ(file_content(harness.attempt() + "/filtered_stdout.log"), "[default1]:rank 1\n");
  EXPECT_EQ(console_text(harness), "[default1]:rank 1\n");
}

TEST_F(OutputLogs, ReopeningAnAttemptAppendsToItsFiles) {
  options_.log.redirects.all = Streams::out;
  options_.log.tee.all = Streams::err;
  OutputHarness harness(options_);
  for (const char* round : {"1", "2"}) {
    harness.run_workers({std::string("echo out ") + round + "; echo err " + round + " >&2"});
  }
  EXPECT_EQ(file_content(harness.attempt() + "/0/stdout.log"), "out 1\nout 2\n");
  EXPECT_EQ(file_content(harness.attempt() + "/0/stderr.log"), "err 1\nerr 2\n");
}

TEST_F(OutputLogs, DevNullShowsEverythingRawAndWritesNothing) {
  options_.log.dir = "/dev/null";
  options_.log.tee.all = Streams::both;
  options_.log.redirects.all = Streams::both;
  OutputHarness harness(options_);
  EXPECT_EQ(harness.run, RunFolders{});
  harness.open(1);
  EXPECT_EQ(harness.streams[0].error_file, "");
  EXPECT_EQ(harness.streams[0].out_log, "");
  harness.spawn(0, "echo plain");
  harness.wait_all();
  harness.drain();
  harness.output().append("events.jsonl", "{}\n");
  harness.output().write_file("result.json", "{}\n");
  harness.finish();
  EXPECT_TRUE(fs::is_empty(harness.temp_dir()));
  EXPECT_EQ(console_text(harness), "plain\n");
}

TEST_F(OutputLogs, RecordsAreKeptInTheRunFolder) {
  OutputHarness harness(options_);
  harness.output().append("events.jsonl", "{\"n\":1}\n");
  harness.output().append("events.jsonl", "{\"n\":2}\n");
  harness.output().write_file("result.json", "{}\n");
  harness.output().write_file(folder_.path() + "/elsewhere.json", "{\"x\":1}\n");
  harness.finish();
  EXPECT_EQ(file_content(harness.run.run_dir + "/events.jsonl"), "{\"n\":1}\n{\"n\":2}\n");
  EXPECT_EQ(file_content(harness.run.run_dir + "/result.json"), "{}\n");
  EXPECT_EQ(file_content(folder_.path() + "/elsewhere.json"), "{\"x\":1}\n");
}

TEST_F(OutputLogs, ATemporaryRunFolderIsRemovedAtTheEnd) {
  options_.log.dir.reset();
  OutputHarness harness(options_);
  EXPECT_TRUE(harness.run.temporary);
  harness.run_workers({"true", "true"});
  harness.output().append("events.jsonl", "{}\n");
  harness.finish();
  EXPECT_TRUE(fs::is_empty(harness.temp_dir()));
}

TEST_F(OutputLogs, AWorkersErrorFileKeepsATemporaryRunFolder) {
  options_.log.dir.reset();
  OutputHarness harness(options_);
  harness.open(1);
  harness.spawn(0, "echo '{}' > " + harness.streams[0].error_file);
  harness.wait_all();
  harness.drain();
  harness.finish();
  EXPECT_EQ(files_below(harness.run.run_dir), std::vector<std::string>{"attempt_0/0/error.json"});
}

TEST_F(OutputLogs, TheLastLinesOfAFailedAttemptAreKept) {
  options_.log.dir.reset();
  OutputHarness harness(options_);
  harness.open(2);
  harness.spawn(0, "echo lost; yes | head -n 10000; echo error of 0 >&2; printf open >&2");
  harness.spawn(1, "echo of 1");
  harness.wait_all();
  const DrainReport report = harness.drain(true);
  ASSERT_EQ(report.workers.size(), 2U);
  EXPECT_EQ(report.workers[0].kept_out, harness.attempt() + "/0/stdout_tail.log");
  EXPECT_EQ(report.workers[0].kept_err, harness.attempt() + "/0/stderr_tail.log");
  EXPECT_EQ(report.workers[1].kept_out, harness.attempt() + "/1/stdout_tail.log");
  EXPECT_EQ(report.workers[1].kept_err, "");  // It printed nothing to stderr.
  EXPECT_EQ(report.workers[1].out_tail, "of 1\n");
  EXPECT_EQ(report.workers[0].out_tail.size(), size_t{16} << 10);
  std::string last;
  for (int line = 0; line < 10'000; ++line)
    last += "y\n";
  EXPECT_EQ(file_content(report.workers[0].kept_out), last);
  EXPECT_EQ(file_content(report.workers[0].kept_err), "error of 0\nopen");
  EXPECT_EQ(file_content(report.workers[1].kept_out), "of 1\n");
  harness.finish(false);
  EXPECT_EQ(files_below(harness.run.run_dir),
            (std::vector<std::string>{"attempt_0/0/stderr_tail.log", "attempt_0/0/stdout_tail.log",
                                      "attempt_0/1/stdout_tail.log"}));
}

TEST_F(OutputLogs, KeptLinesAreRemovedIfTheJobSucceeds) {
  options_.log.dir.reset();
  OutputHarness harness(options_);
  harness.open(1);
  harness.spawn(0, "echo failed >&2");
  harness.wait_all();
  const std::string kept = harness.drain(true).workers.at(0).kept_err;
  EXPECT_TRUE(fs::exists(kept));
  harness.finish(true);
  EXPECT_TRUE(fs::is_empty(harness.temp_dir()));
}

TEST_F(OutputLogs, AStreamWithALogFileIsNotKeptAgain) {
  options_.log.redirects.all = Streams::out;
  OutputHarness harness(options_);
  harness.open(1);
  harness.spawn(0, "echo out; echo err >&2");
  harness.wait_all();
  const DrainReport report = harness.drain(true);
  EXPECT_EQ(report.workers.at(0).kept_out, "");
  EXPECT_EQ(file_content(report.workers.at(0).kept_err), "err\n");
  harness.finish(false);
  EXPECT_EQ(files_below(harness.attempt()),
            (std::vector<std::string>{"0/stderr_tail.log", "0/stdout.log"}));
}

TEST_F(OutputLogs, TheLastWriteToARedirectedLogBeforeTheStopIsKnown) {
  options_.log.redirects.all = Streams::both;
  OutputHarness harness(options_);
  harness.open(1);
  const std::string up = folder_.path() + "/up";
  const std::string go = folder_.path() + "/go";
  ASSERT_EQ(::mkfifo(up.c_str(), 0600), 0);
  ASSERT_EQ(::mkfifo(go.c_str(), 0600), 0);
  const auto before = std::chrono::system_clock::now() - std::chrono::milliseconds(20);
  harness.spawn(0, "echo first >&2; echo >" + up + "; read x <" + go + "; echo then >&2");
  EXPECT_EQ(file_content(up), "\n");
  harness.output().mark_stop();
  std::promise<void> marked;
  harness.output().tails([&](const std::vector<WorkerTail>&) { marked.set_value(); });
  marked.get_future().get();
  const auto at_stop = std::chrono::system_clock::now() + std::chrono::milliseconds(20);
  std::ofstream(go) << "\n";
  harness.wait_all();
  const WorkerPrinted printed = harness.drain().workers.at(0);
  EXPECT_EQ(printed.err_total_before_stop, 6U);
  ASSERT_TRUE(printed.err_written);
  EXPECT_GE(*printed.err_written, before);  // File timestamps move in steps of 4 ms or more.
  EXPECT_LE(*printed.err_written, at_stop);
}

TEST_F(OutputLogs, OnlyTheNewestFiveAttemptsAreKept) {
  options_.log.dir.reset();
  OutputHarness harness(options_);
  for (int attempt = 0; attempt < 8; ++attempt) {
    harness.open(1, attempt);
    harness.spawn(0, "echo failed >&2");
    harness.wait_all();
    harness.drain(true);
  }
  harness.finish(false);
  std::vector<std::string> expected;
  for (int attempt = 3; attempt < 8; ++attempt)
    expected.push_back("attempt_" + std::to_string(attempt) + "/0/stderr_tail.log");
  EXPECT_EQ(files_below(harness.run.run_dir), expected);
}

TEST_F(OutputLogs, AFullLogDiskIsReportedOnceAndStopsNoWorker) {
  options_.log.tee.all = Streams::both;
  OutputHarness harness(options_);
  for (const char* worker : {"0", "1"}) {
    fs::create_directories(harness.attempt() + "/" + worker);
    fs::create_symlink("/dev/full", harness.attempt() + "/" + worker + "/stdout.log");
  }
  harness.open(2);
  harness.spawn(0, "echo 123456789; exit 0");
  harness.spawn(1, "echo 123456789; exit 0");
  EXPECT_EQ(harness.wait_all(), (std::vector<int>{0, 0}));
  const DrainReport report = harness.drain();
  std::vector<std::string> lines = lines_of(console_text(harness));
  std::sort(lines.begin(), lines.end());
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0], "[default0]:123456789");
  EXPECT_EQ(lines[1], "[default1]:123456789");
  EXPECT_EQ(lines[2],
            "muster: 20 bytes of output missing in 2 log files in " + harness.run.run_dir);
  EXPECT_TRUE(lines[3].starts_with("muster: cannot write " + harness.attempt()));
  EXPECT_NE(lines[3].find("/stdout.log: No space left on device; what the workers print there is "
                          "dropped, the workers continue"),
            std::string::npos);
}

TEST_F(OutputLogs, AFullConsoleIsReportedOnTheOther) {
  const UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  options_.console_out = full.get();
  OutputHarness harness(options_);
  harness.run_workers({"echo 12345; echo to stderr >&2"});
  harness.finish();
  const std::vector<std::string> lines = lines_of(console_text(harness));
  EXPECT_NE(std::find(lines.begin(), lines.end(), "to stderr"), lines.end());
  EXPECT_NE(
      std::find(lines.begin(), lines.end(),
                "muster: cannot write standard output: No space left on device; what the workers "
                "print there is dropped, the workers continue; free some space to resume"),
      lines.end());
  EXPECT_EQ(lines.back(), "muster: dropped 6 bytes of output to standard output");
}

TEST_F(OutputLogs, AFailedEventFileIsReportedOnce) {
  OutputHarness harness(options_);
  fs::create_symlink("/dev/full", harness.run.run_dir + "/events.jsonl");
  for (int i = 0; i < 3; i++)
    harness.output().append("events.jsonl", "{}\n");
  harness.finish();
  EXPECT_EQ(console_text(harness),
            "muster: cannot write " + harness.run.run_dir +
                "/events.jsonl: No space left on device; the job continues without it\n");
}

TEST_F(OutputLogs, AFifoInPlaceOfALogFailsTheNextStart) {
  for (const bool tee : {false, true}) {
    (tee ? options_.log.tee : options_.log.redirects).all = Streams::out;
    OutputHarness harness(options_);
    harness.run_workers(
        {"mkdir -p " + harness.attempt(1) + "/0; mkfifo " + harness.attempt(1) + "/0/stdout.log"});
    const auto opened = harness.try_open(1, 1);
    ASSERT_FALSE(opened.has_value());
    EXPECT_EQ(opened.error(),
              (Error{ExitCode::environment, "cannot open log file " + harness.attempt(1) +
                                                "/0/stdout.log: No such device or address; it is a "
                                                "FIFO that no process reads; remove it"}));
  }
}

TEST_F(OutputLogs, AFifoInPlaceOfARecordIsReportedOnce) {
  OutputHarness harness(options_);
  harness.run_workers({"cd " + harness.run.run_dir + "; mkfifo events.jsonl result.json.tmp"});
  for (int i = 0; i < 3; i++)
    harness.output().append("events.jsonl", "{}\n");
  harness.output().write_file("result.json", "{}");
  harness.finish();
  EXPECT_EQ(file_content(harness.run.run_dir + "/result.json"), "{}");
  EXPECT_EQ(console_text(harness),
            "muster: cannot open " + harness.run.run_dir +
                "/events.jsonl: No such device or address; the job continues without it\n");
}

TEST_F(OutputLogs, ARestartRecreatesRemovedFolders) {
  options_.log.redirects.all = Streams::out;
  OutputHarness harness(options_);
  harness.run_workers({"rm -r " + folder_.path() + "/logs"});
  harness.open(1, 1);
  harness.spawn(0, "echo again");
  harness.wait_all();
  harness.drain();
  EXPECT_EQ(file_content(harness.attempt(1) + "/0/stdout.log"), "again\n");
  EXPECT_EQ(fs::status(harness.run.run_dir).permissions(), fs::perms::owner_all);
}

TEST_F(OutputLogs, ALogFolderThatCannotBeRecreatedFailsTheStart) {
  options_.log.redirects.all = Streams::out;
  OutputHarness harness(options_);
  harness.run_workers({"rm -r " + folder_.path() + "/logs; touch " + folder_.path() + "/logs"});
  const auto opened = harness.try_open(1, 1);
  ASSERT_FALSE(opened.has_value());
  EXPECT_EQ(opened.error(), (Error{ExitCode::environment,
                                   "cannot create log folder " + folder_.path() +
                                       "/logs: Not a directory; a file is in the way; choose "
                                       "another --log-dir"}));
}

TEST_F(OutputLogs, ATemporaryFolderThatCannotBeRecreatedDoesNotStopARestart) {
  options_.log.dir.reset();
  options_.log.local_ranks_filter = {0};
  OutputHarness harness(options_);
  const std::string gone = harness.run.log_dir;
  harness.run_workers({"rm -r " + gone + "; touch " + gone, "true"});
  for (const int attempt : {1, 2}) {
    harness.open(2, attempt);
    EXPECT_EQ(harness.streams[0].error_file, "");
    harness.spawn(0, "echo on we go");
    harness.spawn(1, "echo hidden");
    EXPECT_EQ(harness.wait_all(), (std::vector<int>{0, 0}));
    harness.drain();
  }
  EXPECT_EQ(console_text(harness),
            "muster: cannot create log folder " + gone +
                ": File exists; a file is in the way; choose another --log-dir; the job continues "
                "without it\non we go\non we go\n");
}

TEST_F(OutputLogs, ALowDescriptorLimitFailsTheStart) {
  OutputHarness harness(options_);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = 64;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  const auto opened = harness.try_open(200);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_FALSE(opened.has_value());
  EXPECT_EQ(opened.error(),
            (Error{ExitCode::environment,
                   "cannot open the output pipes of 200 workers: the limit of 64 open files is too "
                   "low; raise it (ulimit -n)"}));
  EXPECT_TRUE(harness.try_open(2).has_value());
}

TEST_F(OutputLogs, AnAttemptFolderThatCannotBeCreatedFailsTheStart) {
  OutputHarness harness(options_);
  std::ofstream(harness.run.run_dir + "/attempt_0") << "in the way";
  const auto opened = harness.try_open(1);
  ASSERT_FALSE(opened.has_value());
  EXPECT_EQ(opened.error(), (Error{ExitCode::environment,
                                   "cannot create log folder " + harness.run.run_dir +
                                       "/attempt_0: File exists; a file is in the way; choose "
                                       "another --log-dir"}));
}

}  // namespace

}  // namespace muster
