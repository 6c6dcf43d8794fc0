// Constants shared by the launcher, the agent and the worker library: exit codes and names of
// environment variables, those of workers as in torchrun. Every layer may include this file.
#pragma once

#include <string_view>

namespace muster {

// The exit codes of muster itself, in a range that programs rarely use, since a failed job ends
// with the failed worker's code (1..255; 128+n for signal n). 126 and 127 are as in shells.
enum class ExitCode : int {
  success = 0,
  usage = 2,             // unknown flag, invalid value, contradicting flags
  internal = 120,        // a bug in muster, or the agent process was killed
  environment = 121,     // refused by the machine: log folder, port, descriptors, cwd, no such GPU
  rendezvous = 122,      // the nodes did not meet
  unkillable = 123,      // a worker could not be stopped (uninterruptible sleep)
  cannot_execute = 126,  // the program exists but cannot be executed
  not_found = 127,       // the program, module interpreter or script does not exist
};

// The default ports of the rendezvous are torchrun's.
inline constexpr int kC10dPort = 29400;
inline constexpr int kStaticPort = 29500;

// Key under which the node that hosts the workers' store writes why it ends a round, before any
// worker is stopped: one line for people, then "failed" or "stopped", with the global rank if a
// rank failed: "rank 3 on node7 (node rank 1) exited with 1; the job ends\nfailed 3".
inline constexpr std::string_view kFailureNoticeKey = "muster/failure";

namespace env {
inline constexpr std::string_view kRank = "RANK";
inline constexpr std::string_view kLocalRank = "LOCAL_RANK";
inline constexpr std::string_view kGroupRank = "GROUP_RANK";
inline constexpr std::string_view kGroupWorldSize = "GROUP_WORLD_SIZE";
inline constexpr std::string_view kLocalWorldSize = "LOCAL_WORLD_SIZE";
inline constexpr std::string_view kWorldSize = "WORLD_SIZE";
inline constexpr std::string_view kRoleName = "ROLE_NAME";
inline constexpr std::string_view kRoleRank = "ROLE_RANK";
inline constexpr std::string_view kRoleWorldSize = "ROLE_WORLD_SIZE";
inline constexpr std::string_view kMasterAddr = "MASTER_ADDR";
inline constexpr std::string_view kMasterPort = "MASTER_PORT";
inline constexpr std::string_view kRestartCount = "TORCHELASTIC_RESTART_COUNT";
inline constexpr std::string_view kMaxRestarts = "TORCHELASTIC_MAX_RESTARTS";
inline constexpr std::string_view kRunId = "TORCHELASTIC_RUN_ID";
inline constexpr std::string_view kUseAgentStore = "TORCHELASTIC_USE_AGENT_STORE";
inline constexpr std::string_view kErrorFile = "TORCHELASTIC_ERROR_FILE";
// Ours: earlier starts of this job by the engine ($SLURM_RESTART_COUNT); 0 without an engine.
inline constexpr std::string_view kStartCount = "MUSTER_START_COUNT";
// Ours: the descriptor of the ring in which a worker records its calls (ring/record_fd.h).
inline constexpr std::string_view kRecordFd = "MUSTER_RECORD_FD";
// Ours, for NCCL's profiler plugin (worker_lib/recorder/nccl_profiler/plugin.h): set if kernels are
// recorded too; the value of the user's own kNcclProfiler, which the plugin replaces.
inline constexpr std::string_view kRecordKernels = "MUSTER_RECORD_KERNELS";
inline constexpr std::string_view kNcclProfilerChain = "MUSTER_NCCL_PROFILER_CHAIN";
inline constexpr std::string_view kNcclProfiler = "NCCL_PROFILER_PLUGIN";
inline constexpr std::string_view kNcclPluginFile = "libnccl-profiler-muster.so";
// Python's folders of modules, the hook's first (agent/process/worker_hooks.h).
inline constexpr std::string_view kPythonPath = "PYTHONPATH";
inline constexpr std::string_view kSignalsToHandle = "TORCHELASTIC_SIGNALS_TO_HANDLE";
inline constexpr std::string_view kTimerFile = "TORCHELASTIC_TIMER_FILE";
inline constexpr std::string_view kEnableFileTimer = "TORCHELASTIC_ENABLE_FILE_TIMER";
inline constexpr std::string_view kLogLinePrefixTemplate = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE";
inline constexpr std::string_view kShutdownTimeout = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT";
inline constexpr std::string_view kUninterruptibleTimeout =
    "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT";
inline constexpr std::string_view kHealthCheckPort = "TORCHELASTIC_HEALTH_CHECK_PORT";
inline constexpr std::string_view kNcclAsyncErrorHandling = "TORCH_NCCL_ASYNC_ERROR_HANDLING";
inline constexpr std::string_view kToken = "MUSTER_TOKEN";  // Ours; never passed on to workers.
// Ours: the pid of the launcher's parent, whose end ends the job; never passed on to workers.
inline constexpr std::string_view kEndWith = "MUSTER_END_WITH";
// Ours: hexadecimal digits, equal for all workers of a job and known only to them and their agents.
inline constexpr std::string_view kWorkerSecret = "MUSTER_WORKER_SECRET";
inline constexpr std::string_view kGlooSocketIfname = "GLOO_SOCKET_IFNAME";
inline constexpr std::string_view kNcclSocketIfname = "NCCL_SOCKET_IFNAME";
inline constexpr std::string_view kDisableShareStore = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE";
inline constexpr std::string_view kOmpNumThreads = "OMP_NUM_THREADS";
inline constexpr std::string_view kPythonExec = "PYTHON_EXEC";
inline constexpr std::string_view kCudaVisibleDevices = "CUDA_VISIBLE_DEVICES";
inline constexpr std::string_view kHipVisibleDevices = "HIP_VISIBLE_DEVICES";
inline constexpr std::string_view kCudaDeviceOrder = "CUDA_DEVICE_ORDER";
}  // namespace env

}  // namespace muster
