// A small table of error messages with a certain meaning: the class of failure that they prove and
// what to do. A message that can mean several things is not in it. Pure.
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
    "the reader of muster's own output has closed it, as `| head` does, and so the worker's pipe "
    "was "
    "closed: read it to the end, or keep it in files (--log-dir)";

inline constexpr std::string_view kGpuHardwareRemedy =
    "the GPU or its link failed: take the node out of the job, and see `nvidia-smi -q` and the "
    "kernel log";
inline constexpr std::string_view kGpuKernelRemedy =
    "GPU errors surface late: run again with CUDA_LAUNCH_BLOCKING=1 to see the call that is guilty";
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

// In NVIDIA's catalogue of Xids: memory that cannot be corrected, NVLink, off the bus, GSP. They
// concern the whole GPU, so a process that the driver names is not always one that used it.
bool xid_of_hardware(int number);

// Of these, those that hit the named process only.
bool xid_of_memory(int number);

// Likewise: an illegal access or instruction of the process that is named, and what it leads to.
bool xid_of_program(int number);

}  // namespace muster
