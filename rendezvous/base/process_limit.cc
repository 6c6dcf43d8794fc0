#include "rendezvous/base/process_limit.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <optional>

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include "rendezvous/base/cgroup.h"
#include "rendezvous/base/unique_fd.h"

namespace muster {

namespace fs = std::filesystem;

ProcessLimits::ProcessLimits(const fs::path& root) : groups_(cgroup_folders("pids", root)) {
  int inside = 0;
  int outside = -1;
  std::ifstream map(root / "proc/self/uid_map");
  root_is_exempt_ = (map >> inside >> outside) && inside == 0 && outside == 0;
  snapshot();
}

// Linux before 6.11 counts in the group of the process, later versions in that of the limit.
int64_t ProcessLimits::refusals() const {
  int64_t sum = 0;
  for (const fs::path& group : groups_)
    sum += number_in_file(group / "pids.events", "max ").value_or(0);
  return sum;
}

std::string ProcessLimits::met(uint64_t allowed) const {
  const bool refused = refusals() > refusals_before_;
  int64_t least_room = refused ? std::numeric_limits<int64_t>::max() : 1;
  std::string text;
  for (const fs::path& group : groups_) {
    const std::optional<int64_t> max = number_in_file(group / "pids.max");
    const std::optional<int64_t> used = number_in_file(group / "pids.current");
    if (!max || !used || *max - *used >= least_room) continue;
    least_room = *max - *used;
    text = fmt::format("pids.max of {} is {}", group.string(), *max);
  }
  const bool is_exempt = getuid() == 0 && root_is_exempt_;
  if (!text.empty() || is_exempt || allowed == RLIM_INFINITY) return text;
  return fmt::format("ulimit -u (RLIMIT_NPROC) is {} for all processes and threads of uid {}",
                     allowed, getuid());
}

std::string process_limit_met() {
  rlimit limit{};
  const bool known = getrlimit(RLIMIT_NPROC, &limit) == 0;
  return ProcessLimits().met(known ? limit.rlim_cur : RLIM_INFINITY);
}

std::string call_failed(std::string_view call, int error) {
  std::string why;
  if (is_out_of_descriptors(error)) why = "no descriptors left: raise `ulimit -n`";
  if (error == ENOSYS || error == EPERM)
    why = "this kernel, or a sandbox such as an old seccomp profile, refuses it";
  if (error == EAGAIN) {
    const std::string limit = process_limit_met();
    why = limit.empty() ? "no room for another process or thread: see the memory (`ulimit -v`), "
                          "kernel.threads-max and kernel.pid_max"
                        : limit + ": raise it, or start fewer workers or threads";
  }
  return fmt::format("{} failed: {}{}", call, std::strerror(error),
                     why.empty() ? "" : fmt::format(" ({})", why));
}

}  // namespace muster
