#include "tests/fakes/device_child.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern "C" char** environ;

namespace muster {
namespace {

using SteadyTime = std::chrono::steady_clock::time_point;

// Far above any report (200 bytes per GPU); a child that prints more is not one of our commands.
constexpr size_t kOutputBytesMax = 8u << 20;
// A killed process normally dies within a millisecond; one blocked in the kernel may never die.
constexpr auto kDeathWait = std::chrono::milliseconds(100);

class QueryFd {
 public:
  explicit QueryFd(int fd) : fd_(fd) {}
  QueryFd(const QueryFd&) = delete;
  QueryFd& operator=(const QueryFd&) = delete;
  ~QueryFd() { reset(); }

  int get() const { return fd_; }
  void reset() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

tl::unexpected<Error> query_failed(std::string_view why) {
  return fail(ExitCode::environment,
              fmt::format("asking the GPU driver failed: {}; check whether nvidia-smi works", why));
}

int milliseconds_until(SteadyTime deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 1'000'000'000));
}

// True if `fd` became readable (or closed) before the deadline.
bool query_readable_by(int fd, SteadyTime deadline) {
  for (;;) {
    pollfd entry{fd, POLLIN, 0};
    const int ready = poll(&entry, 1, milliseconds_until(deadline));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
    if (ready == 0 && std::chrono::steady_clock::now() >= deadline) return false;
  }
}

// The child starts with default signals, so that no disposition of ours can keep it alive, and with
// /dev/null as stdin and stderr. Returns 0 or an error number.
int spawn_query(const std::vector<std::string>& argv, int stdout_fd, pid_t& pid) {
  std::vector<char*> args;
  for (const std::string& arg : argv)
    args.push_back(const_cast<char*>(arg.c_str()));
  args.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, stdout_fd, STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigset_t all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  const int error = posix_spawn(&pid, args[0], &actions, &attributes, args.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

// Reads until end of file; nullopt on expiry, on an error, or if the output is too large.
std::optional<std::string> read_query_output(int fd, SteadyTime deadline) {
  std::string text;
  std::array<char, 65536> buffer;
  while (query_readable_by(fd, deadline)) {
    const ssize_t got = read(fd, buffer.data(), buffer.size());
    if (got == 0) return text;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::nullopt;
    text.append(buffer.data(), static_cast<size_t>(got));
    if (text.size() > kOutputBytesMax) return std::nullopt;
  }
  return std::nullopt;
}

// Returns the exit status of the reaped child; nullopt if it has not ended by the deadline.
std::optional<siginfo_t> reap_query_by(pid_t pid, int pidfd, SteadyTime deadline) {
  siginfo_t info{};
  if (pidfd < 0 || !query_readable_by(pidfd, deadline)) return std::nullopt;
  if (waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG) != 0) return std::nullopt;
  if (info.si_pid != pid) return std::nullopt;
  return info;
}

}  // namespace

Result<std::string> run_device_child(const std::vector<std::string>& argv, Duration limit) {
  CHECK(!argv.empty());
  const SteadyTime deadline =
      std::chrono::steady_clock::now() + std::min<Duration>(limit, std::chrono::hours(24));
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return query_failed(std::strerror(errno));
  const QueryFd reading(ends[0]);
  QueryFd writing(ends[1]);
  pid_t pid = -1;
  const int error = spawn_query(argv, writing.get(), pid);
  if (error != 0)
    return query_failed(fmt::format("starting {}: {}", argv[0], std::strerror(error)));
  writing.reset();
  const QueryFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  const std::optional<std::string> text = read_query_output(reading.get(), deadline);
  std::optional<siginfo_t> end;
  if (text) end = reap_query_by(pid, pidfd.get(), deadline);
  if (!end) {
    // By pidfd, so that we cannot hit an unrelated process if another reaper has taken the child.
    syscall(SYS_pidfd_send_signal, pidfd.get(), SIGKILL, nullptr, 0);
    reap_query_by(pid, pidfd.get(), std::chrono::steady_clock::now() + kDeathWait);
    return query_failed(fmt::format("no complete answer within {:.1f} s",
                                    std::chrono::duration<double>(limit).count()));
  }
  if (end->si_code != CLD_EXITED) {
    return query_failed(fmt::format("the query died of signal {}", end->si_status));
  }
  if (end->si_status != 0) return query_failed(fmt::format("exit status {}", end->si_status));
  return *text;
}

}  // namespace muster
