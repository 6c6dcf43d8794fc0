#include "agent/process/helper_command.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/process/exit_status.h"
#include "agent/process/spawn.h"
#include "rendezvous/base/steady_now.h"
#include "rendezvous/base/text.h"
#include "rendezvous/base/unique_fd.h"

namespace muster {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr size_t kPrintedMax = size_t{4} << 20;

// Reads until the program closes its side; false if that takes until `end`.
bool read_all(int fd, SteadyClock::time_point end, std::string& text) {
  std::array<char, 4096> buffer;
  for (;;) {
    pollfd waiting{fd, POLLIN, 0};
    if (poll(&waiting, 1, poll_timeout(end)) == 0) return false;
    const ssize_t n = read(fd, buffer.data(), buffer.size());
    if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) return true;
    if (n > 0 && text.size() < kPrintedMax) text.append(buffer.data(), static_cast<size_t>(n));
  }
}

}  // namespace

bool is_executable_file(const std::string& path) {
  struct stat status{};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         ::access(path.c_str(), X_OK) == 0;
}

std::string find_on_path(std::string_view name, std::string_view path_list) {
  if (name.empty()) return {};
  for (const std::string_view folder : split(path_list, ':')) {
    const std::string path = fmt::format("{}/{}", folder.empty() ? "." : folder, name);
    if (is_executable_file(path)) return path;
  }
  return {};
}

Result<HelperOutcome> run_helper(const std::vector<std::string>& argv,
                                 const Environment& environment, Duration limit,
                                 HelperStderr complaints) {
  SpawnRequest request;
  request.executable = contains(argv.front(), "/")
                           ? argv.front()
                           : find_on_path(argv.front(), lookup(environment, "PATH").value_or(""));
  if (request.executable.empty())
    return fail(ExitCode::environment, fmt::format("there is no {} on PATH", argv.front()));
  request.argv = argv;
  request.environment = environment_strings(environment);
  request.ignored_signals = kSignalsToAll;
  int ends[2];
  const UniqueFd nothing(open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!nothing || pipe2(ends, O_CLOEXEC) != 0) {
    return fail(ExitCode::environment,
                fmt::format("cannot start {}: {}", argv.front(), std::strerror(errno)));
  }
  UniqueFd ours(ends[0]);
  UniqueFd theirs(ends[1]);
  request.stdin_fd = nothing.get();
  request.stdout_fd = theirs.get();
  if (complaints == HelperStderr::printed) request.stderr_fd = theirs.get();
  const Result<SpawnedProcess> child = spawn(request);
  theirs.reset();
  if (!child) return tl::unexpected(child.error());
  const auto end = SteadyClock::now() + limit;
  HelperOutcome outcome;
  pollfd ended{child->end.get(), POLLIN, 0};
  const bool late =
      !read_all(ours.get(), end, outcome.printed) || poll(&ended, 1, poll_timeout(end)) == 0;
  if (late) kill(child->pid, SIGKILL);
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(child->pid), &info, WEXITED);
  if (late) {
    return fail(ExitCode::environment,
                fmt::format("{} did not answer in time and was killed", argv.front()));
  }
  outcome.exit_code = exit_status_from_siginfo(info.si_code, info.si_status).code();
  return outcome;
}

}  // namespace muster
