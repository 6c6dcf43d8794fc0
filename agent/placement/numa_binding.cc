#include "agent/placement/numa_binding.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>

#include <fmt/format.h>

#include "rendezvous/base/enum_name.h"
#include "rendezvous/base/text.h"

namespace muster {
namespace {

tl::unexpected<Error> cannot_bind(NumaBinding mode, std::string_view why) {
  return fail(
      ExitCode::environment,
      fmt::format("--numa-binding {}: {}; leave the flag out, choose other GPUs, or give the "
                  "job more CPUs",
                  numa_binding_name(mode), why));
}

// CPUs by group. A group's key is its lowest CPU, allowed or not, so that the order of the groups
// does not depend on which CPUs are allowed.
std::map<int, CpuSet> grouped_cpus(const CpuTopology& topology, const CpuSet& cpus,
                                   int CpuPlace::* group) {
  std::map<int, CpuSet> groups;
  for (const int cpu : cpus) {
    const CpuPlace* place = topology.find_cpu(cpu);
    groups[place == nullptr ? cpu : place->*group].push_back(cpu);
  }
  return groups;
}

// The socket of the node's lowest known CPU; -1 if it has none.
int package_of_node(const CpuTopology& topology, const NumaNode& node) {
  for (const int cpu : node.cpus) {
    if (const CpuPlace* place = topology.find_cpu(cpu)) return place->package;
  }
  return -1;
}

CpuSet socket_cpus(const CpuTopology& topology, const NumaNode& node) {
  const int package = package_of_node(topology, node);
  CpuSet cpus;
  for (const NumaNode& other : topology.nodes) {
    if (package_of_node(topology, other) != package) continue;
    cpus.insert(cpus.end(), other.cpus.begin(), other.cpus.end());
  }
  std::sort(cpus.begin(), cpus.end());
  return cpus;
}

Result<CpuSet> exclusive_cpus(const CpuTopology& topology, const CpuSet& allowed, int node,
                              size_t k, size_t count) {
  const std::map<int, CpuSet> cores = grouped_cpus(topology, allowed, &CpuPlace::core);
  const size_t each = cores.size() / count;
  const size_t extra = cores.size() % count;
  if (each == 0) {
    return cannot_bind(NumaBinding::exclusive,
                       fmt::format("NUMA node {} has {} for {}", node,
                                   counted(cores.size(), "usable core"), counted(count, "device")));
  }
  auto core = std::next(cores.begin(), static_cast<std::ptrdiff_t>(k * each + std::min(k, extra)));
  CpuSet cpus;
  for (size_t left = each + (k < extra ? 1 : 0); left > 0; --left, ++core)
    cpus.insert(cpus.end(), core->second.begin(), core->second.end());
  std::sort(cpus.begin(), cpus.end());
  return cpus;
}

CpuSet core_complex_cpus(const CpuTopology& topology, const CpuSet& allowed, size_t k) {
  std::vector<CpuSet> groups;
  for (auto& [cache, cpus] : grouped_cpus(topology, allowed, &CpuPlace::cache)) {
    groups.push_back(cpus);
  }
  std::sort(groups.begin(), groups.end(), [](const CpuSet& a, const CpuSet& b) {
    return a.size() != b.size() ? a.size() > b.size() : a < b;
  });
  return groups[k % groups.size()];
}

struct DevicePosition {
  int node = 0;
  size_t k = 0;      // Index among the devices of its node, in device order.
  size_t count = 0;  // Number of devices of its node.
};

Result<CpuSet> bind_one(NumaBinding mode, const CpuTopology& topology, const CpuSet& allowed,
                        const DevicePosition& device) {
  const NumaNode* node = topology.find_node(device.node);
  if (node == nullptr) {
    return cannot_bind(mode, fmt::format("sysfs shows no NUMA node {}", device.node));
  }
  const CpuSet local = intersect_cpus(
      mode == NumaBinding::socket ? socket_cpus(topology, *node) : node->cpus, allowed);
  if (local.empty()) {
    return cannot_bind(
        mode, fmt::format("a GPU is on NUMA node {} with CPUs {}, but the job may "
                          "use {} only",
                          device.node, node->cpus.empty() ? "none" : format_cpu_list(node->cpus),
                          format_cpu_list(allowed)));
  }
  if (mode == NumaBinding::exclusive) {
    return exclusive_cpus(topology, local, device.node, device.k, device.count);
  }
  if (mode == NumaBinding::core_complex) return core_complex_cpus(topology, local, device.k);
  return local;
}

}  // namespace

std::string numa_binding_name(NumaBinding mode) {
  return name_in<NumaBinding::core_complex>({"none", "node", "socket", "exclusive", "core-complex"},
                                            mode);
}

Result<std::vector<CpuSet>> bind_devices(NumaBinding mode, const CpuTopology& topology,
                                         const CpuSet& allowed,
                                         const std::vector<int>& device_nodes) {
  CHECK(mode != NumaBinding::none);
  std::map<int, size_t> devices_on_node;
  for (const int node : device_nodes)
    ++devices_on_node[node];
  std::map<int, size_t> next_on_node;
  std::vector<CpuSet> sets;
  for (const int node : device_nodes) {
    Result<CpuSet> cpus =
        bind_one(mode, topology, allowed, {node, next_on_node[node]++, devices_on_node[node]});
    if (!cpus) return tl::unexpected<Error>(cpus.error());
    sets.push_back(std::move(*cpus));
  }
  return sets;
}

}  // namespace muster
