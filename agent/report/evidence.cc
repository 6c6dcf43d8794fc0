#include "agent/report/evidence.h"

#include <algorithm>
#include <csignal>
#include <sstream>
#include <string_view>

#include <fcntl.h>
#include <fmt/format.h>
#include <glob.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "agent/report/core_pattern.h"
#include "rendezvous/base/text.h"
#include "rendezvous/base/unique_fd.h"

namespace muster {
namespace {

// Empty if it cannot be read. The files read here are smaller than 64 KiB.
std::string read_small_file(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  return read_up_to(fd.get(), 64 * 1024);
}

std::string line_of_file(const std::string& path) {
  const std::string text = read_small_file(path);
  return text.substr(0, text.find('\n'));
}

// The number after "oom_kill " in memory.events, memory.oom_control or vmstat.
std::optional<int64_t> oom_kill_count(const std::string& path) {
  const std::string text = "\n" + read_small_file(path);
  std::optional<std::string_view> count = text_after(text, "\noom_kill ");
  return count ? take_number<int64_t>(*count) : std::nullopt;
}

struct MemoryCgroup {
  std::string folder;  // Relative to the cgroup root, with a leading slash.
  bool is_v1 = false;
};

// /proc/self/cgroup has "0::/path" for v2 and "4:memory:/path" for v1's controller, which wins in a
// hybrid set-up since the memory controller is bound to one of the two.
std::optional<MemoryCgroup> memory_cgroup(const std::string& proc_root) {
  std::optional<MemoryCgroup> found;
  std::istringstream lines(read_small_file(proc_root + "/self/cgroup"));
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    const std::string folder = line.substr(second + 1);
    if (contains(controllers, ",memory,")) {
      found = MemoryCgroup{folder, true};
    } else if (controllers == ",," && !found) {
      found = MemoryCgroup{folder, false};
    }
  }
  return found;
}

// The nearest ancestor that has the counter: in a container the path may be that of the host, and a
// v2 root has none.
std::string nearest_with(const std::string& root, std::string folder, const std::string& file) {
  while (true) {
    const std::string candidate = root + (folder == "/" ? "" : folder);
    if (::access((candidate + "/" + file).c_str(), R_OK) == 0) return candidate;
    if (folder.empty() || folder == "/") return {};
    folder.resize(folder.rfind('/') == std::string::npos ? 0 : folder.rfind('/'));
  }
}

void look_at_shm(const EvidenceRequest& request, HostEvidence& evidence) {
  struct statvfs disk{};
  if (::statvfs(request.shm_dir.c_str(), &disk) != 0) return;
  evidence.shm_free_bytes = static_cast<int64_t>(disk.f_bavail * disk.f_frsize);
  evidence.shm_total_bytes = static_cast<int64_t>(disk.f_blocks * disk.f_frsize);
}

// Full as a program sees it: no block left for an ordinary user, or no inode.
void look_at_log_disk(const EvidenceRequest& request, HostEvidence& evidence) {
  struct statvfs disk{};
  if (request.log_dir.empty() || ::statvfs(request.log_dir.c_str(), &disk) != 0) return;
  const bool no_inodes = disk.f_files > 0 && disk.f_favail == 0;
  if (disk.f_bavail == 0 || no_inodes) evidence.full_log_disk = request.log_dir;
}

std::string newest_match(const std::string& pattern) {
  glob_t matches{};
  std::string newest;
  timespec newest_time{};
  if (::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &matches) == 0) {
    for (size_t i = 0; i < matches.gl_pathc; ++i) {
      struct stat info{};
      if (::stat(matches.gl_pathv[i], &info) != 0 || !S_ISREG(info.st_mode)) continue;
      const timespec& time = info.st_mtim;
      const bool newer = time.tv_sec != newest_time.tv_sec ? time.tv_sec > newest_time.tv_sec
                                                           : time.tv_nsec > newest_time.tv_nsec;
      if (newest.empty() || newer) {
        newest = matches.gl_pathv[i];
        newest_time = time;
      }
    }
  }
  ::globfree(&matches);
  return newest;
}

void look_for_core(const EvidenceRequest& request, HostEvidence& evidence) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_CORE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    evidence.core_limit_bytes = static_cast<int64_t>(limit.rlim_cur);
  }
  if (!request.core_dumped) return;
  const std::string kernel = request.proc_root + "/sys/kernel";
  const std::string pattern = read_small_file(kernel + "/core_pattern");
  const CoreFacts facts{.pid = request.pid,
                        .signal = request.signal,
                        .comm = request.comm,
                        .hostname = line_of_file(kernel + "/hostname"),
                        .cwd = request.cwd,
                        .append_pid = line_of_file(kernel + "/core_uses_pid").starts_with('1')};
  if (const std::optional<std::string> glob_pattern = core_glob(pattern, facts)) {
    evidence.core_path = newest_match(*glob_pattern);
  }
  evidence.core_handler = core_handler_hint(pattern, request.pid);
}

}  // namespace

OomWatch::OomWatch(const std::string& proc_root, const std::string& cgroup_root)
    : vmstat_path_(proc_root + "/vmstat") {
  if (const std::optional<MemoryCgroup> cgroup = memory_cgroup(proc_root)) {
    const std::string root = cgroup->is_v1 ? cgroup_root + "/memory" : cgroup_root;
    const char* counter = cgroup->is_v1 ? "memory.oom_control" : "memory.events";
    const std::string folder = nearest_with(root, cgroup->folder, counter);
    if (!folder.empty()) {
      counter_path_ = folder + "/" + counter;
      limit_path_ = folder + (cgroup->is_v1 ? "/memory.limit_in_bytes" : "/memory.max");
    }
  }
  snapshot();
}

void OomWatch::snapshot() {
  kills_before_ = counter_path_.empty() ? 0 : oom_kill_count(counter_path_).value_or(0);
  machine_kills_before_ = oom_kill_count(vmstat_path_).value_or(0);
}

void OomWatch::fill(HostEvidence& evidence) const {
  const int64_t machine_kills = oom_kill_count(vmstat_path_).value_or(machine_kills_before_);
  evidence.machine_oom_kills = std::max<int64_t>(0, machine_kills - machine_kills_before_);
  if (counter_path_.empty()) return;
  const int64_t kills = oom_kill_count(counter_path_).value_or(kills_before_);
  evidence.oom_kills = std::max<int64_t>(0, kills - kills_before_);
  const std::string text = read_small_file(limit_path_);
  std::string_view rest = text;
  const std::optional<int64_t> limit = take_number<int64_t>(rest);
  // v1 expresses "unlimited" as a number near 2^63, v2 as the word "max".
  constexpr int64_t kUnlimited = int64_t{1} << 60;
  evidence.memory_limit_bytes = limit && *limit < kUnlimited ? *limit : 0;
}

HostEvidence gather_evidence(const EvidenceRequest& request) {
  HostEvidence evidence;
  look_at_shm(request, evidence);
  look_at_log_disk(request, evidence);
  if (request.signal != 0) look_for_core(request, evidence);
  if (!request.kernel_log) return evidence;
  if (request.signal == SIGKILL) evidence.oom_victim = request.kernel_log->oom_killed(request.pid);
  evidence.xid = request.kernel_log->xid_of(request.pid);
  return evidence;
}

StuckProcess stuck_process(const ProcessEntry& process, const std::string& proc_root) {
  const std::string wchan = line_of_file(fmt::format("{}/{}/wchan", proc_root, process.pid));
  return {.pid = process.pid,
          .name = process.name,
          .state = process.state,
          .wchan = wchan == "0" ? "" : wchan};
}

}  // namespace muster
