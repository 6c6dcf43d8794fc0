#include "agent/placement/placement.h"

#include <algorithm>

#include <fmt/format.h>

#include "agent/placement/numa_binding.h"
#include "agent/placement/visible_devices.h"
#include "agent/report/text.h"
#include "rendezvous/base/contract.h"
#include "rendezvous/base/text.h"

namespace muster {
namespace {

class Placer {
 public:
  explicit Placer(const PlacementInput& input)
      : input_(input),
        exclusive_(input.spec.gpu_binding == GpuBinding::exclusive),
        one_device_each_(exclusive_ || input.spec.virtual_local_rank) {
    CHECK(input.workers > 0);
    placement_.workers.resize(static_cast<size_t>(input.workers));
    for (size_t i = 0; i < placement_.workers.size(); ++i) {
      const bool zero = one_device_each_ && !input.spec.keep_local_rank;
      placement_.workers[i].local_rank = zero ? 0 : static_cast<int>(i);
    }
  }

  Result<Placement> run() {
    if (!asked_for_anything()) return placement_;
    Result<DeviceChoice> choice = choose_devices(input_.spec, input_.inherited, input_.devices);
    if (!choice) return tl::unexpected<Error>(choice.error());
    choice_ = std::move(*choice);
    if (input_.devices && !input_.devices->problem.empty()) {
      placement_.warnings.push_back("the GPU driver reports a problem: " + input_.devices->problem);
    }
    const Result<void> devices = one_device_each_ ? give_one_each() : share();
    if (!devices) return tl::unexpected<Error>(devices.error());
    describe_devices();
    // An empty list has already been reported by another message.
    if (!choice_.cut_short.empty() && !choice_.slots.empty())
      placement_.warnings.push_back(choice_.cut_short + ": the workers see the devices before it");
    warn_about_order();
    const Result<void> cpus = bind_cpus();
    if (!cpus) return tl::unexpected<Error>(cpus.error());
    return placement_;
  }

 private:
  bool asked_for_anything() const {
    return input_.devices || one_device_each_ || !input_.spec.gpus.empty() ||
           input_.spec.numa_binding != NumaBinding::none;
  }

  Result<void> give_one_each() {
    if (!exclusive_ && input_.spec.gpus.empty() && !choice_.known) return give_text();
    // As in torchrun, an empty list, or -1, is passed on: the user wants no device.
    if (!exclusive_ && choice_.inherited && choice_.slots.empty() && hidden_on_purpose()) {
      return give_text();
    }
    if (exclusive_ && choice_.repeated) {
      return fail(ExitCode::environment,
                  fmt::format("--gpu-binding exclusive: {} names a device twice; name each once",
                              choice_.variable));
    }
    if (choice_.slots.size() < placement_.workers.size()) return too_few(choice_.slots.size());
    for (size_t i = 0; i < placement_.workers.size(); ++i)
      give(i, {choice_.slots[i]});
    return {};
  }

  // Splits the list as text, as torchrun does: --virtual-local-rank without a driver to query.
  Result<void> give_text() {
    const bool hip = hip_list_counts(input_.inherited, input_.devices);
    const std::optional<std::string>& list =
        hip ? input_.inherited.hip_visible_devices : input_.inherited.cuda_visible_devices;
    if (!list) {
      for (size_t i = 0; i < placement_.workers.size(); ++i) {
        give(i, {DeviceSlot{fmt::format("{}", i), -1, {}, true}});
      }
      return {};
    }
    const std::vector<std::string> items = split_visible_devices(*list);
    if (items.size() < placement_.workers.size()) return too_few(items.size());
    for (size_t i = 0; i < placement_.workers.size(); ++i) {
      give(i, {DeviceSlot{items[i], -1, {}, false}});
    }
    return {};
  }

