#include "agent/placement/cpu_topology.h"

#include <gtest/gtest.h>

#include "tests/fakes/temp_tree.h"

namespace muster {
namespace {

void write_fake_cpu(const TempTree& tree, int cpu, const std::string& siblings, int package,
                    const std::string& cache_sharers) {
  const std::string folder = "devices/system/cpu/cpu" + std::to_string(cpu);
  tree.write(folder + "/topology/thread_siblings_list", siblings);
  tree.write(folder + "/topology/physical_package_id", std::to_string(package));
  // As on real machines: two caches of level 1, a private level 2, a shared level 3, other files.
  const struct {
    int index, level;
    const char* type;
    std::string shared;
  } caches[] = {{0, 1, "Data", siblings},
                {1, 1, "Instruction", siblings},
                {2, 2, "Unified", siblings},
                {3, 3, "Unified", cache_sharers}};
  for (const auto& cache : caches) {
    const std::string at = folder + "/cache/index" + std::to_string(cache.index);
    tree.write(at + "/level", std::to_string(cache.level));
    tree.write(at + "/type", cache.type);
    tree.write(at + "/shared_cpu_list", cache.shared);
  }
  tree.write(folder + "/cache/uevent", "");
}

TEST(CpuTopology, CoresSocketsCachesAndNodesAreRead) {
  const TempTree tree;
  tree.write("devices/system/cpu/online", "0-3");
  write_fake_cpu(tree, 0, "0,2", 0, "0,2");
  write_fake_cpu(tree, 1, "1,3", 1, "1,3");
  write_fake_cpu(tree, 2, "0,2", 0, "0,2");
  write_fake_cpu(tree, 3, "1,3", 1, "1,3");
  tree.write("devices/system/cpu/cpufreq/boost", "1");
  tree.write("devices/system/node/node0/cpulist", "0,2");
  tree.write("devices/system/node/node1/cpulist", "1,3");
  tree.write("devices/system/node/node10/cpulist", "");
  tree.write("devices/system/node/online", "0-1,10");
  const Result<CpuTopology> topology = read_cpu_topology(tree.root());
  ASSERT_TRUE(topology);
  EXPECT_EQ(*topology, (CpuTopology{{{0, 0, 0, 0}, {1, 1, 1, 1}, {2, 0, 0, 0}, {3, 1, 1, 1}},
                                    {{0, {0, 2}}, {1, {1, 3}}, {10, {}}}}));
}

TEST(CpuTopology, LeavesOutOfflineCpus) {
  const TempTree tree;
  tree.write("devices/system/cpu/online", "0,2");
  for (int cpu : {0, 1, 2})
    write_fake_cpu(tree, cpu, std::to_string(cpu), 0, "0-2");
  const Result<CpuTopology> topology = read_cpu_topology(tree.root());
  ASSERT_TRUE(topology);
  EXPECT_EQ(topology->find_cpu(1), nullptr);
  ASSERT_NE(topology->find_cpu(2), nullptr);
  EXPECT_EQ(*topology->find_cpu(2), (CpuPlace{2, 2, 0, 0}));
}

TEST(CpuTopology, MissingDetailsLeaveEachCpuOnItsOwnInNodeZero) {
  const TempTree tree;
  tree.write("devices/system/cpu/online", "0-1");
  tree.write("devices/system/cpu/cpu1/topology/physical_package_id", "-1");
  const Result<CpuTopology> topology = read_cpu_topology(tree.root());
  ASSERT_TRUE(topology);
  EXPECT_EQ(*topology, (CpuTopology{{{0, 0, 0, 0}, {1, 1, 0, 1}}, {{0, {0, 1}}}}));
}

TEST(CpuTopology, CountsTheFoldersIfThereIsNoOnlineFile) {
  const TempTree tree;
  for (int cpu : {0, 1, 10})
    write_fake_cpu(tree, cpu, std::to_string(cpu), 0, "0");
  const Result<CpuTopology> topology = read_cpu_topology(tree.root());
  ASSERT_TRUE(topology);
  EXPECT_EQ(topology->nodes, (std::vector<NumaNode>{{0, {0, 1, 10}}}));
}

TEST(CpuTopology, EmptyTreeIsAnErrorWithARemedy) {
  const TempTree tree;
  const Result<CpuTopology> topology = read_cpu_topology(tree.root());
  ASSERT_FALSE(topology);
  EXPECT_EQ(topology.error(),
            (Error{ExitCode::environment,
                   "cannot read the CPU topology from " + tree.root().string() +
                       "/devices/system/cpu: no CPUs there; mount sysfs, or leave --numa-binding "
                       "and --report-bindings out"}));
}

TEST(CpuTopology, ThisMachineCanBeRead) {
  const Result<CpuTopology> topology = read_cpu_topology();
  ASSERT_TRUE(topology) << topology.error().message;
  EXPECT_FALSE(topology->cpus.empty());
  EXPECT_FALSE(topology->nodes.empty());
}

TEST(CpuTopology, PhysicalCoresCountThreadsOnce) {
  const CpuTopology topology{{{0, 0, 0, 0}, {1, 1, 0, 0}, {2, 0, 0, 0}, {3, 1, 0, 0}}, {}};
  EXPECT_EQ(topology.physical_cores({0, 2}), 1);
  EXPECT_EQ(topology.physical_cores({0, 1, 2, 3}), 2);
  EXPECT_EQ(topology.physical_cores({0, 77}), 2);
  EXPECT_EQ(topology.physical_cores({}), 0);
}

TEST(PciLocality, NodeOfADeviceIsRead) {
  const TempTree tree;
  tree.write("bus/pci/devices/0000:3b:00.0/numa_node", "1");
  tree.write("bus/pci/devices/0000:4b:00.0/numa_node", "-1");
  tree.write("bus/pci/devices/0000:5b:00.0/numa_node", "junk");
  EXPECT_EQ(pci_numa_node("0000:3b:00.0", tree.root()), 1);
  EXPECT_EQ(pci_numa_node("0000:4b:00.0", tree.root()), 0);
  EXPECT_EQ(pci_numa_node("0000:5b:00.0", tree.root()), std::nullopt);
  EXPECT_EQ(pci_numa_node("0000:6b:00.0", tree.root()), std::nullopt);
}

TEST(PciLocality, NamesThatLeaveTheFolderAreRefused) {
  const TempTree tree;
  tree.write("bus/pci/numa_node", "1");
  EXPECT_EQ(pci_numa_node("../devices/..", tree.root()), std::nullopt);
  EXPECT_EQ(pci_numa_node("", tree.root()), std::nullopt);
}

TEST(PciLocality, EveryGpuOfAReportGetsItsNode) {
  const TempTree tree;
  tree.write("bus/pci/devices/0000:3b:00.0/numa_node", "1");
  DeviceReport report;
  report.gpus.resize(2);
  report.gpus[0].pci_bus_id = "0000:3b:00.0";
  report.gpus[1].pci_bus_id = "0000:af:00.0";
  add_locality(report, tree.root());
  EXPECT_EQ(report.gpus[0].numa_node, 1);
  EXPECT_EQ(report.gpus[1].numa_node, std::nullopt);
}

}  // namespace
}  // namespace muster
