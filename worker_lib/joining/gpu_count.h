// Counts the GPUs that this process sees, without opening the driver: a process of the CPU backend
// must not pay for a CUDA context.
#pragma once

#include <optional>
#include <string>

namespace muster::worker {

// The driver's device files (/dev/nvidia0 ..., /dev/dxg) below `device_folder`; if
// CUDA_VISIBLE_DEVICES is set, at most its entries up to the first that ends the list (as CUDA
// reads it: -1, or an empty one).
int count_visible_gpus(const std::optional<std::string>& cuda_visible_devices,
                       const std::string& device_folder = "/dev");

}  // namespace muster::worker