  tl::unexpected<Error> too_few(size_t available) const {
    const std::string why =
        choice_.why_short.empty() ? std::string() : fmt::format(" ({})", choice_.why_short);
    return fail(
        ExitCode::environment,
        fmt::format("{}: {} need{} a device each, but there {} {}{}; start fewer workers or "
                    "make more devices visible",
                    exclusive_ ? "--gpu-binding exclusive" : "--virtual-local-rank",
                    counted(placement_.workers.size(), "worker"),
                    placement_.workers.size() == 1 ? "s" : "", available == 1 ? "is" : "are",
                    available, why));
  }

  Result<void> share() {
    warn_about_sharing();
    const bool any_mig = std::any_of(choice_.slots.begin(), choice_.slots.end(),
                                     [](const DeviceSlot& slot) { return !slot.mig_uuid.empty(); });
    // Keep the user's own value if there is no driver to check it against, or if CUDA would show
    // none of its devices. Leave MIG devices that the user did not choose to CUDA: it takes one.
    const bool leave = !choice_.known || choice_.slots.empty() || choice_.repeated ||
                       (any_mig && !choice_.inherited);
    if (leave && !choice_.chosen) return {};
    for (size_t i = 0; i < placement_.workers.size(); ++i)
      give(i, choice_.slots);
    return {};
  }

  void warn_about_sharing() {
    const size_t workers = placement_.workers.size();
    const bool shows_none = choice_.slots.empty() || choice_.repeated;
    if (choice_.inherited && choice_.known && shows_none && !hidden_on_purpose()) {
      placement_.warnings.push_back(
          fmt::format("the workers will see no GPU: {}", choice_.why_short));
    }
    if (shows_none || !(choice_.known || choice_.chosen)) return;
    if (workers > choice_.slots.size()) {
      placement_.warnings.push_back(fmt::format(
          "{} for {}: workers that use device LOCAL_RANK will find none from local rank {} on; "
          "start {} or choose devices in the program",
          counted(workers, "worker"), counted(choice_.slots.size(), "GPU"), choice_.slots.size(),
          counted(choice_.slots.size(), "worker")));
    } else if (workers > 1 && !choice_.slots.front().mig_uuid.empty()) {
      placement_.warnings.push_back(
          "CUDA shows a process one MIG device only; give each worker its own with --gpu-binding "
          "exclusive");
    }
  }

  // True if the list is one by which users hide all GPUs from a job.
  bool hidden_on_purpose() const {
    const std::optional<std::string>& list = input_.inherited.cuda_visible_devices;
    return list && (list->empty() || *list == "-1");
  }

  void give(size_t worker, const std::vector<DeviceSlot>& slots) {
    auto& env = placement_.workers[worker].env;
    const std::string tokens = join_tokens(slots);
    env.emplace_back(std::string(env::kCudaVisibleDevices), tokens);
    if (hip_list_counts(input_.inherited, input_.devices)) {
      env.emplace_back(std::string(env::kHipVisibleDevices), tokens);
    }
    if (std::any_of(slots.begin(), slots.end(), [](const auto& slot) { return slot.our_index; })) {
      env.emplace_back(std::string(env::kCudaDeviceOrder), "PCI_BUS_ID");
    }
  }

  // The device that a worker uses if it follows torch's conventions; nullptr if unknown.
  const DeviceSlot* slot_of(size_t worker) const {
    if (choice_.slots.empty() || !choice_.known) return nullptr;
    if (choice_.repeated && !one_device_each_) return nullptr;
    return &choice_.slots[worker % choice_.slots.size()];
  }

  void describe_devices() {
    for (size_t i = 0; i < placement_.workers.size(); ++i) {
      const DeviceSlot* slot = slot_of(i);
      if (slot == nullptr) continue;
      const Gpu& gpu = gpu_of(*slot);
      placement_.workers[i].device = device_label(gpu, slot->mig_uuid);
      placement_.workers[i].numa_node = gpu.numa_node;
    }
  }

  const Gpu& gpu_of(const DeviceSlot& slot) const {
    return input_.devices->gpus[static_cast<size_t>(slot.gpu)];
  }

