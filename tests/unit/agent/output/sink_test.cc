#include "agent/output/sink.h"

#include <condition_variable>
#include <csignal>
#include <functional>
#include <mutex>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "agent/output/console.h"

namespace muster {

namespace {

struct TestPipe {
  explicit TestPipe(int flags = 0) {
    int fds[2];
    if (::pipe2(fds, O_CLOEXEC | flags) != 0) std::abort();
    read_end.reset(fds[0]);
    write_end.reset(fds[1]);
  }
  UniqueFd read_end;
  UniqueFd write_end;
};

// Reads until end of file.
std::string read_all(int fd) {
  std::string all;
  char buffer[65536];
  for (ssize_t n = 0; (n = ::read(fd, buffer, sizeof buffer)) > 0;) {
    all.append(buffer, static_cast<size_t>(n));
  }
  return all;
}

// The output thread runs with SIGPIPE blocked; so do these tests.
class SinkTest : public testing::Test {
 protected:
  SinkTest() { ::signal(SIGPIPE, SIG_IGN); }
  ~SinkTest() override { ::signal(SIGPIPE, SIG_DFL); }
};

TEST_F(SinkTest, WritesManyPiecesInOrder) {
  TestPipe pipe;
  std::vector<std::string_view> pieces;
  std::string expected;
  for (int i = 0; i < 1500; i++) {
    pieces.push_back(i % 3 == 0 ? "abc\n" : i % 3 == 1 ? "" : "d");
    expected += pieces.back();
  }
  Sink sink(std::move(pipe.write_end), "test");
  EXPECT_EQ(sink.write(pieces), std::nullopt);
  sink = Sink(-1, "closed");
  EXPECT_EQ(read_all(pipe.read_end.get()), expected);
}

TEST_F(SinkTest, WaitsForRoomInANonBlockingDescriptor) {
  TestPipe pipe;
  ::fcntl(pipe.write_end.get(), F_SETFL, O_NONBLOCK);
  std::string received;
  std::thread reader([&] { received = read_all(pipe.read_end.get()); });
  const std::string large(size_t{4} << 20, 'x');
  {
    Sink sink(std::move(pipe.write_end), "test");
    EXPECT_EQ(sink.write(large), std::nullopt);
    EXPECT_EQ(sink.dropped(), 0u);
  }
  reader.join();
  EXPECT_EQ(received, large);
}

TEST_F(SinkTest, ReportsAFullDiskOnceAndCountsDroppedBytes) {
  Sink sink(UniqueFd(::open("/dev/full", O_WRONLY | O_CLOEXEC)), "/logs/stdout.log");
  EXPECT_EQ(sink.write("12345\n"),
            "muster: cannot write /logs/stdout.log: No space left on device; what the workers "
            "print there is dropped, the workers continue; free some space to resume");
  EXPECT_EQ(sink.write("more\n"), std::nullopt);
  EXPECT_EQ(sink.dropped(), 11u);
  EXPECT_EQ(sink.dropped_line(), "muster: dropped 11 bytes of output to /logs/stdout.log");
}

TEST_F(SinkTest, ReportsNoErrorIfItsReaderIsGone) {
  TestPipe pipe;
  pipe.read_end.reset();
  Sink sink(std::move(pipe.write_end), "test");
  EXPECT_EQ(sink.write("x\n"), std::nullopt);
  EXPECT_TRUE(sink.reader_gone());
  EXPECT_EQ(sink.dropped_line(), std::nullopt);
}

// Writes three lines, of which the second does not fit, and returns the content of the file. A file
// size limit cuts a write short, as a full disk does.
std::string written_to_full_disk(const std::string& content, std::optional<std::string>& message) {
  char name[] = "/tmp/sink_test_XXXXXX";
  const int fd = ::mkstemp(name);
  if (fd < 0) std::abort();
  ::unlink(name);
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 8;
  ::setrlimit(RLIMIT_FSIZE, &small);
  Sink sink(UniqueFd(fd), "log", content);
  message = sink.write("one\ntwo three\n");
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, SIG_DFL);
  EXPECT_EQ(sink.dropped(), 6u);
  EXPECT_EQ(sink.write("four\n"), std::nullopt);
  char all[64];
  const ssize_t n = ::pread(fd, all, sizeof all, 0);
  return {all, static_cast<size_t>(n)};
}

TEST_F(SinkTest, BeginsANewLineWhenThereIsRoomAgain) {
  std::optional<std::string> message;
  EXPECT_EQ(written_to_full_disk("", message), "one\ntwo \nfour\n");
  EXPECT_EQ(message,
            "muster: cannot write log: File too large; what the workers print there is dropped, "
            "the workers continue");
}

TEST_F(SinkTest, RemovesATornLineFromAFileOfWholeLines) {
  std::optional<std::string> message;
  EXPECT_EQ(written_to_full_disk("what the trace shows", message), "one\nfour\n");
  EXPECT_EQ(message,
            "muster: cannot write log: File too large; what the trace shows is dropped, the "
            "workers continue");
}

constexpr Instant kSinkStart{std::chrono::seconds(100)};

// Counts the wake-ups by the writer's thread.
class Wakes {
 public:
  std::function<void()> function() {
    return [this] {
      const std::lock_guard lock(mutex_);
      count_++;
      changed_.notify_all();
    };
  }
  void wait_for_one() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return count_ > 0; });
    count_--;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
};

