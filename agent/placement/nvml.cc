#include "agent/placement/nvml.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <fmt/format.h>

#include "agent/placement/proc_devices.h"
#include "rendezvous/base/symbols.h"

namespace muster {
namespace {

// The part of NVIDIA's NVML API that we need, declared from its reference manual: most machines
// lack the header, and the interface of a versioned function never changes.
namespace nvml {
using Return = int;
using Device = struct OpaqueDevice*;

constexpr Return kSuccess = 0;
constexpr Return kInsufficientSize = 7;
constexpr Return kDriverNotLoaded = 9;
constexpr unsigned long long kNotAvailable = ~0ull;

struct PciInfo {  // nvmlPciInfo_t as of nvmlDeviceGetPciInfo_v3
  char bus_id_legacy[16];
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned device_id;
  unsigned subsystem_id;
  char bus_id[32];
};

struct ProcessInfo {  // nvmlProcessInfo_v2_t, filled by _v2 and _v3 of the function
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance;
  unsigned compute_instance;
};

struct Api {
  Symbols symbols;
  Return (*init)() = symbols["nvmlInit_v2"];
  Return (*shutdown)() = symbols["nvmlShutdown"];
  const char* (*error_string)(Return) = symbols["nvmlErrorString"];
  Return (*count)(unsigned*) = symbols["nvmlDeviceGetCount_v2"];
  Return (*device_at)(unsigned, Device*) = symbols["nvmlDeviceGetHandleByIndex_v2"];
  Return (*uuid)(Device, char*, unsigned) = symbols["nvmlDeviceGetUUID"];
  Return (*name)(Device, char*, unsigned) = symbols["nvmlDeviceGetName"];
  // Missing in old drivers:
  Return (*pci_info)(Device, PciInfo*) = symbols.find("nvmlDeviceGetPciInfo_v3");
  Return (*mig_mode)(Device, unsigned*, unsigned*) = symbols.find("nvmlDeviceGetMigMode");
  Return (*mig_count_max)(Device, unsigned*) = symbols.find("nvmlDeviceGetMaxMigDeviceCount");
  Return (*mig_device_at)(Device, unsigned,
                          Device*) = symbols.find("nvmlDeviceGetMigDeviceHandleByIndex");
  Return (*compute_processes)(Device, unsigned*, ProcessInfo*) =
      symbols.find("nvmlDeviceGetComputeRunningProcesses_v3");
};
}  // namespace nvml

constexpr unsigned kNvmlTextBytes = 96;  // NVML's own largest buffer for names and UUIDs

// The library, initialised by open() and shut down by the destructor.
class Nvml {
 public:
  // Returns true if the driver answers. If not, an empty problem() means that there is no driver.
  bool open() {
    void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) library = dlopen("libnvidia-ml.so", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return false;
    api_.emplace(Symbols(library));
    if (!api_->symbols.missing().empty()) {
      problem_ = "libnvidia-ml.so.1 lacks functions that every driver since 2012 has";
      return false;
    }
    if (api_->compute_processes == nullptr)
      api_->compute_processes = api_->symbols.find("nvmlDeviceGetComputeRunningProcesses_v2");
    const nvml::Return result = api_->init();
    initialised_ = result == nvml::kSuccess;
    if (!initialised_ && result != nvml::kDriverNotLoaded) {
      problem_ = fmt::format("NVML failed to start: {}", reason(result));
    }
    return initialised_;
  }

  Nvml() = default;
  Nvml(Nvml&&) = delete;
  ~Nvml() {
    // The library stays mapped: unloading a driver library at exit may crash and saves nothing.
    if (initialised_) api_->shutdown();
  }

  const nvml::Api& api() const { return *api_; }
  const std::string& problem() const { return problem_; }

  // Remembers the first problem with one GPU; the others are still reported.
  void add_problem(unsigned index, nvml::Return result) {
    if (problem_.empty()) problem_ = fmt::format("GPU {}: {}", index, reason(result));
  }

 private:
  std::string reason(nvml::Return result) const {
    const char* text = api_->error_string(result);
    return fmt::format("{} (NVML error {})", text == nullptr ? "unknown error" : text, result);
  }

