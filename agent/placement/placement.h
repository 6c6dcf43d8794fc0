// Which GPU and which CPUs each worker gets, and what its environment says about them. Pure:
// devices, topology and inherited variables are passed in, so every rule can be tested on a machine
// without a GPU. The rules in short:
//   no flag         nothing is enumerated and nothing is written: the user's environment stands
//   shared          every worker sees the same ordered list and picks its LOCAL_RANK-th device
//   exclusive, --virtual-local-rank   every worker sees one device; LOCAL_RANK 0 unless kept
// An inherited CUDA_VISIBLE_DEVICES defines the devices that we may use: --gpus indexes into it,
// and its entries are passed on as they are. CUDA_DEVICE_ORDER=PCI_BUS_ID is added exactly when we
// write indices that we chose ourselves.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/launch_spec.h"
#include "agent/placement/cpu_topology.h"
#include "agent/placement/device_choice.h"
#include "agent/placement/devices.h"
#include "rendezvous/base/error.h"

namespace muster {

struct PlacementInput {
  PlacementSpec spec;
  InheritedDevices inherited;
  std::optional<DeviceReport> devices;  // After add_locality(); nullopt: not enumerated.
  std::optional<CpuTopology> topology;  // nullopt: not read.
  CpuSet allowed_cpus;
  int workers = 1;
};

struct WorkerPlacement {
  // Changes to the inherited environment, in this order; nullopt: unset.
  std::vector<std::pair<std::string, std::optional<std::string>>> env;
  int local_rank = 0;            // LOCAL_RANK: 0 for workers with one device each, unless kept.
  CpuSet cpus;                   // Applied before exec. Empty: inherit.
  std::string device;            // "GPU 2 (GPU-8932f937…, 0000:3b:00.0)"; empty if unknown.
  std::optional<int> numa_node;  // The device's.

  friend bool operator==(const WorkerPlacement&, const WorkerPlacement&) = default;
};

struct Placement {
  std::vector<WorkerPlacement> workers;  // Indexed by local rank.
  std::vector<std::string> warnings;     // One line each, for stderr.

  friend bool operator==(const Placement&, const Placement&) = default;
};

// Fails with ExitCode::environment if the machine lacks what the flags ask for, with
// ExitCode::usage if the flags make no sense. REQUIRES: workers > 0.
Result<Placement> place(const PlacementInput& input);

// Warnings for a job without device flags: CUDA_VISIBLE_DEVICES names a device that does not exist,
// or there are more workers than visible GPUs. `gpu_count`: quick_gpu_count() (proc_devices.h).
std::vector<std::string> quick_device_warnings(int workers, const InheritedDevices& inherited,
                                               std::optional<int> gpu_count);

// The output of --report-bindings: a table with one row per worker of the node, printed before any
// worker starts (and before global ranks are known). Each line ends with a newline:
//   local rank  device                               NUMA node  cores                  threads
//   0           GPU 0 (GPU-8932f937…, 0000:3b:00.0)  0          0-15,64-79 (16 cores)  16
// An unbound worker shows all allowed CPUs; an unknown value is a dash.
std::string bindings_table(const Placement& placement, const CpuTopology& topology,
                           const CpuSet& allowed, const std::string& threads);

// ---- --nproc-per-node as a number, the threads of each worker, and which look-ups a job needs: a
// query of the GPU driver can take seconds, so only flags that require it cause one.

// True if any flag needs the list of devices, or the CPU topology.
bool needs_devices(const LaunchSpec& spec);
bool needs_topology(const LaunchSpec& spec);

// `devices` is nullopt if needs_devices() is false.
//   gpu: the devices that workers would see; none is ExitCode::environment with the reason
//   auto: the same, or the usable cores if there is no device;  cpu: the usable cores
//   xpu: ExitCode::environment
// A number outside 1 to 65536 is ExitCode::usage.
Result<int> worker_count(const LaunchSpec& spec, const InheritedDevices& inherited,
                         const std::optional<DeviceReport>& devices, int usable);

// The OMP_NUM_THREADS of one worker: its share of the usable cores, but no more than the CPUs that
// it is bound to (0: not bound). At least 1. REQUIRES: workers > 0.
int threads_per_worker(int usable, int workers, int bound_cpus);

}  // namespace muster
