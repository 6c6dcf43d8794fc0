#include "agent/placement/proc_devices.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <system_error>

#include "rendezvous/base/text.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

// nullopt if there is no such folder.
std::optional<std::vector<std::string>> sorted_entries_of(const fs::path& folder) {
  std::error_code error;
  fs::directory_iterator it(folder, error);
  if (error) return std::nullopt;
  std::vector<std::string> names;
  for (const fs::directory_iterator end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Reads lines like "GPU UUID: \t GPU-8932f937-…".
void read_gpu_information(const fs::path& file, Gpu& gpu) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string_view key = std::string_view(line).substr(0, colon);
    const std::string_view value = trim(std::string_view(line).substr(colon + 1));
    if (key == "Model") gpu.name = value;
    // The driver shows question marks until it has initialised the GPU.
    if (key == "GPU UUID" && !contains(value, "?")) gpu.uuid = value;
  }
}

}  // namespace

std::optional<std::vector<Gpu>> read_proc_devices(const fs::path& proc_root) {
  const fs::path folder = proc_root / "driver/nvidia/gpus";
  const std::optional<std::vector<std::string>> names = sorted_entries_of(folder);
  if (!names) return std::nullopt;
  std::vector<Gpu> gpus;
  for (const std::string& name : *names) {
    Gpu gpu;
    gpu.nvml_index = static_cast<int>(gpus.size());
    gpu.pci_bus_id = normalized_pci_bus_id(name);
    read_gpu_information(folder / name / "information", gpu);
    gpus.push_back(std::move(gpu));
  }
  return gpus;
}

std::optional<int> quick_gpu_count(const fs::path& proc_root) {
  const fs::path driver = proc_root / "driver/nvidia";
  const std::optional<std::vector<std::string>> names = sorted_entries_of(driver / "gpus");
  if (!names) return std::nullopt;
  // capabilities/gpuN/mig holds one gi* folder per GPU instance while the GPU is in MIG mode.
  for (const std::string& gpu :
       sorted_entries_of(driver / "capabilities").value_or(std::vector<std::string>())) {
    for (const std::string& entry : sorted_entries_of(driver / "capabilities" / gpu / "mig")
                                        .value_or(std::vector<std::string>())) {
      if (entry.starts_with("gi")) return std::nullopt;
    }
  }
  return static_cast<int>(names->size());
}

}  // namespace muster
