#include "agent/process/shared_memory.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "rendezvous/base/text.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

// The pid in "torch_4711_1804289383_0" (NewProcessWideShmHandle in torch); 0: another name.
pid_t pid_in_name(std::string_view name) {
  constexpr std::string_view kPrefix = "torch_";
  if (!name.starts_with(kPrefix)) return 0;
  name.remove_prefix(kPrefix.size());
  const pid_t pid = take_number<pid_t>(name).value_or(0);
  return name.starts_with('_') ? std::max(pid, 0) : 0;
}

// True if the process is in another PID namespace and has, or may have, this folder.
bool is_shared_with(pid_t pid, const std::string& folder, const struct stat& ours) {
  const std::string status = read_process_file(pid, "status", kStatusBytesMax);
  const std::string_view pids = status_field(status, "\nNSpid:");
  if (!status.empty() && !pids.empty() && pids.find('\t') == std::string_view::npos) return false;
  struct stat theirs{};
  const std::string path = "/proc/" + std::to_string(pid) + "/root" + folder;
  if (stat(path.c_str(), &theirs) != 0) return !status.empty();  // Empty: it has ended.
  return theirs.st_dev == ours.st_dev;
}

std::optional<ClockTime> made_at(const std::string& path) {
  struct statx file{};
  const bool known =
      statx(AT_FDCWD, path.c_str(), AT_SYMLINK_NOFOLLOW, STATX_BTIME | STATX_TYPE, &file) == 0 &&
      S_ISREG(file.stx_mode) && (file.stx_mask & STATX_BTIME) != 0;
  if (!known) return std::nullopt;
  return ClockTime(std::chrono::seconds(file.stx_btime.tv_sec) +
                   std::chrono::nanoseconds(file.stx_btime.tv_nsec));
}

}  // namespace

bool cleans_up(const ProcessEntry& process) {
  if (process.name == "torch_shm_manag") return true;  // comm is cut to 15 bytes.
  const std::string line = read_process_file(process.pid, "cmdline");
  return line.find("_tracker import main") != std::string::npos;  // resource_, semaphore_
}

void add_seen(const std::vector<ProcessEntry>& tree, SeenProcesses& seen) {
  static const int64_t ticks_per_second = sysconf(_SC_CLK_TCK);
  timespec up{};
  clock_gettime(CLOCK_BOOTTIME, &up);
  const ClockTime now = std::chrono::system_clock::now();
  const ClockTime booted =
      now - std::chrono::seconds(up.tv_sec) - std::chrono::nanoseconds(up.tv_nsec);
  for (const ProcessEntry& process : tree) {
    const auto ticks = static_cast<int64_t>(process.start_ticks);
    const ClockTime from =
        booted + std::chrono::nanoseconds(std::chrono::seconds(1)) / ticks_per_second * ticks;
    PidHeld& held = seen.try_emplace(process.pid, PidHeld{from, now}).first->second;
    if (from > held.to) held.from = from;  // Another process of the job had the pid.
    held.to = now;
  }
}

std::vector<ProcessEntry> KillOrder::due(const std::vector<ProcessEntry>& tree) {
  std::vector<ProcessEntry> others;
  std::vector<ProcessEntry> helpers;
  for (const ProcessEntry& process : tree) {
    if (!is_over(process)) (cleans_up(process) ? helpers : others).push_back(process);
  }
  const auto now = std::chrono::steady_clock::now();
  if (!others.empty() || helpers.empty())
    alone_since_.reset();
  else if (!alone_since_)
    alone_since_ = now;
  spares_ = !helpers.empty() && (!alone_since_ || now - *alone_since_ < kCleanUp);
  if (!spares_) std::ranges::move(helpers, std::back_inserter(others));
  return others;
}

bool has_only_our_pids(const std::string& folder) {
  std::error_code error;
  if (fs::read_symlink("/proc/self/ns/pid", error).native() != kFirstPidNamespace) return false;
  struct stat ours{};
  // If other users' processes are hidden (hidepid), those of a container may be hidden too.
  if (stat(folder.c_str(), &ours) != 0 || !look_at_entry(1)) return false;
  for (const ProcessEntry& process : descendants_of(0, {})) {
    if (is_shared_with(process.pid, folder, ours)) return false;
  }
  return true;
}

std::vector<std::string> files_of_dead(const SeenProcesses& seen, const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const auto maker = seen.find(pid_in_name(it->path().filename().native()));
    if (maker == seen.end() || kill(maker->first, 0) == 0 || errno != ESRCH) continue;
    const std::string& path = it->path().native();
    const std::optional<ClockTime> made = made_at(path);
    if (made && *made >= maker->second.from && *made <= maker->second.to) files.push_back(path);
  }
  return files;
}

void remove_shared_files(const SeenProcesses& seen) {
  const std::string folder = "/dev/shm";
  if (seen.empty()) return;
  const std::vector<std::string> files = files_of_dead(seen, folder);
  if (files.empty() || !has_only_our_pids(folder)) return;
  for (const std::string& path : files)
    unlink(path.c_str());
}

}  // namespace muster
