// The ordered list of devices that this node's workers may use, from what the machine has, what the
// user's environment shows of it, and what --gpus picks from that. Counting workers and placing
// them both start here, so they cannot disagree. Pure.
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
  bool inherited = false;  // They come from a variable of the user's, named in `variable`.
  bool chosen = false;     // --gpus picked them.
  bool repeated = false;   // A device is in the list twice, for which CUDA shows a process nothing.
  std::string variable;    // "CUDA_VISIBLE_DEVICES=0,2"; empty if not inherited.
  std::string why_short;   // Why there are no more devices than these, in words; may be empty.
  std::string cut_short;   // Where an inherited list ends before its end, and why; else empty.

  friend bool operator==(const DeviceChoice&, const DeviceChoice&) = default;
};

// `devices` is nullopt if they were not enumerated; then, and without a driver, an inherited list
// is taken as text. HIP_VISIBLE_DEVICES, where it is set and not empty and there are no NVIDIA
// devices, goes before CUDA_VISIBLE_DEVICES, as in torchrun. Fails if --gpus names what is not
// there (ExitCode::environment) or makes no sense (usage).
Result<DeviceChoice> choose_devices(const PlacementSpec& spec, const InheritedDevices& inherited,
                                    const std::optional<DeviceReport>& devices);

// Whether HIP_VISIBLE_DEVICES is the list that counts.
bool hip_list_counts(const InheritedDevices& inherited, const std::optional<DeviceReport>& devices);

// "CUDA_VISIBLE_DEVICES=0,9 ends at entry '9', which is no device of this machine (this machine has
// GPUs 0-1)". No devices: 0.
std::string cut_short_text(const std::string& variable, const std::string& ended_by,
                           size_t gpu_count);

// True if there is at least one real device to check against.
bool devices_known(const std::optional<DeviceReport>& devices);

}  // namespace muster
