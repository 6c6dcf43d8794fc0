#include "agent/placement/numa_binding.h"

#include <algorithm>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace muster {
namespace {

CpuSet cpu_range(int first, int last) {
  CpuSet cpus;
  for (int cpu = first; cpu <= last; ++cpu)
    cpus.push_back(cpu);
  return cpus;
}

// Two sockets of two NUMA nodes of four cores with two threads each: core c has the CPUs c and
// c + 16, node n the cores 4n to 4n+3, socket s the nodes 2s and 2s+1. Two cores share a cache.
CpuTopology two_socket_topology() {
  CpuTopology topology;
  for (int cpu = 0; cpu < 32; ++cpu) {
    const int core = cpu % 16;
    topology.cpus.push_back({cpu, core, core / 8, core - core % 2});
  }
  for (int node = 0; node < 4; ++node) {
    CpuSet cpus = cpu_range(node * 4, node * 4 + 3);
    for (int cpu = 16 + node * 4; cpu < 20 + node * 4; ++cpu)
      cpus.push_back(cpu);
    topology.nodes.push_back({node, cpus});
  }
  return topology;
}

CpuSet all_32_cpus() {
  return cpu_range(0, 31);
}

using Sets = std::vector<CpuSet>;

Sets bound_sets(NumaBinding mode, const CpuSet& allowed, const std::vector<int>& nodes) {
  const Result<Sets> sets = bind_devices(mode, two_socket_topology(), allowed, nodes);
  if (!sets) ADD_FAILURE() << sets.error().message;
  return sets.value_or(Sets());
}

TEST(NumaBinding, NodeGivesAllCpusOfTheNode) {
  EXPECT_EQ(bound_sets(NumaBinding::node, all_32_cpus(), {0, 3, 0}),
            (Sets{{0, 1, 2, 3, 16, 17, 18, 19},
                  {12, 13, 14, 15, 28, 29, 30, 31},
                  {0, 1, 2, 3, 16, 17, 18, 19}}));
}

TEST(NumaBinding, NodeStaysInsideTheAllowedCpus) {
  EXPECT_EQ(bound_sets(NumaBinding::node, {1, 2, 9, 17}, {0}), (Sets{{1, 2, 17}}));
}

TEST(NumaBinding, SocketGivesAllNodesOfTheSocket) {
  CpuSet second = cpu_range(8, 15);
  for (int cpu = 24; cpu <= 31; ++cpu)
    second.push_back(cpu);
  EXPECT_EQ(bound_sets(NumaBinding::socket, all_32_cpus(), {2}), (Sets{second}));
  EXPECT_EQ(bound_sets(NumaBinding::socket, cpu_range(6, 9), {3}), (Sets{{8, 9}}));
}

TEST(NumaBinding, SocketIsKnownEvenIfTheNodeItselfIsOutOfBounds) {
  // torchrun fails here: it looks for the socket among the allowed CPUs of the node.
  EXPECT_EQ(bound_sets(NumaBinding::socket, {4, 5}, {0}), (Sets{{4, 5}}));
}

TEST(NumaBinding, ExclusiveSharesCoresWithTheirThreads) {
  EXPECT_EQ(bound_sets(NumaBinding::exclusive, all_32_cpus(), {0, 0}),
            (Sets{{0, 1, 16, 17}, {2, 3, 18, 19}}));
}

TEST(NumaBinding, ExclusiveGivesTheRemainderToTheFirstDevices) {
  EXPECT_EQ(bound_sets(NumaBinding::exclusive, all_32_cpus(), {1, 1, 1}),
            (Sets{{4, 5, 20, 21}, {6, 22}, {7, 23}}));
}

TEST(NumaBinding, ExclusiveCountsDevicesPerNode) {
  EXPECT_EQ(bound_sets(NumaBinding::exclusive, all_32_cpus(), {0, 1, 0}),
            (Sets{{0, 1, 16, 17}, {4, 5, 6, 7, 20, 21, 22, 23}, {2, 3, 18, 19}}));
}

TEST(NumaBinding, ExclusiveSharesOnlyWhatIsAllowed) {
  EXPECT_EQ(bound_sets(NumaBinding::exclusive, {0, 2, 3, 18}, {0, 0}), (Sets{{0, 2, 18}, {3}}));
}

TEST(NumaBinding, ExclusiveNeedsACoreForEachDevice) {
  const Result<Sets> sets =
      bind_devices(NumaBinding::exclusive, two_socket_topology(), {0, 16}, {0, 0});
  ASSERT_FALSE(sets);
  EXPECT_EQ(sets.error(),
            (Error{ExitCode::environment,
                   "--numa-binding exclusive: NUMA node 0 has 1 usable core for 2 devices; leave "
                   "the flag out, choose other GPUs, or give the job more CPUs"}));
}

TEST(NumaBinding, CoreComplexHandsOutCachesInTurn) {
  EXPECT_EQ(bound_sets(NumaBinding::core_complex, all_32_cpus(), {0, 0, 0, 2}),
            (Sets{{0, 1, 16, 17}, {2, 3, 18, 19}, {0, 1, 16, 17}, {8, 9, 24, 25}}));
}

TEST(NumaBinding, CoreComplexPrefersCachesWithMoreAllowedCpus) {
  EXPECT_EQ(bound_sets(NumaBinding::core_complex, {0, 1, 2, 3, 18}, {0, 0}),
            (Sets{{2, 3, 18}, {0, 1}}));
}

TEST(NumaBinding, NodeOutsideTheAllowedCpusIsAnErrorThatNamesBoth) {
  const Result<Sets> sets = bind_devices(NumaBinding::node, two_socket_topology(), {0, 1}, {0, 1});
  ASSERT_FALSE(sets);
  EXPECT_EQ(sets.error().message,
            "--numa-binding node: a GPU is on NUMA node 1 with CPUs 4-7,20-23, but the job may use "
            "0-1 only; leave the flag out, choose other GPUs, or give the job more CPUs");
}

TEST(NumaBinding, UnknownNodeIsAnError) {
  const Result<Sets> sets =
      bind_devices(NumaBinding::core_complex, two_socket_topology(), all_32_cpus(), {9});
  ASSERT_FALSE(sets);
  EXPECT_EQ(sets.error().message,
            "--numa-binding core-complex: sysfs shows no NUMA node 9; leave the flag out, choose "
            "other GPUs, or give the job more CPUs");
}

TEST(NumaBinding, NodeWithoutCpusIsAnError) {
  CpuTopology topology = two_socket_topology();
  topology.nodes.push_back({4, {}});
  for (const NumaBinding mode : {NumaBinding::node, NumaBinding::exclusive,
                                 NumaBinding::core_complex, NumaBinding::socket}) {
    EXPECT_FALSE(bind_devices(mode, topology, all_32_cpus(), {4}));
  }
}

TEST(NumaBinding, NamesAreTheFlagsValues) {
  EXPECT_EQ(numa_binding_name(NumaBinding::none), "none");
  EXPECT_EQ(numa_binding_name(NumaBinding::node), "node");
  EXPECT_EQ(numa_binding_name(NumaBinding::socket), "socket");
  EXPECT_EQ(numa_binding_name(NumaBinding::exclusive), "exclusive");
  EXPECT_EQ(numa_binding_name(NumaBinding::core_complex), "core-complex");
}

CpuSet any_cpus() {
  CpuSet cpus;
  for (int cpu = 0; cpu < 32; ++cpu) {
    if (*rc::gen::arbitrary<bool>()) cpus.push_back(cpu);
  }
  return cpus;
}

// Returns the nodes of a few devices: most nodes have enough cores for them.
std::vector<int> any_device_nodes() {
  return *rc::gen::container<std::vector<int>>(*rc::gen::inRange<size_t>(1, 7),
                                               rc::gen::inRange(0, 4));
}

RC_GTEST_PROP(NumaBindingProperty, SetsAreSortedAllowedAndNeverEmpty, ()) {
  const CpuSet allowed = any_cpus();
  const std::vector<int> nodes = any_device_nodes();
  const auto mode = *rc::gen::element(NumaBinding::node, NumaBinding::socket,
                                      NumaBinding::exclusive, NumaBinding::core_complex);
  const Result<Sets> sets = bind_devices(mode, two_socket_topology(), allowed, nodes);
  RC_PRE(sets.has_value());
  RC_ASSERT(sets->size() == nodes.size());
  for (const CpuSet& cpus : *sets) {
    RC_ASSERT(!cpus.empty());
    RC_ASSERT(intersect_cpus(cpus, allowed) == cpus);
  }
}

RC_GTEST_PROP(NumaBindingProperty, ExclusiveSetsUseEveryCpuOfTheNodeOnce, ()) {
  const CpuSet allowed = any_cpus();
  const std::vector<int> nodes = any_device_nodes();
  const Result<Sets> sets =
      bind_devices(NumaBinding::exclusive, two_socket_topology(), allowed, nodes);
  RC_PRE(sets.has_value());
  const CpuTopology topology = two_socket_topology();
  for (const NumaNode& node : topology.nodes) {
    CpuSet given;
    int fewest = 1000;
    int most = 0;
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (nodes[i] != node.node) continue;
      given.insert(given.end(), (*sets)[i].begin(), (*sets)[i].end());
      fewest = std::min(fewest, topology.physical_cores((*sets)[i]));
      most = std::max(most, topology.physical_cores((*sets)[i]));
    }
    if (given.empty()) continue;
    std::sort(given.begin(), given.end());
    RC_ASSERT(given == intersect_cpus(node.cpus, allowed));
    RC_ASSERT(most - fewest <= 1);
  }
}

}  // namespace
}  // namespace muster
