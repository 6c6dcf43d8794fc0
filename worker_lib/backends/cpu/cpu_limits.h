// How many cores this process may use: what decides whether waiting by spinning is worth it.
// Affinity and the quota of the control group count, not the number of processors.
#pragma once

#include <optional>
#include <string>

namespace muster::worker {

// At least 1: the cores that it may be scheduled on (sched_getaffinity(2)), or fewer where its
// control group's quota is less than that.
int usable_cores();

// The quota in cores, rounded up, of the tightest control group around the one that
// `proc_cgroup` (the contents of /proc/self/cgroup) names, as the files below `root`
// (/sys/fs/cgroup) say: cpu.max of version 2, cpu.cfs_quota_us of version 1. Nothing: no limit.
std::optional<int> quota_cores(const std::string& proc_cgroup, const std::string& root);

}  // namespace muster::worker
