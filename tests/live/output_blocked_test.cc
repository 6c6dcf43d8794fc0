// The console or the log disk is stuck: no call of the control loop waits for it, memory stays
// bounded, and everything held back arrives once it moves again.
#include <atomic>
#include <future>

#include <sys/stat.h>

#include "tests/live/output_harness.h"
#include "tests/wait_for.h"

namespace muster {

namespace {

constexpr auto kMegabyteLine = size_t{1} << 20;

// Fills a pipe that has no active reader, so that the next write to it blocks.
void fill(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  ::fcntl(fd, F_SETFL, flags | O_NONBLOCK);
  const std::string block(4096, '.');
  while (::write(fd, block.data(), block.size()) > 0) {
  }
  ::fcntl(fd, F_SETFL, flags);
}

// Makes every call of the control loop. Returning at all is the promise under test: the thread that
// would serve the calls is stuck.
std::future<void> make_every_call(Output& output) {
  auto finished = std::make_shared<std::promise<void>>();
  for (int i = 0; i < 5000; i++)
    output.say("muster: line " + std::to_string(i));
  output.append("events.jsonl", "{}\n");
  output.write_file("result.json", "{}");
  output.resize();
  output.drain(false, [](const DrainReport&) {});
  output.finish([finished] { finished->set_value(); });
  return finished->get_future();
}

bool is_ready(const std::future<void>& future) {
  return future.wait_for(std::chrono::milliseconds(100)) == std::future_status::ready;
}

// The state letter (proc(5)) of a process or thread named `name`; empty if it has another name.
std::string state_of(int id, const std::string& name) {
  const std::string stat = file_content("/proc/" + std::to_string(id) + "/stat");
  const size_t at = stat.find("(" + name + ") ");
  return at == std::string::npos ? "" : stat.substr(at + name.size() + 3, 1);
}

// Returns 0 if there is no such thread.
int thread_id(const std::string& name) {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    const std::string comm = file_content(task.path().string() + "/comm");
    if (comm == name + "\n") return std::stoi(task.path().filename().string());
  }
  return 0;
}

// Returns the line with the number of times that a thread has gone to sleep.
std::string sleeps_of(int id) {
  for (const std::string& line :
       lines_of(file_content("/proc/" + std::to_string(id) + "/status"))) {
    if (line.starts_with("voluntary_ctxt_switches")) return line;
  }
  return "no thread";
}

TEST(OutputBlocked, AStuckConsoleHoldsNoCallerAndLosesNothing) {
  ConsolePipe console;
  OutputHarness harness(options_for(console));
  harness.open(1);
  fill(console.write_end.get());
  harness.spawn(0, "echo from the worker");
  harness.wait_all();
  harness.output().say("muster: first");
  const std::future<void> finished = make_every_call(harness.output());
  EXPECT_FALSE(is_ready(finished));
  ConsoleReader reader(console.read_end.get());
  finished.wait();
  harness.destroy();
  console.write_end.reset();
  const std::string text = reader.text();
  EXPECT_NE(text.find("from the worker\n"), std::string::npos);
  EXPECT_NE(text.find("muster: first\n"), std::string::npos);
  EXPECT_TRUE(text.ends_with("muster: line 4999\n"));
}

TEST(OutputBlocked, AWorkerIsHeldBackByAStuckConsole) {
  ConsolePipe console;
  OutputHarness harness(options_for(console));
  harness.open(1);
  fill(console.write_end.get());
  const pid_t pid = harness.spawn(0, "exec seq 1 2000000");
  // seq sleeps only when its output is blocked; 14 MB exceed what may be held back.
  std::string state;
  while (state != "S" && state != "Z")
    state = state_of(pid, "seq");
  EXPECT_EQ(state, "S");
  std::thread reader([&] {
    std::vector<char> buffer(65536);
    while (::read(console.read_end.get(), buffer.data(), buffer.size()) > 0) {
    }
  });
  EXPECT_EQ(harness.wait_all(), std::vector<int>{0});
  harness.drain();
  harness.destroy();
  console.write_end.reset();
  reader.join();
}

struct TwoConsoles {
  OutputOptions options() const {
    OutputOptions options;
    options.console_out = out.write_end.get();
    options.console_err = err.write_end.get();
    return options;
  }
  ConsolePipe out;
  ConsolePipe err;
};

TEST(OutputBlocked, AStuckStdoutStopsNeitherStderrNorTheEndOfAnAttempt) {
  TwoConsoles console;
  OutputHarness harness(console.options());
  fill(console.out.write_end.get());
  for (int attempt = 0; attempt < 2; attempt++) {
    harness.open(1, attempt);
    harness.spawn(0, "seq 1 20000; echo err >&2");
    EXPECT_EQ(read_until(console.err.read_end.get(), "err\n"), "err\n");
    harness.wait_all();
    EXPECT_EQ(err_tails(harness.drain()), std::vector<std::string>{"err\n"});
    harness.output().say("muster: next");
    EXPECT_EQ(read_until(console.err.read_end.get(), "next\n"), "muster: next\n");
  }
  std::promise<void> promise;
  const std::future<void> finished = promise.get_future();
  harness.output().finish([&] { promise.set_value(); });
  EXPECT_FALSE(is_ready(finished));
  ConsoleReader reader(console.out.read_end.get());
  finished.wait();
  harness.destroy();
  console.out.write_end.reset();
  std::string expected;
  for (int i = 0; i < 40000; i++)
    expected += std::to_string(i % 20000 + 1) + "\n";
  const std::string& text = reader.text();
  EXPECT_TRUE(text.substr(text.find("1\n")) == expected);
}

TEST(OutputBlocked, AStuckStderrDoesNotStopStdout) {
  TwoConsoles console;
  OutputHarness harness(console.options());
  fill(console.err.write_end.get());
  harness.output().say("muster: stuck");
  for (int i = 0; i < 5; i++)
    harness.output().say(std::string(kMegabyteLine / 2, 'x'));
  EXPECT_EQ(harness.try_open(1).has_value(), true);
  harness.spawn(0, "echo err >&2; echo out");
  EXPECT_EQ(read_until(console.out.read_end.get(), "out\n"), "out\n");
  harness.wait_all();
  EXPECT_EQ(err_tails(harness.drain()), std::vector<std::string>{"err\n"});
  ConsoleReader reader(console.err.read_end.get());
  harness.finish();
  harness.destroy();
  console.err.write_end.reset();
  EXPECT_NE(reader.text().find("muster: stuck\n"), std::string::npos);
}

TEST(OutputBlocked, AStuckStdoutHoldsBackOnlyTheWorkerThatPrintsToIt) {
  TwoConsoles console;
  OutputHarness harness(console.options());
  harness.open(2);
  fill(console.out.write_end.get());
  const pid_t pid = harness.spawn(0, "exec seq 1 2000000");
  std::string state;
  while (state != "S" && state != "Z")
    state = state_of(pid, "seq");
  EXPECT_EQ(state, "S");
  harness.spawn(1, "seq 1 100000 >&2; echo end >&2");
  EXPECT_TRUE(read_until(console.err.read_end.get(), "end\n").ends_with("\n100000\nend\n"));
  EXPECT_NE(state_of(pid, "seq"), "Z");
  ConsoleReader reader(console.out.read_end.get());
  EXPECT_EQ(harness.wait_all(), (std::vector<int>{0, 0}));
  harness.drain();
  harness.destroy();
  console.out.write_end.reset();
  const std::string& text = reader.text();
  std::vector<std::string> lines = lines_of(text.substr(text.find("1\n")));
  ASSERT_EQ(lines.size(), 2000000u);
  for (size_t i = 0; i < lines.size(); i++)
    ASSERT_EQ(lines[i], std::to_string(i + 1));
}

TEST(OutputBlocked, OwnMessagesAreBoundedAndTheLossIsReported) {
  ConsolePipe console;
  OutputHarness harness(options_for(console));
  fill(console.write_end.get());
  harness.output().say("muster: stuck");
  for (int i = 0; i < 3; i++)
    harness.output().say(std::string(kMegabyteLine - 100, 'x'));
  std::promise<void> taken;
  harness.output().perform([&] { taken.set_value(); });
  taken.get_future().wait();
  ConsoleReader reader(console.read_end.get());
  harness.finish();
  harness.destroy();
  console.write_end.reset();
  const std::string& text = reader.text();
  EXPECT_LT(text.size(), 3 * kMegabyteLine);
  EXPECT_NE(text.find(" of its own while the output was blocked\n"), std::string::npos);
}

// A FIFO that is not read stands for a log file on a file system that hangs.
TEST(OutputBlocked, AFrozenLogFileHoldsNoCaller) {
  ConsolePipe console;
  const TempFolder folder;
  OutputOptions options = options_for(console);
  options.log.dir = folder.path();
  options.log.tee.all = Streams::out;
  OutputHarness harness(options);
  std::filesystem::create_directories(harness.attempt() + "/0");
  const std::string log = harness.attempt() + "/0/stdout.log";
  ASSERT_EQ(::mkfifo(log.c_str(), 0600), 0);
  const UniqueFd frozen(::open(log.c_str(), O_RDWR | O_CLOEXEC));
  fill(frozen.get());
  harness.open(1);
  harness.spawn(0, "echo hello");
  harness.wait_all();
  const std::future<void> finished = make_every_call(harness.output());
  EXPECT_FALSE(is_ready(finished));
  std::atomic<bool> stop = false;
  std::thread thaw([&] {
    std::vector<char> buffer(65536);
    ::fcntl(frozen.get(), F_SETFL, O_RDWR | O_NONBLOCK);
    while (!stop) {
      if (::read(frozen.get(), buffer.data(), buffer.size()) < 0) std::this_thread::yield();
    }
  });
  ConsoleReader reader(console.read_end.get());
  finished.wait();
  stop = true;
  thaw.join();
  harness.destroy();
  console.write_end.reset();
  EXPECT_NE(reader.text().find("[default0]:hello\n"), std::string::npos);
}

// The abandoned thread still uses the console, so these tests leave it open.
TEST(OutputBlocked, AnAbandonedOutputEndsThoughTheConsoleIsStuck) {
  ConsolePipe console;
  OutputHarness harness(options_for(console));
  fill(console.write_end.get());
  harness.output().say("muster: stuck");
  harness.output().abandon();
  const auto began = std::chrono::steady_clock::now();
  harness.destroy();  // Waits 0.2 s at most, and 2 s for an output that is not abandoned.
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::milliseconds(1900));
  EXPECT_TRUE(read_until(console.read_end.get(), "stuck\n").ends_with(".muster: stuck\n"));
  console.write_end.release();
}

