#include "agent/placement/bindings_table.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(BindingsTable, ColumnsLineUpUnderTheirNames) {
  EXPECT_EQ(
      bindings_table({{0, "GPU 0 (GPU-8932f937…, 0000:3b:00.0)", 0, {0, 1, 64, 65}, 2, "2"},
                      {1, "GPU 1 (GPU-1, 0000:af:00.0)", 1, {32}, 1, "16"}}),
      "local rank  device                               NUMA node  cores                threads\n"
      "0           GPU 0 (GPU-8932f937…, 0000:3b:00.0)  0          0-1,64-65 (2 cores)  2\n"
      "1           GPU 1 (GPU-1, 0000:af:00.0)          1          32 (1 core)          16\n");
}

TEST(BindingsTable, WhatIsNotKnownIsADash) {
  EXPECT_EQ(bindings_table({{7, "", std::nullopt, {}, 0, ""}}),
            "local rank  device  NUMA node  cores  threads\n"
            "7           -       -          -      -\n");
}

TEST(BindingsTable, RowsSayWhereEachWorkerRuns) {
  Placement placement;
  placement.workers.resize(2);
  placement.workers[0].device = "GPU 0";
  placement.workers[0].numa_node = 1;
  placement.workers[0].cpus = {0, 2};
  const CpuTopology topology{{{0, 0, 0, 0}, {1, 1, 0, 0}, {2, 0, 0, 0}}, {}};
  const std::vector<BindingRow> rows = binding_rows(placement, topology, {0, 1, 2}, {"1", "2"});
  EXPECT_EQ(rows, (std::vector<BindingRow>{{0, "GPU 0", 1, {0, 2}, 1, "1"},
                                           {1, "", std::nullopt, {0, 1, 2}, 2, "2"}}));
}

}  // namespace
}  // namespace muster
