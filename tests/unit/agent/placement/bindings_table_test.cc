#include <gtest/gtest.h>

#include "agent/placement/placement.h"

namespace muster {
namespace {

// CPUs 0 and 64 are one core, 1 and 65 another; 32 is a third.
const CpuTopology kTable{{{0, 0, 0, 0}, {1, 1, 0, 0}, {32, 32, 0, 0}, {64, 0, 0, 0}, {65, 1, 0, 0}},
                         {}};

TEST(BindingsTable, ColumnsLineUpUnderTheirNames) {
  Placement placement;
  placement.workers.resize(2);
  placement.workers[0].device = "GPU 0 (GPU-8932f937…, 0000:3b:00.0)";
  placement.workers[0].numa_node = 0;
  placement.workers[0].cpus = {0, 1, 64, 65};
  placement.workers[1].device = "GPU 1 (GPU-1, 0000:af:00.0)";
  placement.workers[1].numa_node = 1;
  placement.workers[1].cpus = {32};
  EXPECT_EQ(
      bindings_table(placement, kTable, {0}, "16"),
      "local rank  device                               NUMA node  cores                threads\n"
      "0           GPU 0 (GPU-8932f937…, 0000:3b:00.0)  0          0-1,64-65 (2 cores)  16\n"
      "1           GPU 1 (GPU-1, 0000:af:00.0)          1          32 (1 core)          16\n");
}

TEST(BindingsTable, ShowsADashForUnknownValuesAndAllCpusForAnUnboundWorker) {
  Placement placement;
  placement.workers.resize(1);
  EXPECT_EQ(bindings_table(placement, kTable, {0, 1, 32}, ""),
            "local rank  device  NUMA node  cores             threads\n"
            "0           -       -          0-1,32 (3 cores)  -\n");
}

}  // namespace
}  // namespace muster
