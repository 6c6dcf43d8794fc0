#include "rendezvous/base/cpu_limit.h"

#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sched.h>

#include "tests/fakes/temp_tree.h"

namespace muster {
namespace {

TEST(CpuLimit, AllowedCpusAreTheAffinityMask) {
  std::vector<int> restricted;
  std::vector<int> all;
  // On its own thread, since an affinity mask belongs to a thread.
  std::thread([&] {
    all = allowed_cpus();
    cpu_set_t mask;
    CPU_ZERO(&mask);
    CPU_SET(static_cast<size_t>(all.back()), &mask);
    ASSERT_EQ(sched_setaffinity(0, sizeof mask, &mask), 0);
    restricted = allowed_cpus();
  }).join();
  EXPECT_FALSE(all.empty());
  EXPECT_EQ(restricted, std::vector<int>{all.back()});
}

TEST(CpuLimit, NoCgroupMeansNoQuota) {
  const TempTree tree;
  EXPECT_EQ(cgroup_cpu_quota(tree.root()), kNoCpuQuota);
}

TEST(CpuLimit, VersionTwoQuotaIsRead) {
  const TempTree tree;
  tree.write("proc/self/cgroup", "0::/job.slice/me.scope");
  tree.write("sys/fs/cgroup/job.slice/me.scope/cpu.max", "150000 100000");
  EXPECT_EQ(cgroup_cpu_quota(tree.root()), 1.5);
}

TEST(CpuLimit, QuotaAndPeriodMustBePositive) {
  const TempTree tree;
  tree.write("proc/self/cgroup", "0::/me");
  for (const char* text :
       {"max 100000", "0 100000", "-1 100000", "100000 0", "100000", "", "three 100000"}) {
    tree.write("sys/fs/cgroup/me/cpu.max", text);
    EXPECT_EQ(cgroup_cpu_quota(tree.root()), kNoCpuQuota) << text;
  }
}

TEST(CpuLimit, TightestQuotaOnTheWayUpCounts) {
  const TempTree tree;
  tree.write("proc/self/cgroup", "0::/a/b/c");
  tree.write("sys/fs/cgroup/a/cpu.max", "200000 100000");
  tree.write("sys/fs/cgroup/a/b/cpu.max", "max 100000");
  tree.write("sys/fs/cgroup/a/b/c/cpu.max", "800000 100000");
  EXPECT_EQ(cgroup_cpu_quota(tree.root()), 2.0);
}

TEST(CpuLimit, SiblingGroupsDoNotCount) {
  const TempTree tree;
  tree.write("proc/self/cgroup", "0::/a/b");
  tree.write("sys/fs/cgroup/a/b/cpu.max", "400000 100000");
  tree.write("sys/fs/cgroup/a/bb/cpu.max", "100000 100000");
  tree.write("sys/fs/cgroup/a/b/c/cpu.max", "100000 100000");
  tree.write("sys/fs/cgroup/b/cpu.max", "100000 100000");
  EXPECT_EQ(cgroup_cpu_quota(tree.root()), 4.0);
}

TEST(CpuLimit, TheRootsQuotaAppliesToEveryGroup) {
  const TempTree tree;
  tree.write("sys/fs/cgroup/cpu.max", "100000 100000");
  tree.write("sys/fs/cgroup/a/cpu.max", "300000 100000");
  for (const char* group : {"/a", "/gone/b/c", "/../.."}) {
    tree.write("proc/self/cgroup", std::string("0::") + group);
    EXPECT_EQ(cgroup_cpu_quota(tree.root()), 1.0) << group;
  }
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
  EXPECT_EQ(cgroup_cpu_quota(tree.root()), kNoCpuQuota);
  tree.write("sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "300000");
  tree.write("sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000");
  EXPECT_EQ(cgroup_cpu_quota(tree.root()), 3.0);
}

// The hierarchies of other controllers, such as cpuset and cpuacct, hold no quota.
TEST(CpuLimit, OnlyTheControllerNamedCpuIsRead) {
  const TempTree tree;
  tree.write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "300000");
  tree.write("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000");
  for (const char* name : {"cpu", "cpu,cpuacct", "cpuacct,cpu", "x,cpu,y"}) {
    tree.write("proc/self/cgroup", "3:" + std::string(name) + ":/job");
    EXPECT_EQ(cgroup_cpu_quota(tree.root()), 3.0) << name;
  }
  for (const char* name : {"cpuset", "cpuacct", "name=cpu", "cpu2", "CPU"}) {
    tree.write("proc/self/cgroup", "3:" + std::string(name) + ":/job");
    EXPECT_EQ(cgroup_cpu_quota(tree.root()), kNoCpuQuota) << name;
  }
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
  EXPECT_EQ(cgroup_cpu_quota(tree.root()), kNoCpuQuota);
}

TEST(CpuLimit, UsableCoresAreTheSmallerOfMaskAndQuotaRoundedDown) {
  const std::vector<int> eight{0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(usable_cores(eight, kNoCpuQuota), 8);
  EXPECT_EQ(usable_cores(eight, 1.5), 1);
  EXPECT_EQ(usable_cores(eight, 0.1), 1);
  EXPECT_EQ(usable_cores(eight, 2.0), 2);
  EXPECT_EQ(usable_cores(eight, 3.9), 3);
  EXPECT_EQ(usable_cores(eight, 1e12), 8);
  EXPECT_EQ(usable_cores(eight, 1.00001), 1);
  EXPECT_EQ(usable_cores({3}, 64.0), 1);
  EXPECT_EQ(usable_cores(), usable_cores(allowed_cpus(), cgroup_cpu_quota()));
}

}  // namespace
}  // namespace muster
