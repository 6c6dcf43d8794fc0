#include "worker_lib/joining/gpu_count.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/fakes/temp_tree.h"

namespace muster::worker {
namespace {

TEST(GpuCount, CountsOnlyDeviceFilesOfGpus) {
  const TempTree folder;
  for (const char* name : {"nvidia", "nvidiactl", "nvidia-uvm", "nvidia-modeset", "nvidia0x",
                           "xnvidia0", "nvidia-caps/nvidia-cap1"})
    folder.write(name, "");
  EXPECT_EQ(count_visible_gpus({}, folder.root().string()), 0);
  folder.write("nvidia7", "");
  folder.write("nvidia10", "");
  EXPECT_EQ(count_visible_gpus({}, folder.root().string()), 2);
  EXPECT_EQ(count_visible_gpus({}, folder.root().string() + "/none"), 0);
  const TempTree windows;
  windows.write("dxg", "");
  EXPECT_EQ(count_visible_gpus({}, windows.root().string()), 1);
}

TEST(GpuCount, ReadsTheListUpToTheEntryThatEndsIt) {
  const TempTree folder;
  for (const char* name : {"nvidia0", "nvidia1", "nvidia2", "nvidia3"})
    folder.write(name, "");
  const std::vector<std::pair<const char*, int>> cases{
      {"", 0},       {",0", 0},         {"0,,1", 1},   {"0,1,", 2},
      {"1,-1,0", 1}, {"-1,0", 0},       {"NoSuch", 1}, {"GPU-8932f937,MIG-1", 2},
      {"0,0", 2},    {"9,8,7,6,5,4", 4}};
  for (const auto& [list, count] : cases)
    EXPECT_EQ(count_visible_gpus(list, folder.root().string()), count) << list;
}

}  // namespace
}  // namespace muster::worker
