// The ordered list of devices that this node's workers may use, from the machine's devices, those
// that the user's environment makes visible, and those that --gpus picks from them. Counting and
// placing workers both start here, so they cannot disagree. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agent/launch_spec.h"
#include "agent/placement/devices.h"
#include "agent/placement/visible_devices.h"
#include "rendezvous/base/error.h"

namespace muster {

// The variables that the launcher itself was started with; nullopt: not set.
struct InheritedDevices {
  std::optional<std::string> cuda_visible_devices;
  std::optional<std::string> hip_visible_devices;
  std::optional<std::string> cuda_device_order;
};

struct DeviceChoice {
  std::vector<DeviceSlot> slots;
  bool known = false;      // The slots were checked against real devices.
  bool inherited = false;  // They come from the user's variable named in `variable`.
  bool chosen = false;     // --gpus picked them.
  bool repeated = false;   // The list has a device twice; CUDA then shows a process nothing.
  std::string variable;    // "CUDA_VISIBLE_DEVICES=0,2"; empty if not inherited.
  std::string why_short;   // Why there are no more devices than these; may be empty.
  std::string cut_short;   // Where and why an inherited list is cut short; else empty.

  friend bool operator==(const DeviceChoice&, const DeviceChoice&) = default;
};

// `devices` is nullopt if they were not enumerated; in that case, and without a driver, an
// inherited list is taken as text. HIP_VISIBLE_DEVICES takes precedence over CUDA_VISIBLE_DEVICES
// if it is set and not empty and there are no NVIDIA devices, as in torchrun. Fails if --gpus names
// a device that does not exist (ExitCode::environment) or makes no sense (usage).
Result<DeviceChoice> choose_devices(const PlacementSpec& spec, const InheritedDevices& inherited,
                                    const std::optional<DeviceReport>& devices);

// Whether HIP_VISIBLE_DEVICES takes precedence.
bool hip_list_counts(const InheritedDevices& inherited, const std::optional<DeviceReport>& devices);

// "CUDA_VISIBLE_DEVICES=0,9 ends at entry '9', which is not a device of this machine (this machine
// has GPUs 0-1)". Without devices `gpu_count` is 0.
std::string cut_short_text(const std::string& variable, const std::string& ended_by,
                           size_t gpu_count);

// True if there is at least one real device to check against.
bool devices_known(const std::optional<DeviceReport>& devices);

}  // namespace muster
