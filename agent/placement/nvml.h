// Queries the GPU driver through NVML, which needs no CUDA context and touches no device memory.
// The library is opened at run time and the few functions are declared by hand, so the same binary
// runs on machines with and without a driver. Every call here may block in the kernel indefinitely:
// call it only in a process that can be killed (helper_process.h). No call throws or prints.
#pragma once

#include <filesystem>

#include "agent/placement/devices.h"

namespace muster {

// The GPUs of this machine. Without NVML the list comes from `proc_root`/driver/nvidia/gpus;
// without that the report is empty with source `none`, which is not an error.
DeviceReport query_devices_in_process(const std::filesystem::path& proc_root = "/proc");

// The processes that compute on each GPU, by GPU and pid. Empty without a driver.
std::vector<GpuProcess> query_gpu_processes_in_process();

// Implement the hidden commands `--internal-devices` and `--internal-device-users`: print one line
// of JSON on stdout and return the exit status for main.
int devices_child_main();
int device_users_child_main();

}  // namespace muster
