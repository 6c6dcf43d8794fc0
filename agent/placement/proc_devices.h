// What the kernel side of NVIDIA's driver shows in /proc/driver/nvidia: the fall-back where the
// user-space library is missing (a container without it), and a count that costs one readdir where
// nothing more is wanted. The folder is handed in so that tests can use a made-up tree.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "agent/placement/devices.h"

namespace muster {

// The GPUs under `proc_root`/driver/nvidia/gpus in PCI order; nullopt if there is no such folder.
// Reads a file of the driver per GPU, which can block: only in a killable child.
std::optional<std::vector<Gpu>> read_proc_devices(const std::filesystem::path& proc_root);

// How many GPUs the kernel knows, by listing one folder. nullopt if there is no driver, or if a GPU
// is in MIG mode, when this number would not say how many devices can be used.
std::optional<int> quick_gpu_count(const std::filesystem::path& proc_root = "/proc");

}  // namespace muster
