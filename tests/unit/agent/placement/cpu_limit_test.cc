#include "agent/placement/cpu_limit.h"

#include <thread>

#include <gtest/gtest.h>
#include <sched.h>

#include "tests/fakes/temp_tree.h"

namespace muster {
namespace {

TEST(CpuLimit, AllowedCpusAreTheAffinityMask) {
  CpuSet restricted;
  CpuSet all;
  // In a thread of its own: the mask belongs to the thread.
  std::thread([&] {
    all = allowed_cpus();
    cpu_set_t mask;
    CPU_ZERO(&mask);
    CPU_SET(static_cast<size_t>(all.back()), &mask);
    ASSERT_EQ(sched_setaffinity(0, sizeof mask, &mask), 0);
    restricted = allowed_cpus();
  }).join();
  EXPECT_FALSE(all.empty());
  EXPECT_EQ(restricted, CpuSet{all.back()});
}

TEST(CpuLimit, NoCgroupMeansNoQuota) {
  const TempTree tree;
  EXPECT_EQ(cgroup_cpu_quota(tree.root()), std::nullopt);
}

TEST(CpuLimit, VersionTwoQuotaIsRead) {
  const TempTree tree;
  tree.write("proc/self/cgroup", "0::/job.slice/me.scope");
  tree.write("sys/fs/cgroup/job.slice/me.scope/cpu.max", "150000 100000");
  EXPECT_EQ(cgroup_cpu_quota(tree.root()), 1.5);
}

TEST(CpuLimit, MaxMeansNoQuota) {
  const TempTree tree;
  tree.write("proc/self/cgroup", "0::/me");
  tree.write("sys/fs/cgroup/me/cpu.max", "max 100000");
  EXPECT_EQ(cgroup_cpu_quota(tree.root()), std::nullopt);
}

TEST(CpuLimit, TightestQuotaOnTheWayUpCounts) {
  const TempTree tree;
  tree.write("proc/self/cgroup", "0::/a/b/c");
  tree.write("sys/fs/cgroup/a/cpu.max", "200000 100000");
  tree.write("sys/fs/cgroup/a/b/cpu.max", "max 100000");
  tree.write("sys/fs/cgroup/a/b/c/cpu.max", "800000 100000");
  EXPECT_EQ(cgroup_cpu_quota(tree.root()), 2.0);
}

TEST(CpuLimit, ContainerWithItsOwnNamespaceReadsTheMount) {
  const TempTree tree;
  tree.write("proc/self/cgroup", "0::/");
  tree.write("sys/fs/cgroup/cpu.max", "50000 100000");
  EXPECT_EQ(cgroup_cpu_quota(tree.root()), 0.5);
}

TEST(CpuLimit, ContainerThatSeesTheHostsPathFallsBackToTheMount) {
  const TempTree tree;
  tree.write("proc/self/cgroup", "4:cpu,cpuacct:/docker/0123456789\n0::/");
  tree.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "400000");
  tree.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000");
  EXPECT_EQ(cgroup_cpu_quota(tree.root()), 4.0);
}

TEST(CpuLimit, VersionOneQuotaIsReadAndMinusOneMeansNone) {
  const TempTree tree;
  tree.write("proc/self/cgroup", "3:cpuset:/x\n2:cpuacct:/x\n1:cpu:/x/y");
  tree.write("sys/fs/cgroup/cpu/x/y/cpu.cfs_quota_us", "-1");
  tree.write("sys/fs/cgroup/cpu/x/y/cpu.cfs_period_us", "100000");
  EXPECT_EQ(cgroup_cpu_quota(tree.root()), std::nullopt);
  tree.write("sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "300000");
  tree.write("sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000");
  EXPECT_EQ(cgroup_cpu_quota(tree.root()), 3.0);
}

TEST(CpuLimit, HybridHierarchiesAreBothRead) {
  const TempTree tree;
  tree.write("proc/self/cgroup", "1:cpu:/x\n0::/y");
  tree.write("sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "300000");
  tree.write("sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000");
  tree.write("sys/fs/cgroup/unified/y/cpu.max", "200000 100000");
  EXPECT_EQ(cgroup_cpu_quota(tree.root()), 2.0);
}

TEST(CpuLimit, JunkIsNoQuota) {
  const TempTree tree;
  tree.write("proc/self/cgroup", "junk\n:\n0::/../../../..\n1:cpu:/x");
  tree.write("sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "soon");
  tree.write("sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "0");
  tree.write("sys/fs/cgroup/cpu.max", "100000 0");
  EXPECT_EQ(cgroup_cpu_quota(tree.root()), std::nullopt);
}

TEST(CpuLimit, UsableCoresAreTheSmallerOfMaskAndQuotaRoundedUp) {
  const CpuSet eight{0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(usable_cores(eight, std::nullopt), 8);
  EXPECT_EQ(usable_cores(eight, 1.5), 2);
  EXPECT_EQ(usable_cores(eight, 0.1), 1);
  EXPECT_EQ(usable_cores(eight, 2.0), 2);
  EXPECT_EQ(usable_cores(eight, 1e12), 8);
  EXPECT_EQ(usable_cores({3}, 64.0), 1);
}

TEST(CpuLimit, WorkersShareTheCoresAndEachHasOne) {
  EXPECT_EQ(threads_per_worker(16, 4, 0), 4);
  EXPECT_EQ(threads_per_worker(16, 3, 0), 5);
  EXPECT_EQ(threads_per_worker(2, 8, 0), 1);
  EXPECT_EQ(threads_per_worker(16, 2, 4), 4);
  EXPECT_EQ(threads_per_worker(16, 4, 32), 4);
}

}  // namespace
}  // namespace muster
