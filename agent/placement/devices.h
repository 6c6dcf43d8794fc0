// What the GPU driver reports about this node, as plain values, and their JSON form. The driver can
// hang in the kernel for minutes, so a short-lived child process queries it (nvml.h) and prints one
// line of JSON, which the agent parses here. A driver library may print anything on the child's
// stdout too, so the parser does not trust the line. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/error.h"

namespace muster {

// One slice of a GPU in MIG mode. CUDA addresses it by this name only, never by an index.
struct MigDevice {
  std::string uuid;  // "MIG-…"

  friend bool operator==(const MigDevice&, const MigDevice&) = default;
};

struct Gpu {
  int nvml_index = 0;            // The number that nvidia-smi shows.
  std::string uuid;              // "GPU-…"; empty if unknown.
  std::string pci_bus_id;        // As sysfs spells it: "0000:3b:00.0".
  std::string name;              // "NVIDIA H100 80GB HBM3"
  bool mig_enabled = false;      // True if the GPU is usable only through `mig`.
  std::vector<MigDevice> mig;    // Ordered as NVML lists them.
  std::optional<int> numa_node;  // Filled by add_locality() (cpu_topology.h), not by the driver.

  friend bool operator==(const Gpu&, const Gpu&) = default;
};

enum class DeviceSource {
  none,  // No driver on this machine, which is normal.
  nvml,  // The driver's management library answered.
  proc,  // Only /proc/driver/nvidia/gpus was there: MIG devices are not visible.
};

struct DeviceReport {
  DeviceSource source = DeviceSource::none;
  std::vector<Gpu> gpus;  // PCI order, which is CUDA_DEVICE_ORDER=PCI_BUS_ID.
  std::string problem;    // Why NVML did not answer; empty if it did.

  friend bool operator==(const DeviceReport&, const DeviceReport&) = default;
};

// A process that computes on a GPU at the time of the query.
struct GpuProcess {
  int nvml_index = 0;
  int pid = 0;
  uint64_t used_bytes = 0;  // Sum over all MIG slices; 0 if the driver does not know.

  friend bool operator==(const GpuProcess&, const GpuProcess&) = default;
};

// Format one line, without a newline.
std::string format_device_report(const DeviceReport& report);
std::string format_gpu_processes(const std::vector<GpuProcess>& processes);

// Parse the last non-empty line of `text`. Fail with ExitCode::internal on anything that the two
// functions above do not write.
Result<DeviceReport> parse_device_report(std::string_view text);
Result<std::vector<GpuProcess>> parse_gpu_processes(std::string_view text);

// Turns NVML's "00000000:3B:00.0" into sysfs's "0000:3b:00.0".
std::string normalized_pci_bus_id(std::string_view bus_id);

// "GPU 2 (GPU-8932f937…, 0000:3b:00.0)", for people. `mig_uuid` may be empty.
std::string device_label(const Gpu& gpu, std::string_view mig_uuid);

// ---- before a restart the GPU memory of the old processes must be free, or the new ones fail with
// "out of memory" on a machine that looks idle

// Those of `users` whose pid is in `old_pids` (workers of the last attempt and all their
// descendants), in the same order. The driver lists a dead process until its memory is freed, so an
// empty result means that it is free. In a container without the host's PID namespace the driver
// may report the host's pids, which match none: then there is no wait.
std::vector<GpuProcess> remaining_holders(const std::set<int>& old_pids,
                                          std::vector<GpuProcess> users);

// "GPU memory of the last attempt is still held: GPU 0 by pid 12 (3.1 GiB), GPU 1 by pid 4"; or "".
std::string describe_holders(const std::vector<GpuProcess>& holders);

}  // namespace muster
