#include "agent/placement/visible_devices.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/base/text.h"

namespace muster {
namespace {

constexpr std::string_view kGpuPrefix = "GPU-";
constexpr std::string_view kMigPrefix = "MIG-";

DeviceForm form_of(std::string_view entry) {
  if (entry.starts_with(kGpuPrefix)) return DeviceForm::gpu_uuid;
  if (entry.starts_with(kMigPrefix)) return DeviceForm::mig_uuid;
  return DeviceForm::index;
}

// Parses like strtoul: ignores what follows the leading digits ("1gpu2" is 1).
std::optional<int> leading_index(std::string_view entry) {
  if (entry.starts_with('+')) entry.remove_prefix(1);
  const std::optional<int> value = take_number<int>(entry);
  return value && *value >= 0 ? value : std::nullopt;
}

std::string malformed(std::string_view entry, DeviceForm form) {
  if (entry.empty()) return "an empty entry";
  if (form_of(entry) != form) {
    return fmt::format("entry '{}', which is not of the same kind as the first one", entry);
  }
  if (form != DeviceForm::index || leading_index(entry)) return {};
  return fmt::format("entry '{}', which is not a device number", entry);
}

// The GPUs or MIG devices whose names begin with this entry, or the one of exactly this name.
std::vector<DeviceSlot> devices_named(const std::string& entry, DeviceForm form,
                                      const std::vector<Gpu>& gpus) {
  std::vector<DeviceSlot> found;
  std::optional<DeviceSlot> whole;
  const auto consider = [&](const std::string& name, const DeviceSlot& slot) {
    if (name.starts_with(entry)) found.push_back(slot);
    if (name == entry && !whole) whole = slot;
  };
  for (size_t i = 0; i < gpus.size(); ++i) {
    const int gpu = static_cast<int>(i);
    if (form == DeviceForm::gpu_uuid) {
      consider(gpus[i].uuid, {entry, gpu, {}, false});
    } else {
      for (const MigDevice& mig : gpus[i].mig)
        consider(mig.uuid, {entry, gpu, mig.uuid, false});
    }
  }
  return whole ? std::vector{*whole} : found;
}

// Resolves "MIG-GPU-<uuid>/<gpu instance>/<compute instance>", a MIG device's name before driver
// 470, by the GPU's part: newer drivers accept such names, but NVML does not list them.
std::vector<DeviceSlot> devices_of_old_name(const std::string& entry,
                                            const std::vector<Gpu>& gpus) {
  const std::string_view gpu_uuid =
      std::string_view(entry).substr(kMigPrefix.size(), entry.find('/') - kMigPrefix.size());
  for (size_t i = 0; i < gpus.size(); ++i) {
    if (gpus[i].uuid == gpu_uuid && gpus[i].mig_enabled)
      return {{entry, static_cast<int>(i), entry, false}};
  }
  return {};
}

// The devices that the entry may mean. It is invalid unless there is exactly one.
std::vector<DeviceSlot> devices_meant(const std::string& entry, DeviceForm form,
                                      const std::vector<Gpu>& gpus) {
  if (form == DeviceForm::index) {
    const int index = leading_index(entry).value_or(-1);
    if (index < 0 || static_cast<size_t>(index) >= gpus.size()) return {};
    return {{entry, index, {}, false}};
  }
  std::vector<DeviceSlot> found = devices_named(entry, form, gpus);
  const bool old_name = form == DeviceForm::mig_uuid && contains(entry, "/");
  return found.empty() && old_name ? devices_of_old_name(entry, gpus) : found;
}

}  // namespace

std::vector<std::string> split_visible_devices(std::string_view value) {
  std::vector<std::string> items;
  for (const std::string_view item : split(value, ','))
    items.emplace_back(trim(item));
  return items;
}

VisibleList parse_visible_devices(std::string_view value) {
  VisibleList list;
  if (trim(value).empty()) return list;
  const std::vector<std::string> items = split_visible_devices(value);
  list.form = form_of(items.front());
  for (const std::string& item : items) {
    list.ended_by = malformed(item, list.form);
    if (!list.ended_by.empty()) break;
    const auto same = [&](const DeviceSlot& other) {
      return list.form == DeviceForm::index ? leading_index(other.token) == leading_index(item)
                                            : other.token == item;
    };
    if (std::ranges::any_of(list.slots, same)) list.repeated = true;
    list.slots.push_back({item, -1, {}, false});
  }
  return list;
}

VisibleList resolve_visible_devices(const VisibleList& list, const std::vector<Gpu>& gpus) {
  VisibleList resolved{list.form, {}, list.ended_by, false};
  for (const DeviceSlot& slot : list.slots) {
    const std::vector<DeviceSlot> found = devices_meant(slot.token, list.form, gpus);
    if (found.size() != 1) {
      resolved.ended_by =
          found.empty()
              ? fmt::format("entry '{}', which is not a device of this machine", slot.token)
              : fmt::format("entry '{}', which matches {} devices", slot.token, found.size());
      break;
    }
    resolved.slots.push_back(found.front());
  }
  resolved.repeated = any_device_twice(resolved.slots);
  return resolved;
}

bool any_device_twice(const std::vector<DeviceSlot>& slots) {
  std::set<std::pair<int, std::string>> seen;
  for (const DeviceSlot& slot : slots) {
    if (!seen.emplace(slot.gpu, slot.gpu < 0 ? slot.token : slot.mig_uuid).second) return true;
  }
  return false;
}

std::vector<DeviceSlot> all_device_slots(const std::vector<Gpu>& gpus) {
  const bool any_mig =
      std::any_of(gpus.begin(), gpus.end(), [](const Gpu& gpu) { return gpu.mig_enabled; });
  std::vector<DeviceSlot> slots;
  for (size_t i = 0; i < gpus.size(); ++i) {
    const Gpu& gpu = gpus[i];
    const int position = static_cast<int>(i);
    // A GPU in MIG mode without slices cannot compute.
    for (const MigDevice& mig : gpu.mig)
      slots.push_back({mig.uuid, position, mig.uuid, false});
    if (gpu.mig_enabled) continue;
    if (any_mig && !gpu.uuid.empty()) {
      slots.push_back({gpu.uuid, position, {}, false});
    } else {
      slots.push_back({fmt::format("{}", i), position, {}, true});
    }
  }
  return slots;
}

std::string join_tokens(const std::vector<DeviceSlot>& slots) {
  std::string text;
  for (const DeviceSlot& slot : slots)
    text += (text.empty() ? "" : ",") + slot.token;
  return text;
}

}  // namespace muster
