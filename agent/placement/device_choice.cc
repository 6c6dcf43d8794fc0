#include "agent/placement/device_choice.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/base/text.h"

namespace muster {
namespace {

std::string numbers_up_to(size_t count) {
  return count == 1 ? "0" : fmt::format("0-{}", count - 1);
}

// "this machine has GPUs 0-3"
std::string what_exists(size_t gpu_count) {
  return fmt::format("this machine has GPU{} {}", gpu_count == 1 ? "" : "s",
                     numbers_up_to(gpu_count));
}

std::string why_no_devices(const std::optional<DeviceReport>& devices) {
  if (!devices) return "the GPUs were not looked up";
  if (!devices->problem.empty()) return devices->problem;
  if (devices->source == DeviceSource::none) {
    return "no NVIDIA driver was found (no libnvidia-ml.so.1 and no /proc/driver/nvidia/gpus)";
  }
  return "the NVIDIA driver reports no GPU that can be used";
}

std::string why_inherited_ends(const DeviceChoice& choice, const std::string& value) {
  if (choice.repeated) return choice.variable + " names a device twice, so CUDA shows none";
  if (value.find_first_not_of(" \t") == std::string::npos) return choice.variable + " is empty";
  return choice.cut_short.empty() ? choice.variable : choice.cut_short;
}

DeviceChoice inherited_choice(const std::string& name, const std::string& value,
                              const std::vector<Gpu>* gpus, bool mig_visible) {
  DeviceChoice choice;
  choice.inherited = true;
  choice.variable = fmt::format("{}={}", name, value);
  VisibleList list = parse_visible_devices(value);
  // Only NVML knows the names of MIG devices.
  choice.known = gpus != nullptr && (mig_visible || list.form != DeviceForm::mig_uuid);
  if (choice.known) list = resolve_visible_devices(list, *gpus);
  choice.slots = std::move(list.slots);
  choice.repeated = list.repeated;
  if (!list.ended_by.empty()) {
    choice.cut_short =
        cut_short_text(choice.variable, list.ended_by, choice.known ? gpus->size() : size_t{0});
  }
  choice.why_short = why_inherited_ends(choice, value);
  return choice;
}

DeviceChoice available_devices(const InheritedDevices& inherited,
                               const std::optional<DeviceReport>& devices) {
  if (hip_list_counts(inherited, devices)) {
    return inherited_choice("HIP_VISIBLE_DEVICES", *inherited.hip_visible_devices, nullptr, false);
  }
  const bool known = devices_known(devices);
  if (inherited.cuda_visible_devices) {
    return inherited_choice("CUDA_VISIBLE_DEVICES", *inherited.cuda_visible_devices,
                            known ? &devices->gpus : nullptr,
                            known && devices->source == DeviceSource::nvml);
  }
  DeviceChoice choice;
  choice.known = known;
  if (known) choice.slots = all_device_slots(devices->gpus);
  choice.why_short =
      choice.slots.empty() ? why_no_devices(devices) : what_exists(devices->gpus.size());
  return choice;
}

class GpusFlag {
 public:
  GpusFlag(const DeviceChoice& available, const std::optional<DeviceReport>& devices)
      : available_(available), devices_(devices) {}

  Result<std::vector<DeviceSlot>> select(const std::vector<std::string>& items) const {
    std::vector<DeviceSlot> selected;
    for (const std::string& item : items) {
      Result<std::vector<size_t>> positions = positions_of(item);
      if (!positions) return tl::unexpected<Error>(positions.error());
      for (const size_t position : *positions) {
        const DeviceSlot& slot = available_.slots[position];
        if (std::find(selected.begin(), selected.end(), slot) != selected.end()) {
          return fail(ExitCode::usage,
                      fmt::format("--gpus: '{}' names a device that is already in the list; name "
                                  "each device once",
                                  item));
        }
        selected.push_back(slot);
      }
    }
    return in_one_form(std::move(selected), items);
  }

 private:
  static bool is_name(const std::string& item) {
    return item.starts_with("GPU-") || item.starts_with("MIG-");
  }

  Result<std::vector<size_t>> positions_of(const std::string& item) const {
    if (is_name(item)) return by_name(item);
    const std::optional<size_t> index = whole_number<size_t>(item);
    if (!index) {
      return fail(ExitCode::usage,
                  fmt::format("--gpus: '{}' is neither a device number nor a name that begins with "
                              "GPU- or MIG-",
                              item));
    }
    return by_index(*index, item);
  }

