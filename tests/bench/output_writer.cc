// Measures the speed of the output path alone: starts N copies of itself that print numbered lines
// through Output, and reports MB/s on stderr. The console is this program's stdout.
//
//   output_writer default|tee|redirect|filter [workers=8] [MB each=50] [log dir]  > file, or | cat
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <string>
#include <vector>

#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/output/output.h"

namespace muster {

namespace {

// Prints as a C or Python program does: stdio with its default buffer.
int print_lines(long id, long megabytes) {
  const long bytes_max = megabytes << 20;
  long bytes = 0;
  for (long line = 0; bytes < bytes_max; line++) {
    const auto filler = static_cast<int>(20 + line * 7 % 41);
    bytes += std::printf("worker %ld line %09ld %0*d .\n", id, line, filler, 0);
  }
  return std::fflush(stdout) == 0 ? 0 : 1;
}

pid_t spawn_printer(const char* self, long id, const std::string& megabytes,
                    const WorkerStreams& streams) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, streams.out.get(), 1);
  posix_spawn_file_actions_adddup2(&actions, streams.err.get(), 2);
  std::string mode = "print";
  std::string number = std::to_string(id);
  std::string size = megabytes;
  char* argv[] = {const_cast<char*>(self), mode.data(), number.data(), size.data(), nullptr};
  pid_t pid = -1;
  if (posix_spawn(&pid, self, &actions, nullptr, argv, environ) != 0) std::abort();
  posix_spawn_file_actions_destroy(&actions);
  return pid;
}

std::vector<WorkerStreams> open_streams(Output& output, int workers) {
  std::promise<void> run;
  output.open_run([&](Result<RunFolders> folders) {
    if (!folders) std::fprintf(stderr, "%s\n", folders.error().message.c_str());
    run.set_value();
  });
  run.get_future().get();
  AttemptPlan plan;
  for (int rank = 0; rank < workers; rank++)
    plan.ranks.push_back(rank);
  std::promise<std::vector<WorkerStreams>> streams;
  output.open_attempt(plan, [&](Result<std::vector<WorkerStreams>> opened) {
    if (!opened) std::fprintf(stderr, "%s\n", opened.error().message.c_str());
    streams.set_value(opened ? std::move(*opened) : std::vector<WorkerStreams>());
  });
  return streams.get_future().get();
}

int measure(const std::string& mode, int workers, const std::string& megabytes,
            const std::string& log_dir) {
  OutputOptions options;
  options.log.dir = log_dir;
  if (mode == "tee" || mode == "filter") options.log.tee.all = Streams::both;
  if (mode == "redirect") options.log.redirects.all = Streams::both;
  if (mode == "filter") options.log.duplicate_stdout_filters = {"line 000000042"};
  auto output = Output::start(options);
  if (!output) return 1;
  auto streams = open_streams(**output, workers);
  if (streams.empty()) return 1;
  const auto begin = std::chrono::steady_clock::now();
  for (int id = 0; id < workers; id++) {
    spawn_printer("/proc/self/exe", id, megabytes, streams[static_cast<size_t>(id)]);
  }
  streams.clear();
  for (int id = 0; id < workers; id++)
    ::wait(nullptr);
  std::promise<void> drained;
  (*output)->drain(false, [&](const DrainReport&) { drained.set_value(); });
  drained.get_future().get();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  const double total = static_cast<double>(workers) * std::stod(megabytes) * 1.048576;
  std::fprintf(stderr,
               "%s: %d workers, %.0f MB in %.3f s: %.0f MB/s; CPU %.2f s user, %.2f s system\n",
               mode.c_str(), workers, total, took.count(), total / took.count(),
               seconds(usage.ru_utime), seconds(usage.ru_stime));
  return 0;
}

}  // namespace

}  // namespace muster

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "default";
  const char* second = argc > 2 ? argv[2] : "8";
  const char* third = argc > 3 ? argv[3] : "50";
  if (mode == "print") return muster::print_lines(std::atol(second), std::atol(third));
  return muster::measure(mode, std::atoi(second), third, argc > 4 ? argv[4] : "/tmp/output_writer");
}