TEST_F(SinkTest, AFullConsoleIsWrittenInTheBackgroundInOrder) {
  TestPipe pipe;
  std::string expected;
  std::thread reader;
  std::string received;
  {
    Console console(pipe.write_end.get(), "test", [] {});
    const int stream = console.open();
    for (int i = 0; i < 20; i++) {
      const std::string line(size_t{100} << 10, static_cast<char>('a' + i));
      console.feed(stream, line + "\n", kSinkStart);  // Returns although nothing is read.
      expected += line + "\n";
    }
    reader = std::thread([&] { received = read_all(pipe.read_end.get()); });
    console.wait_written();
    console.finish();
    EXPECT_EQ(::fcntl(pipe.write_end.get(), F_GETFL) & O_NONBLOCK, 0);
  }
  pipe.write_end.reset();
  reader.join();
  EXPECT_TRUE(received == expected);
}

// The owner of the console is not read while there is no room. It must not count as quiet, or
// another stream would break into its line.
TEST_F(SinkTest, TheClockStopsWhileAStreamIsNotReadForLackOfRoom) {
  TestPipe pipe;
  Wakes wakes;
  Console console(pipe.write_end.get(), "test", wakes.function());
  const int owner = console.open();
  const int other = console.open();
  console.feed(owner, "prompt ", kSinkStart);
  console.tick(kSinkStart + LineMux::kPartialQuiet);
  ASSERT_EQ(console.owner(), owner);
  console.feed(other, "whole line\n", kSinkStart);
  EXPECT_NE(console.next_deadline(), kNever);
  while (console.wants(owner))
    console.feed(owner, std::string(size_t{64} << 10, 'x'), kSinkStart);
  EXPECT_EQ(console.next_deadline(), kNever);
  std::thread reader([&] { read_all(pipe.read_end.get()); });
  wakes.wait_for_one();
  EXPECT_EQ(console.next_deadline(), kNever);
  console.release_clock();
  EXPECT_TRUE(console.wants(owner));
  EXPECT_NE(console.next_deadline(), kNever);
  console.finish();
  pipe.write_end.reset();
  reader.join();
}

TEST_F(SinkTest, TheUserOfAConsoleIsWokenWhenItsReaderIsGone) {
  TestPipe pipe;
  pipe.read_end.reset();
  Wakes wakes;
  Console console(pipe.write_end.get(), "test", wakes.function());
  const int stream = console.open();
  EXPECT_EQ(console.feed(stream, "x\n", kSinkStart), std::nullopt);
  wakes.wait_for_one();
  EXPECT_TRUE(console.gone());
  EXPECT_TRUE(console.wants(stream));
  EXPECT_EQ(console.news(), std::nullopt);
  console.finish();
}

TEST_F(SinkTest, AFailureInTheBackgroundIsReportedOnce) {
  const UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  Wakes wakes;
  Console console(full.get(), "standard output", wakes.function());
  const int stream = console.open();
  EXPECT_EQ(console.feed(stream, "12345\n", kSinkStart), std::nullopt);
  wakes.wait_for_one();
  EXPECT_EQ(console.news(),
            "muster: cannot write standard output: No space left on device; what the workers print "
            "there is dropped, the workers continue; free some space to resume");
  EXPECT_EQ(console.news(), std::nullopt);
  EXPECT_EQ(console.dropped_line(), "muster: dropped 6 bytes of output to standard output");
  console.finish();
}

TEST_F(SinkTest, SameFileComparesFilesAndNotDescriptorNumbers) {
  TestPipe one;
  TestPipe two;
  const UniqueFd copy(::fcntl(one.write_end.get(), F_DUPFD_CLOEXEC, 0));
  EXPECT_TRUE(same_file(one.write_end.get(), copy.get()));
  EXPECT_FALSE(same_file(one.write_end.get(), two.write_end.get()));
  EXPECT_FALSE(same_file(one.write_end.get(), -1));
}

}  // namespace

}  // namespace muster
