// Which GPU and which CPUs each worker gets, and what its environment says about them. Pure:
// devices, topology and inherited variables are passed in, so every rule can be tested on a machine
// without a GPU. The rules in short:
//   no flag         nothing is enumerated and nothing is written: the user's environment stands
//   shared          every worker sees the same ordered list and picks its LOCAL_RANK-th device
//   exclusive, --virtual-local-rank   every worker sees one device; LOCAL_RANK 0 unless kept
// An inherited CUDA_VISIBLE_DEVICES defines the machine that the user wants us to see: --gpus
// indexes into it, and its entries are passed on in their own form. CUDA_DEVICE_ORDER=PCI_BUS_ID is
// added exactly when we write indices that we chose ourselves.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/launch_spec.h"
#include "agent/placement/cpu_topology.h"
#include "agent/placement/device_choice.h"
#include "agent/placement/devices.h"
#include "agent/placement/worker_count.h"
#include "rendezvous/base/error.h"

namespace muster {

struct PlacementInput {
  PlacementSpec spec;
  InheritedDevices inherited;
  std::optional<DeviceReport> devices;  // nullopt: not enumerated. With add_locality() applied.
  std::optional<CpuTopology> topology;  // nullopt: not read.
  CpuSet allowed_cpus;
  int workers = 1;
};

struct WorkerPlacement {
  // Only variables that we change in the inherited environment, in this order; nullopt: unset.
  std::vector<std::pair<std::string, std::optional<std::string>>> env;
  int local_rank = 0;            // The LOCAL_RANK to show: 0 for workers with a device each.
  CpuSet cpus;                   // Applied before exec. Empty: inherit.
  std::string device;            // "GPU 2 (GPU-8932f937…, 0000:3b:00.0)"; empty if unknown.
  std::optional<int> numa_node;  // Of that device.

  friend bool operator==(const WorkerPlacement&, const WorkerPlacement&) = default;
};

struct Placement {
  std::vector<WorkerPlacement> workers;  // By local rank.
  std::vector<std::string> warnings;     // One line each, for stderr.

  friend bool operator==(const Placement&, const Placement&) = default;
};

// Fails with ExitCode::environment if the machine lacks what the flags ask for, and with
// ExitCode::usage if the flags themselves make no sense. REQUIRES: workers > 0.
Result<Placement> place(const PlacementInput& input);

// The warnings for a job without device flags: CUDA_VISIBLE_DEVICES names a device that does not
// exist, or there are more workers than GPUs that they see. `gpu_count` is quick_gpu_count()
// (proc_devices.h).
std::vector<std::string> quick_device_warnings(int workers, const InheritedDevices& inherited,
                                               std::optional<int> gpu_count);

// The output of --report-bindings: one table for the node with one row per worker, which shows
// where each worker will run before any is started. Several lines, each terminated by a newline:
//   local rank  device                               NUMA node  cores                  threads
//   0           GPU 0 (GPU-8932f937…, 0000:3b:00.0)  0          0-15,64-79 (16 cores)  16
// A worker that is not bound runs on all allowed CPUs. `threads`: the OMP_NUM_THREADS of each.
// What is not known is a dash. The ranks are not known before the nodes have met.
std::string bindings_table(const Placement& placement, const CpuTopology& topology,
                           const CpuSet& allowed, const std::string& threads);

}  // namespace muster
