// The core, socket, NUMA node and last-level cache of each CPU, and the NUMA node of a PCI device.
// Read from sysfs, whose files are tiny and never block; hwloc would add 2.5 ms to every start. The
// root is a parameter for tests. Stateless.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/placement/devices.h"
#include "rendezvous/base/error.h"

namespace muster {

// CPU numbers, sorted and without duplicates.
using CpuSet = std::vector<int>;

// Convert the kernel's notation, "0-3,8,10-11", where the empty text is the empty set.
std::optional<CpuSet> parse_cpu_list(std::string_view text);
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
  // The number of physical cores with a CPU in the set. An unknown CPU counts as a core.
  int physical_cores(const CpuSet& set) const;

  friend bool operator==(const CpuTopology&, const CpuTopology&) = default;
};

// Fails with ExitCode::environment if the tree has no CPUs. Without node folders (a kernel without
// NUMA support) all CPUs are in node 0. A CPU of which details are missing (a virtual machine may
// hide the cache folder) is a core, or has a cache, of its own.
Result<CpuTopology> read_cpu_topology(const std::filesystem::path& sysfs = "/sys");

// nullopt if there is no such device; the kernel's -1 (only one node) becomes 0.
std::optional<int> pci_numa_node(const std::string& pci_bus_id,
                                 const std::filesystem::path& sysfs = "/sys");

// Sets Gpu::numa_node of every GPU.
void add_locality(DeviceReport& report, const std::filesystem::path& sysfs = "/sys");

}  // namespace muster
