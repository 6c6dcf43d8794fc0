// Which core, socket, NUMA node and last-level cache each CPU belongs to, and which NUMA node a PCI
// device is close to. Read from sysfs, whose files are tiny and never block; hwloc would add 2.5 ms
// to every start. The root is a parameter so that tests can use an artificial tree. Stateless.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/placement/devices.h"
#include "rendezvous/base/error.h"

namespace muster {

// Sets of CPUs in the kernel's own notation, "0-3,8,10-11". A set is a sorted vector without
// duplicates, which prints and compares predictably. Pure.
using CpuSet = std::vector<int>;

// nullopt if the text is not such a list; white space at the ends and the empty list are accepted.
std::optional<CpuSet> parse_cpu_list(std::string_view text);

// "0-3,8"; empty for the empty set.
std::string format_cpu_list(const CpuSet& cpus);

CpuSet intersect_cpus(const CpuSet& a, const CpuSet& b);

struct CpuPlace {
  int cpu = 0;
  int core = 0;     // The lowest CPU among the hardware threads of the same physical core.
  int package = 0;  // The socket.
  int cache = 0;    // The lowest CPU that shares the last-level cache.

  friend bool operator==(const CpuPlace&, const CpuPlace&) = default;
};

struct NumaNode {
  int node = 0;
  CpuSet cpus;

  friend bool operator==(const NumaNode&, const NumaNode&) = default;
};

struct CpuTopology {
  std::vector<CpuPlace> cpus;   // Sorted by CPU number.
  std::vector<NumaNode> nodes;  // Sorted by node number; nodes without CPUs included.

  const CpuPlace* find_cpu(int cpu) const;
  const NumaNode* find_node(int node) const;
  // The number of physical cores that the set touches. An unknown CPU counts as a core of its own.
  int physical_cores(const CpuSet& set) const;

  friend bool operator==(const CpuTopology&, const CpuTopology&) = default;
};

// Fails with ExitCode::environment if the tree has no CPUs. A kernel without NUMA support has no
// node folder: all its CPUs are node 0. If a detail is missing (such as a hidden cache folder in a
// virtual machine), the CPU counts as a core of its own, or has a cache of its own.
Result<CpuTopology> read_cpu_topology(const std::filesystem::path& sysfs = "/sys");

// The NUMA node to which the PCI device is attached; the kernel's -1 (only one node) becomes 0.
// nullopt if there is no such device.
std::optional<int> pci_numa_node(const std::string& pci_bus_id,
                                 const std::filesystem::path& sysfs = "/sys");

// Fills Gpu::numa_node of every GPU.
void add_locality(DeviceReport& report, const std::filesystem::path& sysfs = "/sys");

}  // namespace muster
