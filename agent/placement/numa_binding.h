// Maps devices to CPUs in torchrun's four modes (--numa-binding):
//   node          all CPUs of the device's NUMA node
//   socket        all CPUs of every node on that node's socket
//   exclusive     an even share of the node's physical cores, with all their hardware threads; the
//                 node's first devices get one core more until the remainder is used up
//   core_complex  groups of CPUs with a common last-level cache, the largest first (then by lowest
//                 CPU); device k of the node gets group k modulo their number
// Always limited to the CPUs that the process may use. torchrun starts numactl for this; we set the
// affinity before exec. Pure.
#pragma once

#include <string>
#include <vector>

#include "agent/launch_spec.h"
#include "agent/placement/cpu_topology.h"
#include "rendezvous/base/error.h"

namespace muster {

// "node", "socket", "exclusive", "core-complex"; "none" for no binding.
std::string numa_binding_name(NumaBinding mode);

// Returns the CPU set of each device. `device_nodes`: the NUMA node of each. Fails with
// ExitCode::environment if a node does not exist, has no allowed CPU, or (exclusive) has fewer
// cores than devices. REQUIRES: mode is not none.
Result<std::vector<CpuSet>> bind_devices(NumaBinding mode, const CpuTopology& topology,
                                         const CpuSet& allowed,
                                         const std::vector<int>& device_nodes);

}  // namespace muster