  // CUDA's default order is by speed: on a machine with unlike GPUs the numbers of an inherited
  // list may mean other devices than we assume.
  void warn_about_order() {
    if (!choice_.known || !choice_.inherited || choice_.slots.empty()) return;
    if (input_.inherited.cuda_device_order == "PCI_BUS_ID") return;
    const std::string& list = *input_.inherited.cuda_visible_devices;
    if (parse_visible_devices(list).form != DeviceForm::index) return;
    const std::vector<Gpu>& gpus = input_.devices->gpus;
    const bool unlike = std::any_of(gpus.begin(), gpus.end(),
                                    [&](const Gpu& gpu) { return gpu.name != gpus.front().name; });
    if (!unlike) return;
    placement_.warnings.push_back(
        "the GPUs of this machine differ and CUDA_DEVICE_ORDER is not PCI_BUS_ID, so CUDA may "
        "number them in a different order than shown here; set CUDA_DEVICE_ORDER=PCI_BUS_ID or use "
        "UUIDs");
  }

  Result<void> bind_cpus() {
    if (input_.spec.numa_binding == NumaBinding::none) return {};
    CHECK(input_.topology.has_value());
    const std::string flag = "--numa-binding " + numa_binding_name(input_.spec.numa_binding);
    if (slot_of(0) == nullptr) {
      return fail(ExitCode::environment,
                  fmt::format("{}: there is no GPU to bind near: {}; leave the flag out, or bind "
                              "the program itself with taskset or numactl",
                              flag, choice_.why_short));
    }
    std::vector<int> nodes;
    for (const DeviceSlot& slot : choice_.slots) {
      const Gpu& gpu = gpu_of(slot);
      if (!gpu.numa_node) {
        return fail(ExitCode::environment,
                    fmt::format("{}: the NUMA node of {} is not known, as sysfs does not show "
                                "bus/pci/devices/{}/numa_node; leave the flag out",
                                flag, device_label(gpu, {}), gpu.pci_bus_id));
      }
      nodes.push_back(*gpu.numa_node);
    }
    Result<std::vector<CpuSet>> sets =
        bind_devices(input_.spec.numa_binding, *input_.topology, input_.allowed_cpus, nodes);
    if (!sets) return tl::unexpected<Error>(sets.error());
    for (size_t i = 0; i < placement_.workers.size(); ++i) {
      placement_.workers[i].cpus = (*sets)[i % sets->size()];
    }
    return {};
  }

