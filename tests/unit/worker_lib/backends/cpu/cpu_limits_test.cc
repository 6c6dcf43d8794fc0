#include "worker_lib/backends/cpu/cpu_limits.h"

#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/fakes/temp_tree.h"

namespace muster::worker {
namespace {

std::optional<int> quota_of_text(const std::string& cpu_max) {
  const TempTree tree;
  tree.write("cpu.max", cpu_max);
  return quota_cores("0::/\n", tree.root().string());
}

TEST(QuotaCores, AnyPartOfACoreIsACore) {
  struct Case {
    const char* cpu_max;
    std::optional<int> cores;
  };
  const std::vector<Case> cases{
      {"1 100000", 1},
      {"99999 100000", 1},
      {"100000 100000", 1},
      {"100001 100000", 2},
      {"200000 100000", 2},
      {"150000 50000", 3},
      {"1 1", 1},
      {"4000000000000 1", 1 << 20},
      {"9223372036854775807 1000000", 1 << 20},
      {"0 100000", {}},
      {"-1 100000", {}},
      {"100000 0", {}},
      {"100000", {}},
      {"", {}},
      {"max 100000", {}},
  };
  for (const Case& one : cases)
    EXPECT_EQ(quota_of_text(one.cpu_max), one.cores) << one.cpu_max;
}

TEST(QuotaCores, GroupsBesideTheOwnOneDoNotCount) {
  const TempTree tree;
  tree.write("a/b/cpu.max", "400000 100000");
  tree.write("a/bb/cpu.max", "100000 100000");
  tree.write("a/b/c/cpu.max", "100000 100000");
  tree.write("b/cpu.max", "100000 100000");
  EXPECT_EQ(quota_cores("0::/a/b\n", tree.root().string()), 4);
  EXPECT_EQ(quota_cores("0::/a/b", tree.root().string()), 4) << "without the last newline";
}

TEST(QuotaCores, TheRootsQuotaCountsForAll) {
  const TempTree tree;
  tree.write("cpu.max", "100000 100000");
  tree.write("a/cpu.max", "300000 100000");
  EXPECT_EQ(quota_cores("0::/a\n", tree.root().string()), 1);
  EXPECT_EQ(quota_cores("0::/gone/b/c\n", tree.root().string()), 1);
}

// cpuset and cpuacct are other controllers, whose hierarchies say nothing of a quota.
TEST(QuotaCores, OnlyTheControllerOfThatNameIsAsked) {
  const TempTree tree;
  tree.write("cpu/job/cpu.cfs_quota_us", "300000");
  tree.write("cpu/job/cpu.cfs_period_us", "100000");
  const std::string root = tree.root().string();
  for (const char* name : {"cpu", "cpu,cpuacct", "cpuacct,cpu", "x,cpu,y"})
    EXPECT_EQ(quota_cores("3:" + std::string(name) + ":/job\n", root), 3) << name;
  for (const char* name : {"cpuset", "cpuacct", "name=cpu", "cpu2", "CPU"})
    EXPECT_EQ(quota_cores("3:" + std::string(name) + ":/job\n", root), std::nullopt) << name;
}

TEST(QuotaCores, OfBothVersionsTheTighterCounts) {
  const TempTree tree;
  tree.write("cpu/job/cpu.cfs_quota_us", "300000");
  tree.write("cpu/job/cpu.cfs_period_us", "100000");
  tree.write("slice/cpu.max", "200000 100000");
  const std::string root = tree.root().string();
  EXPECT_EQ(quota_cores("4:cpu:/job\n0::/slice\n", root), 2);
  tree.write("slice/cpu.max", "700000 100000");
  EXPECT_EQ(quota_cores("4:cpu:/job\n0::/slice\n", root), 3);
}

}  // namespace
}  // namespace muster::worker
