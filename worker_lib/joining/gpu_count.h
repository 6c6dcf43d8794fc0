// Counts the GPUs that this process sees, without opening the driver: a process of the CPU backend
// must not pay for a CUDA context.
#pragma once

#include <optional>
#include <string>

namespace muster::worker {

// Counts the driver's device files (/dev/nvidia0 ..., /dev/dxg), at most the entries of a given
// CUDA_VISIBLE_DEVICES before the first that ends its list: -1, or an empty one.
int count_visible_gpus(const std::optional<std::string>& cuda_visible_devices,
                       const std::string& device_folder = "/dev");

}  // namespace muster::worker
