// Drives an Output from a test as the agent does: real processes, real pipes, and every callback
// awaited. The console is a pipe, a file or a terminal that the test creates.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "agent/output/output.h"

namespace muster {

inline std::vector<std::string> err_tails(const DrainReport& report) {
  std::vector<std::string> tails;
  for (const WorkerPrinted& worker : report.workers)
    tails.push_back(worker.err_tail);
  return tails;
}

struct ConsolePipe {
  ConsolePipe() {
    int fds[2];
    if (::pipe2(fds, O_CLOEXEC) != 0) std::abort();
    read_end.reset(fds[0]);
    write_end.reset(fds[1]);
  }
  UniqueFd read_end;
  UniqueFd write_end;
};

// Reads from a descriptor until end of file, on its own thread.
class ConsoleReader {
 public:
  explicit ConsoleReader(int fd) : thread_([this, fd] { read_on(fd); }) {}
  ~ConsoleReader() {
    if (thread_.joinable()) thread_.join();
  }
  ConsoleReader(const ConsoleReader&) = delete;
  ConsoleReader& operator=(const ConsoleReader&) = delete;

  const std::string& text() {
    thread_.join();
    return text_;
  }

 private:
  void read_on(int fd) {
    std::vector<char> buffer(size_t{256} << 10);
    for (ssize_t n = 0; (n = ::read(fd, buffer.data(), buffer.size())) > 0;) {
      text_.append(buffer.data(), static_cast<size_t>(n));
    }
  }
  std::string text_;
  std::thread thread_;
};

// Reads until `text` has arrived, and returns everything read.
inline std::string read_until(int fd, const std::string& text) {
  std::string all;
  char buffer[4096];
  while (all.find(text) == std::string::npos) {
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n <= 0) return all + "<end>";
    all.append(buffer, static_cast<size_t>(n));
  }
  return all;
}

class TempFolder {
 public:
  TempFolder() {
    std::string name = testing::TempDir() + "output_test_XXXXXX";
    path_ = ::mkdtemp(name.data());
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// A FIFO at which a worker waits: `read x < PATH`.
class Gate {
 public:
  Gate() { EXPECT_EQ(::mkfifo(path_.c_str(), 0600), 0); }
  const std::string& path() const { return path_; }
  void open(const std::string& line = "\n") const { std::ofstream(path_) << line; }

 private:
  TempFolder folder_;
  std::string path_ = folder_.path() + "/gate";
};

inline std::string file_content(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);)
    lines.push_back(line);
  return lines;
}

class OutputHarness {
 public:
  explicit OutputHarness(OutputOptions options) {
    options.temp_dir = temp_.path();
    options.hostname = "testhost";
    output_ = Output::start(std::move(options)).value();
    std::promise<Result<RunFolders>> opened;
    output_->open_run([&](Result<RunFolders> made) { opened.set_value(std::move(made)); });
    run = opened.get_future().get().value();
  }
  ~OutputHarness() {
    streams.clear();
    wait_all();
  }

  Output& output() { return *output_; }
  void destroy() { output_.reset(); }

  Result<void> try_open(int workers, int restart_count = 0) {
    AttemptPlan plan;
    plan.restart_count = restart_count;
    for (int rank = 0; rank < workers; rank++)
      plan.ranks.push_back(rank);
    std::promise<Result<std::vector<WorkerStreams>>> opened;
    output_->open_attempt(std::move(plan), [&](Result<std::vector<WorkerStreams>> result) {
      opened.set_value(std::move(result));
    });
    auto result = opened.get_future().get();
    if (!result) return tl::unexpected(result.error());
    streams = std::move(*result);
    return {};
  }
  void open(int workers, int restart_count = 0) {
    const auto opened = try_open(workers, restart_count);
    ASSERT_TRUE(opened.has_value()) << opened.error().message;
  }

  // Starts `/bin/sh -c script` as the given worker and closes our copies of its pipe ends.
  pid_t spawn(size_t worker, std::string script) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, streams[worker].out.get(), 1);
    posix_spawn_file_actions_adddup2(&actions, streams[worker].err.get(), 2);
    std::string shell = "sh";
    std::string flag = "-c";
    char* argv[] = {shell.data(), flag.data(), script.data(), nullptr};
    pid_t pid = -1;
    EXPECT_EQ(posix_spawn(&pid, "/bin/sh", &actions, nullptr, argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    streams[worker].out.reset();
    streams[worker].err.reset();
    pids_.push_back(pid);
    return pid;
  }

  // Returns the wait statuses, in spawn order.
  std::vector<int> wait_all() {
    std::vector<int> statuses;
    for (const pid_t pid : pids_) {
      int status = -1;
      ::waitpid(pid, &status, 0);
      statuses.push_back(status);
    }
    pids_.clear();
    return statuses;
  }

  DrainReport drain(bool keep = false) {
    std::promise<DrainReport> drained;
    output_->drain(keep, [&](DrainReport report) { drained.set_value(std::move(report)); });
    return drained.get_future().get();
  }

  void finish(bool succeeded = true) {
    std::promise<void> finished;
    output_->remove_temporary(succeeded);
    output_->finish([&] { finished.set_value(); });
    finished.get_future().get();
  }

  // Runs one script per worker until it ends.
  DrainReport run_workers(const std::vector<std::string>& scripts) {
    open(static_cast<int>(scripts.size()));
    for (size_t i = 0; i < scripts.size(); i++)
      spawn(i, scripts[i]);
    wait_all();
    return drain();
  }

  std::string attempt(int restart_count = 0) const {
    return run.run_dir + "/attempt_" + std::to_string(restart_count);
  }
  const std::string& temp_dir() const { return temp_.path(); }

  RunFolders run;
  std::vector<WorkerStreams> streams;

 private:
  TempFolder temp_;
  std::unique_ptr<Output> output_;
  std::vector<pid_t> pids_;
};

// Both consoles are the same pipe unless a test changes that.
inline OutputOptions options_for(const ConsolePipe& console) {
  OutputOptions options;
  options.console_out = console.write_end.get();
  options.console_err = console.write_end.get();
  return options;
}

}  // namespace muster
