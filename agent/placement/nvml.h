// Queries the GPU driver through NVML, which needs no CUDA context and touches no device memory.
// The library is opened at run time and its functions are declared by hand, so the same binary runs
// on machines with and without a driver. Every call may block in the kernel indefinitely: call it
// only in a process that can be killed (helper_process.h). No call throws or prints.
#pragma once

#include <filesystem>

#include "agent/placement/devices.h"

namespace muster {

// Reports this machine's GPUs: from NVML, else from `proc_root`/driver/nvidia/gpus, else none with
// source `none`, which is not an error.
DeviceReport query_devices_in_process(const std::filesystem::path& proc_root = "/proc");

// The processes that compute on GPUs, by GPU and pid. Empty without a driver.
std::vector<GpuProcess> query_gpu_processes_in_process();

// Run the hidden commands `--internal-devices` and `--internal-device-users`; return the exit code.
int devices_child_main();
int device_users_child_main();

}  // namespace muster
