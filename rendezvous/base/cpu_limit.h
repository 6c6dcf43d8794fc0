// The number of cores that this process can really use: the affinity mask, limited by the CPU quota
// of its cgroup and of every cgroup above. A container with 2 of 128 cores has the whole machine in
// its mask; only the quota shows the limit. The agent divides the cores among its workers, and the
// worker library polls sockets only if each rank has one.
#pragma once

#include <filesystem>
#include <limits>
#include <vector>

namespace muster {

inline constexpr double kNoCpuQuota = std::numeric_limits<double>::infinity();

// Returns the CPUs that this thread may run on, sorted; never empty.
std::vector<int> allowed_cpus();

// Returns the smallest CPU quota, in cores, among cgroup v2 cpu.max and v1 cpu.cfs_quota_us of this
// process's cgroup and its parents; kNoCpuQuota if there is none. Tests pass another `root`.
double cgroup_cpu_quota(const std::filesystem::path& root = "/");

// Returns min(affinity, quota), rounded down, at least 1. Rounded down because the kernel throttles
// all threads at once when together they exceed the quota.
int usable_cores(const std::vector<int>& allowed = allowed_cpus(),
                 double quota = cgroup_cpu_quota());

}  // namespace muster