TEST(OutputBlocked, TheEndDoesNotWaitForAStuckConsole) {
  ConsolePipe console;
  OutputHarness harness(options_for(console));
  fill(console.write_end.get());
  harness.output().say("muster: stuck");
  harness.destroy();
  EXPECT_TRUE(read_until(console.read_end.get(), "stuck\n").ends_with(".muster: stuck\n"));
  console.write_end.release();
}

TEST(OutputBlocked, AnIdleOutputDoesNotWakeUp) {
  ConsolePipe console;
  const Gate gates[2];
  OutputHarness harness(options_for(console));
  harness.open(2);
  harness.spawn(0, "printf 'waiting '; read x < " + gates[0].path());
  harness.spawn(1, "read x < " + gates[1].path());
  EXPECT_EQ(read_until(console.read_end.get(), " "), "waiting ");
  const std::vector<std::string> names{"muster-output", "muster-console"};
  std::vector<std::string> before;
  for (const std::string& name : names) {
    // A thread that an earlier test abandoned may be about to end.
    test::wait_for([&] { return state_of(thread_id(name), name) == "S"; }, name + " sleeps");
    before.push_back(sleeps_of(thread_id(name)));
  }
  test::pause_for(std::chrono::milliseconds(300), "nothing wakes them");
  for (size_t i = 0; i < names.size(); i++)
    EXPECT_EQ(sleeps_of(thread_id(names[i])), before[i]);
  for (const Gate& gate : gates)
    gate.open();
  harness.wait_all();
  harness.drain();
}

}  // namespace

}  // namespace muster
