#include "worker_lib/joining/gpu_count.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "rendezvous/base/text.h"

namespace muster::worker {
namespace {

int count_listed(std::string_view list) {
  int count = 0;
  for (const std::string_view entry : split(list, ',')) {
    if (entry.empty() || entry.starts_with('-')) break;
    ++count;
  }
  return count;
}

bool is_gpu_file(const std::string& name) {
  constexpr std::string_view kGpuFile = "nvidia";
  if (name == "dxg") return true;  // WSL: one file for all GPUs.
  return name.size() > kGpuFile.size() && name.starts_with(kGpuFile) &&
         name.find_first_not_of("0123456789", kGpuFile.size()) == std::string::npos;
}

}  // namespace

int count_visible_gpus(const std::optional<std::string>& cuda_visible_devices,
                       const std::string& device_folder) {
  int there = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(device_folder, error)) {
    if (is_gpu_file(entry.path().filename().string())) ++there;
  }
  if (!cuda_visible_devices) return there;
  return std::min(there, count_listed(*cuda_visible_devices));
}

}  // namespace muster::worker
