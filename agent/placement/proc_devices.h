// Reads /proc/driver/nvidia of NVIDIA's kernel driver: the fallback if the user-space library is
// missing (as in some containers), and a count that costs one readdir.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "agent/placement/devices.h"

namespace muster {

// The GPUs under `proc_root`/driver/nvidia/gpus in PCI order; nullopt if there is no such folder.
// Reads one driver file per GPU, which can block: call it only in a killable child.
std::optional<std::vector<Gpu>> read_proc_devices(const std::filesystem::path& proc_root);

// The number of GPUs that the kernel driver lists; nullopt if there is no driver, or a GPU is in
// MIG mode, so that the number of usable devices differs.
std::optional<int> quick_gpu_count(const std::filesystem::path& proc_root = "/proc");

}  // namespace muster
