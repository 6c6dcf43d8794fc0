// Asks the GPU driver through NVML, which needs no CUDA context and touches no device memory. The
// library is opened at run time and its few functions are declared by hand, so the same binary
// serves machines with and without a driver. Every call here may block in the kernel for as long as
// the driver likes: call it only in a process that can be killed (device_probe.h). No call throws
// or prints.
#pragma once

#include <filesystem>

#include "agent/placement/devices.h"

namespace muster {

// The GPUs of this machine. Without NVML the list comes from `proc_root`/driver/nvidia/gpus;
// without that too the report is empty with source `none`, which is no error.
DeviceReport query_devices_in_process(const std::filesystem::path& proc_root = "/proc");

// Which processes compute on which GPU, and how much memory is taken. Empty without a driver.
DeviceUseReport query_device_uses_in_process();

// The whole life of the hidden commands `--internal-devices` and `--internal-device-users`: one
// line of JSON on stdout, then the exit status to return from main.
int devices_child_main();
int device_users_child_main();

}  // namespace muster
