#include "agent/placement/cpu_limit.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <initializer_list>
#include <memory>
#include <sstream>
#include <string>
#include <system_error>

#include <sched.h>

#include "rendezvous/base/error.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

// "max 100000" or "150000 100000": quota and period in microseconds.
std::optional<double> quota_of_v2(const fs::path& folder) {
  std::ifstream in(folder / "cpu.max");
  double quota = 0;
  double period = 0;
  if (!(in >> quota >> period) || quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

// A quota of -1 means none.
std::optional<double> quota_of_v1(const fs::path& folder) {
  std::ifstream quota_in(folder / "cpu.cfs_quota_us");
  std::ifstream period_in(folder / "cpu.cfs_period_us");
  double quota = 0;
  double period = 0;
  if (!(quota_in >> quota) || !(period_in >> period) || quota <= 0 || period <= 0) {
    return std::nullopt;
  }
  return quota / period;
}

void tighten(std::optional<double>& limit, std::optional<double> other) {
  if (other && (!limit || *other < *limit)) limit = other;
}

// The tightest quota from `mount`/`group` up to `mount`. In a container the path may be the host's
// and not exist below the mount: the walk then ends at the mount, which is the container's own
// group.
template <typename QuotaOf>
std::optional<double> tightest_quota(const fs::path& mount, const std::string& group,
                                     QuotaOf quota_of) {
  std::optional<double> limit;
  fs::path relative = fs::path(group).relative_path().lexically_normal();
  for (;;) {
    tighten(limit, quota_of(mount / relative));
    if (relative.empty() || relative == "." || *relative.begin() == "..") break;
    relative = relative.parent_path();
  }
  tighten(limit, quota_of(mount));
  return limit;
}

bool lists_cpu_controller(const std::string& controllers) {
  std::istringstream in(controllers);
  for (std::string name; std::getline(in, name, ',');) {
    if (name == "cpu") return true;
  }
  return false;
}

}  // namespace

CpuSet allowed_cpus() {
  // The kernel refuses a mask smaller than its own; 8192 CPUs is the largest usual build.
  for (int size = CPU_SETSIZE; size <= 1 << 16; size *= 2) {
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> mask(
        CPU_ALLOC(static_cast<size_t>(size)), [](cpu_set_t* set) { CPU_FREE(set); });
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(size));
    if (mask == nullptr || sched_getaffinity(0, bytes, mask.get()) != 0) continue;
    CpuSet cpus;
    for (int cpu = 0; cpu < size; ++cpu) {
      if (CPU_ISSET_S(static_cast<size_t>(cpu), bytes, mask.get())) cpus.push_back(cpu);
    }
    if (!cpus.empty()) return cpus;
  }
  return {0};
}

std::optional<double> cgroup_cpu_quota(const fs::path& root) {
  const fs::path mounts = root / "sys/fs/cgroup";
  std::ifstream in(root / "proc/self/cgroup");
  std::optional<double> limit;
  // Lines look like "4:cpu,cpuacct:/path" (v1) or "0::/path" (v2).
  for (std::string line; std::getline(in, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) {
      tighten(limit, tightest_quota(mounts, group, quota_of_v2));
      tighten(limit, tightest_quota(mounts / "unified", group, quota_of_v2));
    } else if (lists_cpu_controller(controllers)) {
      for (const char* name : {"cpu", "cpu,cpuacct", "cpuacct,cpu"}) {
        tighten(limit, tightest_quota(mounts / name, group, quota_of_v1));
      }
    }
  }
  return limit;
}

int usable_cores(const CpuSet& allowed, std::optional<double> quota) {
  int cores = static_cast<int>(allowed.size());
  if (quota && *quota < cores) cores = static_cast<int>(std::ceil(*quota));
  return std::max(1, cores);
}

int threads_per_worker(int usable, int workers, int bound_cpus) {
  CHECK(workers > 0);
  int threads = usable / workers;
  if (bound_cpus > 0) threads = std::min(threads, bound_cpus);
  return std::max(1, threads);
}

}  // namespace muster
