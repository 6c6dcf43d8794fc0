#include "agent/placement/worker_count.h"

#include <algorithm>

#include <fmt/format.h>

#include "rendezvous/base/text.h"

namespace muster {
namespace {

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