  const PlacementInput& input_;
  const bool exclusive_;
  const bool one_device_each_;
  DeviceChoice choice_;
  Placement placement_;
};

std::string or_dash(const std::string& text) {
  return text.empty() ? "-" : text;
}

// More workers than this on one node are a typing error, and would act as a fork bomb.
constexpr int kWorkersPerNodeMax = 1 << 16;

Result<int> counted_by_number(const std::string& text) {
  const int number = whole_number<int>(text).value_or(0);
  if (number >= 1 && number <= kWorkersPerNodeMax) return number;
  return fail(ExitCode::usage,
              fmt::format("--nproc-per-node {} is out of range; give a number from 1 to {}", text,
                          kWorkersPerNodeMax));
}

// The devices that the workers can use. A list that no driver confirms counts as empty, except
// HIP_VISIBLE_DEVICES: we do not query AMD's driver.
Result<DeviceChoice> usable_devices(const LaunchSpec& spec, const InheritedDevices& inherited,
                                    const std::optional<DeviceReport>& devices) {
  Result<DeviceChoice> choice = choose_devices(spec.placement, inherited, devices);
  if (!choice) return choice;
  if (!devices_known(devices) && !hip_list_counts(inherited, devices)) {
    choice->slots.clear();
    if (!choice->inherited) return choice;
    InheritedDevices nothing;
    choice->why_short = choose_devices({}, nothing, devices)->why_short;
  }
  const bool one_each =
      spec.placement.virtual_local_rank && spec.placement.gpu_binding != GpuBinding::exclusive;
  if (choice->repeated && !one_each) choice->slots.clear();
  return choice;
}

}  // namespace

Result<Placement> place(const PlacementInput& input) {
  return Placer(input).run();
}

std::vector<std::string> quick_device_warnings(int workers, const InheritedDevices& inherited,
                                               std::optional<int> gpu_count) {
  if (!gpu_count || *gpu_count < 1) return {};
  const auto count = static_cast<size_t>(*gpu_count);
  std::vector<std::string> warnings;
  size_t visible = count;
  std::string variable;
  if (inherited.cuda_visible_devices) {
    const std::string& value = *inherited.cuda_visible_devices;
    const VisibleList parsed = parse_visible_devices(value);
    // An empty list hides the GPUs on purpose; `gpu_count` has no MIG devices.
    if (parsed.slots.empty() || parsed.form == DeviceForm::mig_uuid) return {};
    variable = fmt::format("CUDA_VISIBLE_DEVICES={}", value);
    visible = std::min(visible, parsed.slots.size());
    if (parsed.form == DeviceForm::index) {  // Other forms cannot be checked without names.
      const VisibleList resolved = resolve_visible_devices(parsed, std::vector<Gpu>(count));
      visible = resolved.slots.size();
      if (!resolved.ended_by.empty())
        warnings.push_back(cut_short_text(variable, resolved.ended_by, count));
    }
  }
  if (workers <= 1 || static_cast<size_t>(workers) <= visible) return warnings;
  warnings.push_back(fmt::format(
      "{} for {}{}: workers that use device LOCAL_RANK will find none from local rank {} on",
      counted(workers, "worker"), counted(visible, "GPU"),
      variable.empty() ? "" : fmt::format(" ({})", variable), visible));
  return warnings;
}

std::string bindings_table(const Placement& placement, const CpuTopology& topology,
                           const CpuSet& allowed, const std::string& threads) {
  std::vector<std::vector<std::string>> lines{
      {"local rank", "device", "NUMA node", "cores", "threads"}};
  for (const WorkerPlacement& worker : placement.workers) {
    const CpuSet& cpus = worker.cpus.empty() ? allowed : worker.cpus;
    const int cores = topology.physical_cores(cpus);
    lines.push_back({std::to_string(lines.size() - 1), or_dash(worker.device),
                     worker.numa_node ? std::to_string(*worker.numa_node) : "-",
                     fmt::format("{} ({})", format_cpu_list(cpus), counted(cores, "core")),
                     or_dash(threads)});
  }
  return table_text(lines);
}

bool needs_devices(const LaunchSpec& spec) {
  const std::string& nproc = spec.nproc_per_node;
  const PlacementSpec& placement = spec.placement;
  return nproc == "gpu" || nproc == "auto" || !placement.gpus.empty() ||
         placement.gpu_binding == GpuBinding::exclusive || placement.virtual_local_rank ||
         placement.numa_binding != NumaBinding::none || placement.report_bindings;
}

bool needs_topology(const LaunchSpec& spec) {
  return spec.placement.numa_binding != NumaBinding::none || spec.placement.report_bindings;
}

Result<int> worker_count(const LaunchSpec& spec, const InheritedDevices& inherited,
                         const std::optional<DeviceReport>& devices, int usable) {
  const std::string& nproc = spec.nproc_per_node;
  if (nproc == "cpu") return usable;
  if (nproc == "xpu") {
    return fail(ExitCode::environment,
                "--nproc-per-node xpu: Intel GPUs cannot be counted here; give their number");
  }
  if (nproc != "gpu" && nproc != "auto") return counted_by_number(nproc);
  const Result<DeviceChoice> choice = usable_devices(spec, inherited, devices);
  if (!choice) return tl::unexpected<Error>(choice.error());
  if (!choice->slots.empty()) return static_cast<int>(choice->slots.size());
  if (nproc == "auto") return usable;
  return fail(ExitCode::environment,
              fmt::format("--nproc-per-node gpu: no GPU can be used: {}; give a number of workers, "
                          "or cpu",
                          choice->why_short));
}

int threads_per_worker(int usable, int workers, int bound_cpus) {
  CHECK(workers > 0);
  int threads = usable / workers;
  if (bound_cpus > 0) threads = std::min(threads, bound_cpus);
  return std::max(1, threads);
}

}  // namespace muster
