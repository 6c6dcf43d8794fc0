// How many cores this process can really use: the affinity mask, limited by the CPU quota of its
// cgroup and of every cgroup above. A container with 2 of 128 cores has the whole machine in its
// mask; only the quota shows the limit. The root of the file system is a parameter for tests.
#pragma once

#include <filesystem>
#include <optional>

#include "agent/placement/cpu_list.h"

namespace muster {

// The CPUs this thread may run on. Never empty.
CpuSet allowed_cpus();

// The tightest CPU quota, in cores, among cgroup v2 cpu.max and v1 cpu.cfs_quota_us of this
// process's cgroup and its parents; nullopt if there is none.
std::optional<double> cgroup_cpu_quota(const std::filesystem::path& root = "/");

// min(affinity, quota rounded up), at least 1.
int usable_cores(const CpuSet& allowed, std::optional<double> quota);

// The OMP_NUM_THREADS of one worker: its share of the usable cores, but no more than the CPUs that
// it is bound to (0: not bound). At least 1. REQUIRES: workers > 0.
int threads_per_worker(int usable, int workers, int bound_cpus);

}  // namespace muster
