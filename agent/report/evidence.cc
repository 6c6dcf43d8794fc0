#include "agent/report/evidence.h"

#include <algorithm>
#include <csignal>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <glob.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "agent/report/core_pattern.h"
#include "rendezvous/base/cgroup.h"
#include "rendezvous/base/unique_fd.h"

namespace muster {

namespace fs = std::filesystem;

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

constexpr const char* kOomKills = "oom_kill ";

void look_at_shm(const EvidenceRequest& request, GatheredEvidence& evidence) {
  struct statvfs disk{};
  if (::statvfs(request.shm_dir.c_str(), &disk) != 0) return;
  evidence.shm_free_bytes = static_cast<int64_t>(disk.f_bavail * disk.f_frsize);
  evidence.shm_total_bytes = static_cast<int64_t>(disk.f_blocks * disk.f_frsize);
}

// Full means full for a program: no block left for an ordinary user, or no inode.
void look_at_log_disk(const EvidenceRequest& request, GatheredEvidence& evidence) {
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

void look_for_core(const EvidenceRequest& request, GatheredEvidence& evidence) {
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

// v1 wins in a hybrid set-up, where one hierarchy has the controller. A v2 root has no counter.
OomWatch::OomWatch(const fs::path& root) : vmstat_path_(root / "proc/vmstat") {
  for (const fs::path& folder : cgroup_folders("memory", root)) {
    for (const auto& [counter, limit] : {std::pair("memory.oom_control", "memory.limit_in_bytes"),
                                         std::pair("memory.events", "memory.max")}) {
      if (!counter_path_.empty() || ::access((folder / counter).c_str(), R_OK) != 0) continue;
      counter_path_ = folder / counter;
      limit_path_ = folder / limit;
    }
  }
  snapshot();
}

void OomWatch::snapshot() {
  kills_before_ = number_in_file(counter_path_, kOomKills).value_or(0);
  machine_kills_before_ = number_in_file(vmstat_path_, kOomKills).value_or(0);
}

void OomWatch::fill(HostEvidence& evidence) const {
  const auto since = [](const fs::path& path, int64_t before) {
    return std::max<int64_t>(0, number_in_file(path, kOomKills).value_or(before) - before);
  };
  evidence.machine_oom_kills = since(vmstat_path_, machine_kills_before_);
  evidence.oom_kills = since(counter_path_, kills_before_);
  const std::optional<int64_t> limit = number_in_file(limit_path_);
  // v1 expresses "unlimited" as a number near 2^63, v2 as the word "max".
  constexpr int64_t kUnlimited = int64_t{1} << 60;
  evidence.memory_limit_bytes = limit && *limit < kUnlimited ? *limit : 0;
}

GatheredEvidence gather_evidence(const EvidenceRequest& request) {
  GatheredEvidence evidence;
  look_at_shm(request, evidence);
  look_at_log_disk(request, evidence);
  if (request.signal != 0) look_for_core(request, evidence);
  if (!request.kernel_log) return evidence;
  evidence.oom_victim = request.kernel_log->oom_killed(request.pid);
  evidence.oom_victims = request.kernel_log->oom_victims();
  evidence.stack_overflow =
      request.signal == SIGSEGV && request.kernel_log->stack_overflowed(request.pid);
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
