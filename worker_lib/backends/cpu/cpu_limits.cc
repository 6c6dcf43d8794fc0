#include "worker_lib/backends/cpu/cpu_limits.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <sstream>

#include <sched.h>

namespace muster::worker {
namespace {

std::string cgroup_text(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::optional<int> cores_of(int64_t quota, int64_t period) {
  if (quota <= 0 || period <= 0) return std::nullopt;
  return static_cast<int>(std::clamp<int64_t>(quota / period + (quota % period != 0), 1, 1 << 20));
}

// "200000 100000" or "max 100000" (cgroups(7), version 2).
std::optional<int> quota_of_v2(const std::string& folder) {
  std::istringstream text(cgroup_text(folder + "/cpu.max"));
  int64_t quota = 0;
  int64_t period = 0;
  if (!(text >> quota >> period)) return std::nullopt;
  return cores_of(quota, period);
}

std::optional<int> quota_of_v1(const std::string& folder) {
  std::istringstream quota_text(cgroup_text(folder + "/cpu.cfs_quota_us"));
  std::istringstream period_text(cgroup_text(folder + "/cpu.cfs_period_us"));
  int64_t quota = 0;
  int64_t period = 0;
  if (!(quota_text >> quota) || !(period_text >> period)) return std::nullopt;
  return cores_of(quota, period);
}

// A limit of any group on the path counts.
template <typename QuotaOf>
std::optional<int> tightest(const std::string& root, std::string path, QuotaOf quota_of) {
  std::optional<int> least;
  for (;;) {
    const std::optional<int> here = quota_of(root + path);
    if (here && (!least || *here < *least)) least = here;
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) return least;
    path.resize(slash);
  }
}

bool lists_cpu(const std::string& controllers) {
  return ("," + controllers + ",").find(",cpu,") != std::string::npos;
}

}  // namespace

std::optional<int> quota_cores(const std::string& proc_cgroup, const std::string& root) {
  std::istringstream lines(proc_cgroup);
  std::optional<int> least;
  for (std::string line; std::getline(lines, line);) {  // "4:cpu,cpuacct:/a/b" or "0::/a/b"
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    std::optional<int> found;
    if (controllers.empty()) found = tightest(root, path, quota_of_v2);
    if (lists_cpu(controllers)) found = tightest(root + "/cpu", path, quota_of_v1);
    if (found && (!least || *found < *least)) least = found;
  }
  return least;
}

int usable_cores() {
  int cores = 1;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) cores = std::max(1, CPU_COUNT(&set));
  const std::optional<int> quota = quota_cores(cgroup_text("/proc/self/cgroup"), "/sys/fs/cgroup");
  return quota ? std::min(cores, *quota) : cores;
}

}  // namespace muster::worker
