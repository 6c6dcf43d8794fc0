// The output of --report-bindings: one table for the node with one row per worker, which shows
// where each worker will run before any is started. Pure.
#pragma once

#include <string>

#include "agent/placement/cpu_topology.h"
#include "agent/placement/placement.h"

namespace muster {

// Several lines, each terminated by a newline:
//   local rank  device                               NUMA node  cores                  threads
//   0           GPU 0 (GPU-8932f937…, 0000:3b:00.0)  0          0-15,64-79 (16 cores)  16
// A worker that is not bound runs on all allowed CPUs. `threads`: the OMP_NUM_THREADS of each.
// What is not known is a dash. The ranks are not known before the nodes have met.
std::string bindings_table(const Placement& placement, const CpuTopology& topology,
                           const CpuSet& allowed, const std::string& threads);

}  // namespace muster
