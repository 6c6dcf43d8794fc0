#include "agent/placement/visible_devices.h"

#include <algorithm>
#include <charconv>
#include <optional>

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

// Like strtoul: leading digits count and what follows them is ignored ("1gpu2" is 1).
std::optional<int> leading_index(std::string_view entry) {
  if (entry.starts_with('+')) entry.remove_prefix(1);
  int value = 0;
  const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), value);
  if (error != std::errc() || value < 0) return std::nullopt;
  return value;
}

// Why an entry is malformed in a list of this form; empty if it is well formed.
std::string malformed(std::string_view entry, DeviceForm form) {
  if (entry.empty()) return "an empty entry";
  if (form_of(entry) != form) {
    return fmt::format("entry '{}', which is not of the same kind as the first one", entry);
  }
  if (form != DeviceForm::index || leading_index(entry)) return {};
  return fmt::format("entry '{}', which is not a device number", entry);
}

// A name may be abbreviated as long as it fits only one device. `found` counts the matches.
struct NameMatch {
  DeviceSlot slot;
  int found = 0;
};

NameMatch match_gpu_name(const std::string& entry, const std::vector<Gpu>& gpus) {
  NameMatch match;
  for (size_t i = 0; i < gpus.size(); ++i) {
    if (!gpus[i].uuid.starts_with(entry)) continue;
    match.slot = DeviceSlot{entry, static_cast<int>(i), {}, false};
    if (gpus[i].uuid == entry) return {match.slot, 1};
    ++match.found;
  }
  return match;
}

// Before driver 470 a MIG device was called "MIG-GPU-<uuid>/<gpu instance>/<compute instance>",
// which newer drivers still accept; NVML then does not know that name, so the GPU's part decides.
NameMatch match_old_mig_name(const std::string& entry, const std::vector<Gpu>& gpus) {
  const std::string_view gpu_uuid =
      std::string_view(entry).substr(kMigPrefix.size(), entry.find('/') - kMigPrefix.size());
  NameMatch match;
  for (size_t i = 0; i < gpus.size(); ++i) {
    if (gpus[i].uuid != gpu_uuid || !gpus[i].mig_enabled) continue;
    match = {DeviceSlot{entry, static_cast<int>(i), entry, false}, 1};
  }
  return match;
}

NameMatch match_mig_name(const std::string& entry, const std::vector<Gpu>& gpus) {
  NameMatch match;
  for (size_t i = 0; i < gpus.size(); ++i) {
    for (const MigDevice& mig : gpus[i].mig) {
      if (!mig.uuid.starts_with(entry)) continue;
      match.slot = DeviceSlot{entry, static_cast<int>(i), mig.uuid, false};
      if (mig.uuid == entry) return {match.slot, 1};
      ++match.found;
    }
  }
  if (match.found == 0 && entry.find('/') != std::string::npos) {
    return match_old_mig_name(entry, gpus);
  }
  return match;
}

NameMatch match_index(const std::string& entry, const std::vector<Gpu>& gpus) {
  const std::optional<int> index = leading_index(entry);
  if (!index || static_cast<size_t>(*index) >= gpus.size()) return {};
  return {DeviceSlot{entry, *index, {}, false}, 1};
}

NameMatch match_device(const std::string& entry, DeviceForm form, const std::vector<Gpu>& gpus) {
  switch (form) {
    case DeviceForm::gpu_uuid:
      return match_gpu_name(entry, gpus);
    case DeviceForm::mig_uuid:
      return match_mig_name(entry, gpus);
    case DeviceForm::index:
      break;
  }
  return match_index(entry, gpus);
}

bool same_device(const DeviceSlot& a, const DeviceSlot& b) {
  return a.gpu == b.gpu && a.mig_uuid == b.mig_uuid;
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
    const auto same = [&](const std::string& other) {
      return list.form == DeviceForm::index ? leading_index(other) == leading_index(item)
                                            : other == item;
    };
    if (std::any_of(list.entries.begin(), list.entries.end(), same)) list.repeated = true;
    list.entries.push_back(item);
  }
  return list;
}

ResolvedList resolve_visible_devices(std::string_view value, const std::vector<Gpu>& gpus) {
  const VisibleList list = parse_visible_devices(value);
  ResolvedList resolved{{}, list.ended_by, false};
  for (const std::string& entry : list.entries) {
    const NameMatch match = match_device(entry, list.form, gpus);
    if (match.found != 1) {
      resolved.ended_by =
          match.found == 0
              ? fmt::format("entry '{}', which is not a device of this machine", entry)
              : fmt::format("entry '{}', which matches {} devices", entry, match.found);
      break;
    }
    for (const DeviceSlot& slot : resolved.slots) {
      if (same_device(slot, match.slot)) resolved.repeated = true;
    }
    resolved.slots.push_back(match.slot);
  }
  return resolved;
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
