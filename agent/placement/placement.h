// Which worker gets which GPU and which CPUs, and what its environment says about it. Pure:
// devices, topology and inherited variables are handed in, so every rule can be tested on a machine
// without a GPU. The rules in short:
//   no flag         nothing is enumerated and nothing is written: the user's environment stands
//   shared          every worker sees the same ordered list and picks its LOCAL_RANK-th device
//   exclusive, --virtual-local-rank   every worker sees one device; LOCAL_RANK 0 unless kept
// An inherited CUDA_VISIBLE_DEVICES is the machine as the user wants us to see it: --gpus counts in
// it, and its entries are handed on in their own form. CUDA_DEVICE_ORDER=PCI_BUS_ID is added
// exactly when we write indices that we chose ourselves.
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
  // Only what differs from the inherited environment by our doing, in this order; nullopt: unset.
  std::vector<std::pair<std::string, std::optional<std::string>>> env;
  int local_rank = 0;  // The LOCAL_RANK to show, which is 0 for workers with a device each.
  CpuSet cpus;         // To be applied before exec. Empty: inherit.
  std::string device;  // "GPU 2 (GPU-8932f937…, 0000:3b:00.0)"; empty if not known.
  std::optional<int> numa_node;  // Of that device.

  friend bool operator==(const WorkerPlacement&, const WorkerPlacement&) = default;
};

struct Placement {
  std::vector<WorkerPlacement> workers;  // By local rank.
  std::vector<std::string> warnings;     // One line each, for stderr.

  friend bool operator==(const Placement&, const Placement&) = default;
};

// Fails with ExitCode::environment when the machine does not have what the flags ask for, and
// ExitCode::usage when the flags themselves make no sense. REQUIRES: workers > 0.
Result<Placement> place(const PlacementInput& input);

// The warnings for a job that asked for nothing: CUDA_VISIBLE_DEVICES names what is no device, or
// there are more workers than the GPUs that they see. `gpu_count` is quick_gpu_count()
// (proc_devices.h).
std::vector<std::string> quick_device_warnings(int workers, const InheritedDevices& inherited,
                                               std::optional<int> gpu_count);

}  // namespace muster