  // The number is the position of an entry in an inherited list, otherwise the GPU's in PCI order;
  // it stands for all MIG devices of that GPU, if it has any.
  Result<std::vector<size_t>> by_index(size_t index, const std::string& item) const {
    std::vector<size_t> positions;
    for (size_t i = 0; i < available_.slots.size(); ++i) {
      const bool fits =
          available_.inherited ? i == index : static_cast<size_t>(available_.slots[i].gpu) == index;
      if (fits) positions.push_back(i);
    }
    if (positions.empty()) return missing(item);
    return positions;
  }

  Result<std::vector<size_t>> by_name(const std::string& item) const {
    std::vector<size_t> positions;
    std::set<std::string> names;
    for (size_t i = 0; i < available_.slots.size(); ++i) {
      const std::string name = name_that_fits(available_.slots[i], item);
      if (name.empty()) continue;
      if (name == item && names.count(name) == 0) {
        // A complete name takes precedence over names that begin with it.
        positions.clear();
        names.clear();
      }
      positions.push_back(i);
      names.insert(name);
    }
    if (positions.empty()) return missing(item);
    if (names.size() > 1) {
      return fail(ExitCode::usage,
                  fmt::format("--gpus: '{}' matches {} devices; give more of the name", item,
                              names.size()));
    }
    return positions;
  }

  // The name of the slot's GPU or MIG device that begins with `item`; empty if none does.
  std::string name_that_fits(const DeviceSlot& slot, const std::string& item) const {
    const std::string gpu_uuid =
        slot.gpu < 0 ? std::string() : devices_->gpus[static_cast<size_t>(slot.gpu)].uuid;
    for (const std::string& name : {gpu_uuid, slot.mig_uuid, slot.token}) {
      if (name.starts_with(item)) return name;
    }
    return {};
  }

  tl::unexpected<Error> missing(const std::string& item) const {
    std::string exists = available_.why_short;
    if (available_.inherited && !available_.slots.empty()) {
      exists = fmt::format("{} has entr{} {}", available_.variable,
                           available_.slots.size() == 1 ? "y" : "ies",
                           numbers_up_to(available_.slots.size()));
      if (!available_.cut_short.empty()) exists = available_.cut_short;
    } else if (available_.known && !available_.inherited) {
      exists = what_exists(devices_->gpus.size()) + without_mig_devices();
    }
    return fail(ExitCode::environment,
                fmt::format("--gpus: there is no device '{}': {}", item, exists));
  }

  std::string without_mig_devices() const {
    for (const Gpu& gpu : devices_->gpus) {
      if (!gpu.mig_enabled || !gpu.mig.empty()) continue;
      return fmt::format(", of which GPU {} is in MIG mode without a MIG device", gpu.nvml_index);
    }
    return {};
  }

  // Turns our numbers into names if the user gave any, as CUDA_VISIBLE_DEVICES cannot mix them.
  std::vector<DeviceSlot> in_one_form(std::vector<DeviceSlot> selected,
                                      const std::vector<std::string>& items) const {
    if (std::none_of(items.begin(), items.end(), is_name)) return selected;
    for (DeviceSlot& slot : selected) {
      if (!slot.our_index) continue;
      const std::string& uuid = devices_->gpus[static_cast<size_t>(slot.gpu)].uuid;
      if (uuid.empty()) continue;
      slot.token = uuid;
      slot.our_index = false;
    }
    return selected;
  }

  const DeviceChoice& available_;
  const std::optional<DeviceReport>& devices_;
};

}  // namespace

std::string cut_short_text(const std::string& variable, const std::string& ended_by,
                           size_t gpu_count) {
  return fmt::format("{} ends at {}{}", variable, ended_by,
                     gpu_count == 0 ? "" : fmt::format(" ({})", what_exists(gpu_count)));
}

bool devices_known(const std::optional<DeviceReport>& devices) {
  return devices && !devices->gpus.empty();
}

bool hip_list_counts(const InheritedDevices& inherited,
                     const std::optional<DeviceReport>& devices) {
  return inherited.hip_visible_devices && !inherited.hip_visible_devices->empty() &&
         !devices_known(devices);
}

Result<DeviceChoice> choose_devices(const PlacementSpec& spec, const InheritedDevices& inherited,
                                    const std::optional<DeviceReport>& devices) {
  DeviceChoice choice = available_devices(inherited, devices);
  if (spec.gpus.empty()) return choice;
  Result<std::vector<DeviceSlot>> selected = GpusFlag(choice, devices).select(spec.gpus);
  if (!selected) return tl::unexpected<Error>(selected.error());
  choice.slots = std::move(*selected);
  choice.chosen = true;
  choice.why_short = "--gpus names no more";
  // select() rejects a repeated entry, but two entries of an inherited list may be one device.
  choice.repeated = any_device_twice(choice.slots);
  return choice;
}

}  // namespace muster
