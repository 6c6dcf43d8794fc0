// How many cores a process may use, by the files of control groups as the kernel writes them.
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include <gtest/gtest.h>
#include <sched.h>
#include <stdlib.h>

#include "worker_lib/backends/cpu/cpu_limits.h"

namespace muster::worker {
namespace {

// A made-up /sys/fs/cgroup.
class CgroupTree {
 public:
  CgroupTree() {
    std::string pattern = std::filesystem::temp_directory_path() / "muster-cgroup-XXXXXX";
    root_ = ::mkdtemp(pattern.data());
  }
  ~CgroupTree() { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  const std::string& root() const { return root_; }

 private:
  std::string root_;
};

TEST(CpuLimits, AQuotaOfVersionTwoIsRoundedUpToCores) {
  const CgroupTree tree;
  tree.write("/job/pod/cpu.max", "250000 100000\n");
  EXPECT_EQ(quota_cores("0::/job/pod\n", tree.root()), 3);
}

TEST(CpuLimits, TheTightestGroupOnTheWayUpCounts) {
  const CgroupTree tree;
  tree.write("/job/pod/cpu.max", "max 100000\n");
  tree.write("/job/cpu.max", "150000 100000\n");
  tree.write("/cpu.max", "800000 100000\n");
  EXPECT_EQ(quota_cores("0::/job/pod\n", tree.root()), 2);
}

TEST(CpuLimits, AQuotaOfVersionOneIsFoundBelowItsController) {
  const CgroupTree tree;
  tree.write("/cpu/docker/abc/cpu.cfs_quota_us", "50000\n");
  tree.write("/cpu/docker/abc/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota_cores("12:memory:/x\n4:cpu,cpuacct:/docker/abc\n0::/\n", tree.root()), 1);
}

TEST(CpuLimits, NoQuotaIsNoLimit) {
  const CgroupTree tree;
  tree.write("/cpu/cpu.cfs_quota_us", "-1\n");
  tree.write("/cpu/cpu.cfs_period_us", "100000\n");
  tree.write("/cpu.max", "max 100000\n");
  EXPECT_EQ(quota_cores("4:cpu:/\n0::/\n", tree.root()), std::nullopt);
}

TEST(CpuLimits, NonsenseIsNoLimit) {
  const CgroupTree tree;
  tree.write("/cpu.max", "three 100000\n");
  for (const char* text : {"", "\n", "nonsense", "0:", "0::/", "0::/../..", "4:cpu:/gone\n"}) {
    EXPECT_EQ(quota_cores(text, tree.root()), std::nullopt) << text;
  }
}

TEST(CpuLimits, UsableCoresAreThoseOfTheAffinityMaskAtMost) {
  cpu_set_t all;
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  EXPECT_GE(usable_cores(), 1);
  EXPECT_LE(usable_cores(), CPU_COUNT(&all));
  cpu_set_t one;
  CPU_ZERO(&one);
  int core = 0;
  while (!CPU_ISSET(core, &all))
    ++core;
  CPU_SET(core, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(usable_cores(), 1);
  sched_setaffinity(0, sizeof all, &all);
}

}  // namespace
}  // namespace muster::worker
