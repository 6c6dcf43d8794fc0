#include "rendezvous/base/cpu_limit.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <locale>
#include <memory>

#include <sched.h>

#include "rendezvous/base/cgroup.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

// Both are in microseconds; a quota of -1, or without a number ("max"), means none.
double read_quota(std::istream& quota_in, std::istream& period_in) {
  double quota = 0;
  double period = 0;
  const bool is_one = (quota_in >> quota) && (period_in >> period) && quota > 0 && period > 0;
  return is_one ? quota / period : kNoCpuQuota;
}

// A worker's program may have set a locale that groups digits by blanks.
std::ifstream open_plainly(const fs::path& file) {
  std::ifstream in(file);
  in.imbue(std::locale::classic());
  return in;
}

double quota_of_v2(const fs::path& folder) {
  std::ifstream in = open_plainly(folder / "cpu.max");
  return read_quota(in, in);
}

double quota_of_v1(const fs::path& folder) {
  std::ifstream quota_in = open_plainly(folder / "cpu.cfs_quota_us");
  std::ifstream period_in = open_plainly(folder / "cpu.cfs_period_us");
  return read_quota(quota_in, period_in);
}

}  // namespace

std::vector<int> allowed_cpus() {
  // The kernel refuses a mask smaller than its own, usually of at most 8192 CPUs.
  for (int size = CPU_SETSIZE; size <= 1 << 16; size *= 2) {
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> mask(
        CPU_ALLOC(static_cast<size_t>(size)), [](cpu_set_t* set) { CPU_FREE(set); });
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(size));
    if (mask == nullptr || sched_getaffinity(0, bytes, mask.get()) != 0) continue;
    std::vector<int> cpus;
    for (int cpu = 0; cpu < size; ++cpu) {
      if (CPU_ISSET_S(static_cast<size_t>(cpu), bytes, mask.get())) cpus.push_back(cpu);
    }
    if (!cpus.empty()) return cpus;
  }
  return {0};
}

double cgroup_cpu_quota(const fs::path& root) {
  double limit = kNoCpuQuota;
  for (const fs::path& group : cgroup_folders("cpu", root))
    limit = std::min({limit, quota_of_v1(group), quota_of_v2(group)});
  return limit;
}

int usable_cores(const std::vector<int>& allowed, double quota) {
  const auto cores = static_cast<double>(allowed.size());
  return static_cast<int>(std::max(1.0, std::min(cores, std::floor(quota))));
}

}  // namespace muster