  std::optional<nvml::Api> api_;
  bool initialised_ = false;
  std::string problem_;
};

std::string nvml_text(nvml::Return (*function)(nvml::Device, char*, unsigned),
                      nvml::Device device) {
  char text[kNvmlTextBytes] = {};
  if (function(device, text, kNvmlTextBytes) != nvml::kSuccess) return {};
  text[kNvmlTextBytes - 1] = '\0';
  return text;
}

std::string nvml_bus_id(const nvml::Api& api, nvml::Device device) {
  nvml::PciInfo info{};
  if (api.pci_info == nullptr || api.pci_info(device, &info) != nvml::kSuccess) return {};
  info.bus_id[sizeof info.bus_id - 1] = '\0';
  return info.bus_id;
}

bool mig_enabled(const nvml::Api& api, nvml::Device device) {
  unsigned current = 0;
  unsigned pending = 0;
  return api.mig_mode != nullptr && api.mig_mode(device, &current, &pending) == nvml::kSuccess &&
         current == 1;
}

std::vector<nvml::Device> mig_devices(const nvml::Api& api, nvml::Device device) {
  std::vector<nvml::Device> slices;
  unsigned count = 0;
  if (api.mig_count_max == nullptr || api.mig_device_at == nullptr) return slices;
  if (api.mig_count_max(device, &count) != nvml::kSuccess) return slices;
  for (unsigned i = 0; i < count; ++i) {
    // A position without a slice answers "not found".
    nvml::Device slice = nullptr;
    if (api.mig_device_at(device, i, &slice) == nvml::kSuccess) slices.push_back(slice);
  }
  return slices;
}

template <typename Use>
void for_each_gpu(Nvml& library, Use use) {
  unsigned count = 0;
  const nvml::Return counted = library.api().count(&count);
  if (counted != nvml::kSuccess) return library.add_problem(0, counted);
  for (unsigned i = 0; i < count; ++i) {
    nvml::Device device = nullptr;
    const nvml::Return result = library.api().device_at(i, &device);
    if (result != nvml::kSuccess) {
      library.add_problem(i, result);
      continue;
    }
    use(static_cast<int>(i), device);
  }
}

Gpu describe_gpu(const nvml::Api& api, int index, nvml::Device device) {
  Gpu gpu;
  gpu.nvml_index = index;
  gpu.uuid = nvml_text(api.uuid, device);
  gpu.name = nvml_text(api.name, device);
  gpu.pci_bus_id = normalized_pci_bus_id(nvml_bus_id(api, device));
  gpu.mig_enabled = mig_enabled(api, device);
  if (!gpu.mig_enabled) return gpu;
  for (const nvml::Device slice : mig_devices(api, device)) {
    gpu.mig.push_back({nvml_text(api.uuid, slice)});
  }
  return gpu;
}

void add_compute_processes(const nvml::Api& api, nvml::Device device,
                           std::map<int, uint64_t>& by_pid) {
  if (api.compute_processes == nullptr) return;
  std::vector<nvml::ProcessInfo> infos(64);
  // The list may grow between two calls.
  for (int attempt = 0; attempt < 4; ++attempt) {
    auto count = static_cast<unsigned>(infos.size());
    const nvml::Return result = api.compute_processes(device, &count, infos.data());
    if (result == nvml::kInsufficientSize) {
      infos.resize(std::max<size_t>(count, infos.size()) * 2);
      continue;
    }
    if (result != nvml::kSuccess) return;
    infos.resize(std::min<size_t>(count, infos.size()));
    for (const nvml::ProcessInfo& info : infos) {
      const bool known = info.used_bytes != nvml::kNotAvailable;
      by_pid[static_cast<int>(info.pid)] += known ? info.used_bytes : 0;
    }
    return;
  }
}

std::map<int, uint64_t> memory_by_pid(const nvml::Api& api, nvml::Device device) {
  std::map<int, uint64_t> by_pid;
  if (mig_enabled(api, device)) {
    for (const nvml::Device slice : mig_devices(api, device))
      add_compute_processes(api, slice, by_pid);
  } else {
    add_compute_processes(api, device, by_pid);
  }
  return by_pid;
}

// Pads the domain, which has four or more digits, so that text order is bus order.
std::string bus_order_key(const Gpu& gpu) {
  const size_t domain_digits = std::min<size_t>(gpu.pci_bus_id.find(':'), 16);
  return std::string(16 - domain_digits, '0') + gpu.pci_bus_id;
}

int print_report_line(const std::string& line) {
  // A driver library may have left an unfinished line on stdout.
  const bool written = std::fputs(("\n" + line + "\n").c_str(), stdout) >= 0;
  return written && std::fflush(stdout) == 0 ? 0 : 1;
}

}  // namespace

DeviceReport query_devices_in_process(const std::filesystem::path& proc_root) {
  DeviceReport report;
  Nvml library;
  if (library.open()) {
    report.source = DeviceSource::nvml;
    for_each_gpu(library, [&](int index, nvml::Device device) {
      report.gpus.push_back(describe_gpu(library.api(), index, device));
    });
    std::sort(report.gpus.begin(), report.gpus.end(),
              [](const Gpu& a, const Gpu& b) { return bus_order_key(a) < bus_order_key(b); });
  } else if (std::optional<std::vector<Gpu>> gpus = read_proc_devices(proc_root)) {
    report.source = DeviceSource::proc;
    report.gpus = std::move(*gpus);
  }
  report.problem = library.problem();
  return report;
}

std::vector<GpuProcess> query_gpu_processes_in_process() {
  std::vector<GpuProcess> processes;
  Nvml library;
  if (!library.open()) return processes;
  for_each_gpu(library, [&](int index, nvml::Device device) {
    for (const auto& [pid, bytes] : memory_by_pid(library.api(), device))
      processes.push_back({index, pid, bytes});
  });
  return processes;
}

int devices_child_main() {
  return print_report_line(format_device_report(query_devices_in_process()));
}

int device_users_child_main() {
  return print_report_line(format_gpu_processes(query_gpu_processes_in_process()));
}

}  // namespace muster
