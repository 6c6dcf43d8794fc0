// The ordered list of devices that this node's workers may use: the machine's devices, limited to
// those that the user's environment makes visible and those that --gpus picks. Counting and placing
// workers both start here, so they cannot disagree. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agent/launch_spec.h"
#include "agent/placement/devices.h"
#include "agent/placement/visible_devices.h"
#include "rendezvous/base/error.h"

namespace muster {

// Variables with which the launcher was started; nullopt: not set.
struct InheritedDevices {
  std::optional<std::string> cuda_visible_devices;
  std::optional<std::string> hip_visible_devices;
  std::optional<std::string> cuda_device_order;
};

struct DeviceChoice {
  std::vector<DeviceSlot> slots;
  bool known = false;      // True if the slots were checked against real devices.
  bool inherited = false;  // True if they come from the user's variable, named in `variable`.
  bool chosen = false;     // True if --gpus picked them.
  bool repeated = false;   // True if a device occurs twice: CUDA then shows no device.
  std::string variable;    // "CUDA_VISIBLE_DEVICES=0,2"; empty if not inherited.
  std::string why_short;   // Why there are no more devices; may be empty.
  std::string cut_short;   // The end of an inherited list that ends early, and why; else empty.

  friend bool operator==(const DeviceChoice&, const DeviceChoice&) = default;
};

// `devices`: nullopt if not enumerated; then, and without a driver, an inherited list is taken as
// text. As in torchrun, HIP_VISIBLE_DEVICES takes precedence over CUDA_VISIBLE_DEVICES if it is not
// empty and there are no NVIDIA devices. Fails if --gpus names a device that does not exist
// (ExitCode::environment) or makes no sense (usage).
Result<DeviceChoice> choose_devices(const PlacementSpec& spec, const InheritedDevices& inherited,
                                    const std::optional<DeviceReport>& devices);

bool hip_list_counts(const InheritedDevices& inherited, const std::optional<DeviceReport>& devices);

// "CUDA_VISIBLE_DEVICES=0,9 ends at entry '9', which is not a device of this machine (this machine
// has GPUs 0-1)". `gpu_count`: 0 if the devices are not known.
std::string cut_short_text(const std::string& variable, const std::string& ended_by,
                           size_t gpu_count);

// True if at least one real device was enumerated.
bool devices_known(const std::optional<DeviceReport>& devices);

}  // namespace muster
