// --nproc-per-node as a number, the threads of each worker, and which look-ups a job needs: a query
// of the GPU driver can take seconds, so only flags that require it cause one. Pure.
#pragma once

#include <optional>

#include "agent/launch_spec.h"
#include "agent/placement/device_choice.h"
#include "agent/placement/devices.h"
#include "rendezvous/base/error.h"

namespace muster {

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
