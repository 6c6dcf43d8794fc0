// Parses CUDA_VISIBLE_DEVICES as the driver does, without CUDA: a comma-separated list of indices,
// "GPU-…" names or "MIG-…" names. The first entry fixes the form. The list ends before its first
// invalid entry: another form, a negative or missing number, an index that does not exist, a name
// that fits no device or several. If a device is named twice, CUDA shows no device at all. Sources:
// the CUDA C++ Programming Guide, "CUDA Environment Variables", and the behaviour that PyTorch's
// device counting reproduces. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "agent/placement/devices.h"

namespace muster {

enum class DeviceForm { index, gpu_uuid, mig_uuid };

struct DeviceSlot {
  std::string token;       // The entry for CUDA_VISIBLE_DEVICES.
  int gpu = -1;            // Position in DeviceReport::gpus; -1 if devices are unknown.
  std::string mig_uuid;    // Set for a MIG device.
  bool our_index = false;  // True if the token is an index that we chose: it requires PCI order.

  friend bool operator==(const DeviceSlot&, const DeviceSlot&) = default;
};

struct VisibleList {
  DeviceForm form = DeviceForm::index;
  std::vector<DeviceSlot> slots;  // The valid entries in order, as the user wrote them, trimmed.
  std::string ended_by;           // Why the list ended early, in words; empty if it did not.
  bool repeated = false;          // True if a device is named twice: CUDA shows none.

  friend bool operator==(const VisibleList&, const VisibleList&) = default;
};

// Checks only the syntax.
VisibleList parse_visible_devices(std::string_view value);

// Resolves the list against this machine's devices. REQUIRES: gpus in PCI order.
VisibleList resolve_visible_devices(const VisibleList& list, const std::vector<Gpu>& gpus);

// Every item, trimmed, valid or not, as torchrun reads the list for --virtual-local-rank. An empty
// value is one empty item.
std::vector<std::string> split_visible_devices(std::string_view value);

bool any_device_twice(const std::vector<DeviceSlot>& slots);

// All devices of the machine in PCI order: as indices, or, since these do not mix with names, all
// as names if the machine has any MIG device.
std::vector<DeviceSlot> all_device_slots(const std::vector<Gpu>& gpus);

std::string join_tokens(const std::vector<DeviceSlot>& slots);

}  // namespace muster
