// What the kernel part of NVIDIA's driver shows in /proc/driver/nvidia: the fallback if the
// user-space library is missing (as in some containers), and a count that costs one readdir if
// nothing more is needed. The folder is a parameter so that tests can use an artificial tree.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "agent/placement/devices.h"

namespace muster {

// The GPUs under `proc_root`/driver/nvidia/gpus in PCI order; nullopt if there is no such folder.
// Reads one driver file per GPU, which can block: call it only in a killable child.
std::optional<std::vector<Gpu>> read_proc_devices(const std::filesystem::path& proc_root);

// The number of GPUs that the kernel knows, by listing one folder. nullopt if there is no driver,
// or if a GPU is in MIG mode, because the number of usable devices is then different.
std::optional<int> quick_gpu_count(const std::filesystem::path& proc_root = "/proc");

}  // namespace muster
