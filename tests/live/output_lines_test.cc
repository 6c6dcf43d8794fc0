// Real processes print through real pipes: all lines reach the console whole, and nothing hangs.
#include <csignal>
#include <map>

#include <gmock/gmock.h>

#include "tests/live/output_harness.h"

namespace muster {

namespace {

constexpr int kWriters = 8;
constexpr int kLines = 40000;

std::string numbered_lines(int worker) {
  return "exec seq -f 'worker " + std::to_string(worker) +
         " line %08.0f of a text that is as long as a line of a log' 1 " + std::to_string(kLines);
}

std::vector<std::string> all_writers() {
  std::vector<std::string> scripts;
  for (int i = 0; i < kWriters; i++)
    scripts.push_back(numbered_lines(i));
  return scripts;
}

std::string expected_line(const std::string& prefix, int worker, int line) {
  char number[16];
  std::snprintf(number, sizeof number, "%08d", line);
  return prefix + "worker " + std::to_string(worker) + " line " + number +
         " of a text that is as long as a line of a log";
}

// Returns "" if the lines of every writer arrived whole, once and in order.
std::string complaint_about(const std::string& text, bool prefixed) {
  std::map<int, int> seen;
  for (const std::string& line : lines_of(text)) {
    const size_t at = line.find("worker ");
    if (at == std::string::npos) return "not a line of any writer: " + line;
    const int worker = std::atoi(line.c_str() + at + 7);
    const std::string prefix = prefixed ? "[default" + std::to_string(worker) + "]:" : "";
    if (line != expected_line(prefix, worker, ++seen[worker])) return "unexpected: " + line;
  }
  for (int worker = 0; worker < kWriters; worker++) {
    if (seen[worker] != kLines) return "lines missing of worker " + std::to_string(worker);
  }
  return "";
}

// Returns what the console shows of workers that run these scripts to their end.
std::string shown_of(const std::vector<std::string>& scripts, const LogSpec& log = {}) {
  ConsolePipe console;
  ConsoleReader reader(console.read_end.get());
  OutputOptions options = options_for(console);
  options.log = log;
  {
    OutputHarness harness(options);
    harness.run_workers(scripts);
  }
  console.write_end.reset();
  return reader.text();
}

TEST(OutputLines, EightWritersLoseAndTearNothingOnAPipe) {
  EXPECT_EQ(complaint_about(shown_of(all_writers()), false), "");
}

TEST(OutputLines, EightWritersLoseAndTearNothingInAFile) {
  const TempFolder folder;
  const UniqueFd file(
      ::open((folder.path() + "/out").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  OutputOptions options;
  options.console_out = file.get();
  options.console_err = file.get();
  {
    OutputHarness harness(options);
    harness.run_workers(all_writers());
  }
  EXPECT_EQ(complaint_about(file_content(folder.path() + "/out"), false), "");
}

TEST(OutputLines, EightTeedWritersAreWholeOnTheConsoleAndInTheirFiles) {
  ConsolePipe console;
  ConsoleReader reader(console.read_end.get());
  const TempFolder folder;
  OutputOptions options = options_for(console);
  options.log.dir = folder.path();
  options.log.tee.all = Streams::both;
  {
    OutputHarness harness(options);
    harness.run_workers(all_writers());
    for (int worker = 0; worker < kWriters; worker++) {
      const auto lines =
          lines_of(file_content(harness.attempt() + "/" + std::to_string(worker) + "/stdout.log"));
      ASSERT_EQ(lines.size(), static_cast<size_t>(kLines));
      EXPECT_EQ(lines.back(), expected_line("", worker, kLines));
    }
  }
  console.write_end.reset();
  EXPECT_EQ(complaint_about(reader.text(), true), "");
}

TEST(OutputLines, BothStreamsOfAWorkerShareAConsoleInWholeLines) {
  const auto on_both = [](int out, int err) {
    return "(" + numbered_lines(out) + ") & (" + numbered_lines(err) + ") >&2; wait";
  };
  const std::string shown = shown_of({on_both(0, 1), on_both(2, 3), on_both(4, 5), on_both(6, 7)});
  EXPECT_EQ(complaint_about(shown, false), "");
}

TEST(OutputLines, SeparateConsolesKeepTheStreamsApart) {
  ConsolePipe out;
  ConsolePipe err;
  OutputOptions options = options_for(out);
  options.console_err = err.write_end.get();
  {
    OutputHarness harness(options);
    harness.run_workers({"echo to out; echo to err >&2"});
    harness.output().say("muster: hello");
    harness.finish();
  }
  out.write_end.reset();
  err.write_end.reset();
  EXPECT_EQ(ConsoleReader(out.read_end.get()).text(), "to out\n");
  EXPECT_EQ(ConsoleReader(err.read_end.get()).text(), "to err\nmuster: hello\n");
}

TEST(OutputLines, AVeryLongLineIsWholeAmongOthers) {
  const std::string shown =
      shown_of({"head -c 5000000 /dev/zero | tr '\\0' x; echo", "seq -f 'short %.0f' 1 20000"});
  size_t shorts = 0;
  for (const std::string& line : lines_of(shown)) {
    if (line.starts_with("x")) {
      EXPECT_TRUE(line == std::string(5000000, 'x')) << line.size();
    } else {
      EXPECT_EQ(line, "short " + std::to_string(++shorts));
    }
  }
  EXPECT_EQ(shorts, 20000u);
}

TEST(OutputLines, BytesPassUnchanged) {
  EXPECT_EQ(shown_of({"printf 'a\\000b\\377\\200\\r\\n\\033[31mred\\033[0m\\ttail'"}),
            std::string("a\0b\xff\x80\r\n\x1b[31mred\x1b[0m\ttail", 24));
}

TEST(OutputLines, APromptIsShownWhileItsWorkerWaits) {
  ConsolePipe console;
  const Gate gate;
  OutputHarness harness(options_for(console));
  harness.open(1);
  harness.spawn(0, "printf 'Name? '; read answer < " + gate.path() + "; echo $answer");
  EXPECT_EQ(read_until(console.read_end.get(), "? "), "Name? ");
  gate.open("Bob\n");
  EXPECT_EQ(read_until(console.read_end.get(), "\n"), "Bob\n");
  harness.wait_all();
  harness.drain();
}

TEST(OutputLines, AWorkerThatClosesItsOutputHangsNothing) {
  EXPECT_EQ(shown_of({"exec >&- 2>&-; exit 0", "echo here", "exit 0"}), "here\n");
}

TEST(OutputLines, AChildThatHoldsThePipeDoesNotDelayTheDrain) {
  ConsolePipe console;
  OutputHarness harness(options_for(console));
  harness.open(1);
  const Gate gate;
  harness.spawn(0, "echo parent; read x < " + gate.path() + " & exit 0");
  harness.wait_all();
  harness.drain();  // Returns although the child waits at the gate with our pipe open.
  EXPECT_EQ(read_until(console.read_end.get(), "\n"), "parent\n");
  gate.open();
}

TEST(OutputLines, AWriterThatNeverStopsDoesNotDelayTheDrain) {
  ConsolePipe console;
  ConsoleReader reader(console.read_end.get());
  {
    OutputHarness harness(options_for(console));
    harness.open(1);
    harness.spawn(0, "exec yes");
    harness.drain();
    EXPECT_EQ(WTERMSIG(harness.wait_all().at(0)), SIGPIPE);
  }
  console.write_end.reset();
  EXPECT_TRUE(reader.text().find_first_not_of("y\n") == std::string::npos);
}

TEST(OutputLines, TheNextAttemptUsesTheSameConsole) {
  ConsolePipe console;
  {
    OutputHarness harness(options_for(console));
    harness.run_workers({"printf 'no end'"});
    harness.output().say("muster: restarting\nmuster: now");
    harness.open(1, 1);
    harness.spawn(0, "echo again");
    harness.wait_all();
    harness.drain();
  }
  console.write_end.reset();
  EXPECT_EQ(ConsoleReader(console.read_end.get()).text(),
            "no end\nmuster: restarting\nmuster: now\nagain\n");
}

TEST(OutputLines, ALogPrefixStandsBeforeEachLine) {
  LogSpec log;
  log.prefix = "{host}:{rank}";
  EXPECT_EQ(shown_of({"printf 'one\\ntwo'"}, log), "testhost:0 one\ntesthost:0 two");
  log.prefix = "{time} {rank}";
  EXPECT_THAT(shown_of({"echo one"}, log),
              testing::MatchesRegex("[0-9]+:[0-9]+:[0-9]+\\.[0-9]+ 0 one\n"));
}

TEST(OutputLines, HiddenRanksAreStillReadAndRemembered) {
  ConsolePipe console;
  OutputOptions options = options_for(console);
  options.log.ranks = {{1, 1}};
  DrainReport report;
  {
    OutputHarness harness(options);
    report = harness.run_workers({"seq 1 100000; echo zero >&2", "echo one >&2"});
  }
  console.write_end.reset();
  EXPECT_EQ(ConsoleReader(console.read_end.get()).text(), "one\n");
  EXPECT_EQ(err_tails(report), (std::vector<std::string>{"zero\n", "one\n"}));
}

// As in `muster | head`.
TEST(OutputLines, AReaderThatLeavesReachesTheWorkersAsABrokenPipe) {
  ConsolePipe console;
  OutputHarness harness(options_for(console));
  harness.open(2);
  harness.spawn(0, "exec yes");
  harness.spawn(1, "exec yes");
  read_until(console.read_end.get(), "y\n");
  console.read_end.reset();
  for (const int status : harness.wait_all())
    EXPECT_EQ(WTERMSIG(status), SIGPIPE);
  EXPECT_TRUE(harness.drain().workers.at(0).lost_console);
}

// Ctrl-C at muster | tee
TEST(OutputLines, AReaderThatLeavesOnceAStopHasBegunIsNotLost) {
  ConsolePipe console;
  OutputHarness harness(options_for(console));
  harness.open(1);
  const Gate gate;
  harness.spawn(0, "echo y; read x < " + gate.path() + "; seq 1 100000");
  read_until(console.read_end.get(), "y\n");
  harness.output().read_to_the_end();
  console.read_end.reset();
  gate.open();
  EXPECT_EQ(harness.wait_all(), std::vector<int>{0});
  EXPECT_FALSE(harness.drain().workers.at(0).lost_console);
}

TEST(OutputLines, AReaderThatLeavesDoesNotStopALog) {
  ConsolePipe console;
  const TempFolder folder;
  OutputOptions options = options_for(console);
  options.log.dir = folder.path();
  options.log.tee.all = Streams::out;
  OutputHarness harness(options);
  console.read_end.reset();
  harness.open(1);
  harness.spawn(0, "seq 1 200000");
  EXPECT_EQ(harness.wait_all(), std::vector<int>{0});
  harness.drain();
  EXPECT_EQ(lines_of(file_content(harness.attempt() + "/0/stdout.log")).size(), 200000u);
}

}  // namespace

}  // namespace muster
