#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "agent/placement/devices.h"

namespace muster {
namespace {

TEST(GpuHolder, IsAnOldProcessThatTheDriverStillLists) {
  const std::vector<GpuProcess> users{{0, 10, 5}, {0, 20, 6}, {2, 10, 0}, {2, 30, 7}};
  EXPECT_EQ(remaining_holders({10, 30, 40}, users),
            (std::vector<GpuProcess>{{0, 10, 5}, {2, 10, 0}, {2, 30, 7}}));
  EXPECT_EQ(remaining_holders({1, 100, 11}, users), std::vector<GpuProcess>{});
  EXPECT_EQ(remaining_holders({}, users), std::vector<GpuProcess>{});
}

TEST(GpuHolder, IsNoProcessIfTheDriverListsNone) {
  EXPECT_EQ(remaining_holders({10}, {}), std::vector<GpuProcess>{});
}

std::set<int> any_pids() {
  const auto list = *rc::gen::container<std::vector<int>>(rc::gen::inRange(1, 20));
  return {list.begin(), list.end()};
}

RC_GTEST_PROP(GpuHolder, IsListedOnceForEachGpuInTheOrderOfTheReport, ()) {
  const std::set<int> old_pids = any_pids();
  std::vector<GpuProcess> users;
  std::vector<GpuProcess> expected;
  for (int gpu = 0; gpu < 3; ++gpu) {
    for (const int pid : any_pids()) {
      users.push_back({gpu, pid, uint64_t{1} << gpu});
      if (old_pids.contains(pid)) expected.push_back(users.back());
    }
  }
  RC_ASSERT(remaining_holders(old_pids, users) == expected);
}

TEST(GpuHolder, IsDescribedByGpuPidAndMemory) {
  const std::string held = "GPU memory of the last attempt is still held: ";
  constexpr uint64_t kGib = 1 << 30;
  const std::vector<std::pair<std::vector<GpuProcess>, std::string>> cases = {
      {{{0, 12, kGib}}, held + "GPU 0 by pid 12 (1.0 GiB)"},
      {{{7, 12, 0}}, held + "GPU 7 by pid 12"},
      {{{0, 12, kGib * 31 / 10}, {1, 13, kGib * 79}},
       held + "GPU 0 by pid 12 (3.1 GiB), GPU 1 by pid 13 (79.0 GiB)"},
      {{{0, 12, 0}, {0, 13, kGib / 2}, {0, 14, 0}, {3, 12, 0}},
       held + "GPU 0 by pid 12 and pid 13 (0.5 GiB) and pid 14, GPU 3 by pid 12"},
      {{}, ""},
  };
  for (const auto& [holders, text] : cases)
    EXPECT_EQ(describe_holders(holders), text);
}

}  // namespace
}  // namespace muster
