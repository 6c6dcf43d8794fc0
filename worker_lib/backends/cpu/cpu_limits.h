// How many cores this process may use, which decides whether waiting by spinning pays. Affinity and
// the quota of the control group count, not the number of processors.
#pragma once

#include <optional>
#include <string>

namespace muster::worker {

// At least 1: the cores on which it may be scheduled (sched_getaffinity(2)), or fewer if its
// control group's quota is less.
int usable_cores();

// The quota in cores, rounded up, of the tightest control group from the one that `proc_cgroup`
// (the contents of /proc/self/cgroup) names upwards, read from the files below `root`
// (/sys/fs/cgroup): cpu.max of version 2, cpu.cfs_quota_us of version 1. nullopt: no limit.
std::optional<int> quota_cores(const std::string& proc_cgroup, const std::string& root);

}  // namespace muster::worker
