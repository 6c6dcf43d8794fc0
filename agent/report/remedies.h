// A small table of error messages that can mean only one thing: the class of failure that they
// prove and what to do. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "agent/report/job_report.h"

namespace muster {

inline constexpr std::string_view kMemoryRemedy =
    "use less memory per worker (batch size, data-loading processes) or raise the limit (docker "
    "run --memory, Kubernetes resources.limits.memory, Slurm --mem)";
inline constexpr std::string_view kShmRemedy =
    "give /dev/shm more room: docker run --shm-size=8g (or --ipc=host); on Kubernetes mount an "
    "emptyDir with medium: Memory there";

inline constexpr std::string_view kConsoleRemedy =
    "muster's output was closed by its reader (as `| head` does), so the worker's pipe closed too: "
    "read the output to the end, or keep it in files (--log-dir)";

inline constexpr std::string_view kGpuHardwareRemedy =
    "the GPU or its link failed: take the node out of the job, and see `nvidia-smi -q` and the "
    "kernel log";
inline constexpr std::string_view kGpuKernelRemedy =
    "GPU errors surface late: run again with CUDA_LAUNCH_BLOCKING=1 to see the call that failed";
inline constexpr std::string_view kNcclRemedy =
    "run again with NCCL_DEBUG=INFO: NCCL prints its reason on the rank that failed first";

inline constexpr std::string_view kCpuTimeRemedy =
    "raise ulimit -t before muster starts, or lift it: ulimit -t unlimited";
inline constexpr std::string_view kStackRemedy =
    "endless or very deep recursion, or large local arrays: a core or a debugger shows where; a "
    "larger ulimit -s, set before muster starts, gives more room";
inline constexpr std::string_view kProcessLimitRemedy =
    "raise the limit of processes and threads (ulimit -u; pids.max is docker run --pids-limit, "
    "systemd's TasksMax), or start fewer data-loading processes and threads (OMP_NUM_THREADS)";

struct Remedy {
  FailureClass kind = FailureClass::user;
  std::string text;

  friend bool operator==(const Remedy&, const Remedy&) = default;
};

// The first entry of the table that `message` contains (an exception, or the last lines of stderr).
std::optional<Remedy> known_remedy(std::string_view message);

// Xids (NVIDIA's catalogue) of failing hardware: uncorrectable memory errors, NVLink, off the bus,
// GSP. They concern the whole GPU, so the process that the driver names need not have used it.
bool xid_of_hardware(int number);

// The Xids of hardware that hit only the named process.
bool xid_of_memory(int number);

// Xids of an illegal access or instruction of the named process, and of its consequences.
bool xid_of_program(int number);

}  // namespace muster
