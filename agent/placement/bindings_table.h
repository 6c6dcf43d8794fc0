// The output of --report-bindings: one table for the node with one row per worker, which shows
// where each worker will run before any is started. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agent/placement/cpu_topology.h"
#include "agent/placement/placement.h"

namespace muster {

struct BindingRow {
  int local_rank = 0;            // The ranks are not known before the nodes have met.
  std::string device;            // Empty is shown as "-".
  std::optional<int> numa_node;  // nullopt is shown as "-".
  CpuSet cpus;                   // The CPUs that the worker may run on.
  int cores = 0;                 // The number of physical cores among these.
  std::string threads;           // The OMP_NUM_THREADS it gets; empty is shown as "-".

  friend bool operator==(const BindingRow&, const BindingRow&) = default;
};

// Several lines, each terminated by a newline:
//   local rank  device                               NUMA node  cores                  threads
//   0           GPU 0 (GPU-8932f937…, 0000:3b:00.0)  0          0-15,64-79 (16 cores)  16
std::string bindings_table(const std::vector<BindingRow>& rows);

// The rows of one node. `threads` holds one text per worker. A worker that is not bound runs on all
// allowed CPUs. REQUIRES: threads.size() == placement.workers.size().
std::vector<BindingRow> binding_rows(const Placement& placement, const CpuTopology& topology,
                                     const CpuSet& allowed,
                                     const std::vector<std::string>& threads);

}  // namespace muster
