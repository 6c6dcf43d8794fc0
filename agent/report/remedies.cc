#include "agent/report/remedies.h"

#include <array>

#include "rendezvous/base/text.h"

namespace muster {
namespace {

struct KnownMessage {
  std::string_view needle;
  FailureClass kind;
  std::string_view remedy;
};

constexpr std::string_view kGpuMemoryRemedy =
    "the GPU's memory is full: use a smaller batch or model part; nvidia-smi lists the processes "
    "that use it";
constexpr std::string_view kNoGpuRemedy =
    "no GPU is visible: check CUDA_VISIBLE_DEVICES and `nvidia-smi -L`, or use the backend gloo";
constexpr std::string_view kInterfaceRemedy =
    "GLOO_SOCKET_IFNAME or NCCL_SOCKET_IFNAME names a network interface that is not here: `ip -br "
    "address` lists them; unset it, or give --iface";
constexpr std::string_view kNameRemedy =
    "a host name cannot be resolved: `getent hosts NAME` on this node shows what it knows; use an "
    "address that all nodes reach";
constexpr std::string_view kDescriptorRemedy =
    "raise the descriptor limit before muster starts: ulimit -n 65536";
constexpr std::string_view kModuleRemedy =
    "-m takes a module that the Python that ran can import: check its spelling and the current "
    "folder; --python chooses another Python";
constexpr std::string_view kUnwrittenRemedy =
    "a file could not be written whole: `df -h` shows full disks; a quota or ulimit -f may limit "
    "it too";
constexpr std::string_view kPortRemedy =
    "another process has that port: `ss -ltnp` names it; without --master-port muster takes a free "
    "one";

// Special cases come before the general ones that they contain.
constexpr std::array kKnownMessages = {
    KnownMessage{"out of shared memory", FailureClass::shm, kShmRemedy},
    KnownMessage{"unable to write to file </torch_", FailureClass::shm, kShmRemedy},
    KnownMessage{"CUDA out of memory", FailureClass::gpu, kGpuMemoryRemedy},
    KnownMessage{"CUDA error: out of memory", FailureClass::gpu, kGpuMemoryRemedy},
    KnownMessage{"HIP out of memory", FailureClass::gpu, kGpuMemoryRemedy},
    KnownMessage{"CUDA error: device-side assert", FailureClass::gpu, kGpuKernelRemedy},
    KnownMessage{"CUDA error: an illegal memory access", FailureClass::gpu, kGpuKernelRemedy},
    KnownMessage{"CUDA error: invalid device ordinal", FailureClass::gpu,
                 "fewer GPUs are visible than the program uses: compare --nproc-per-node with "
                 "`nvidia-smi -L` and CUDA_VISIBLE_DEVICES"},
    KnownMessage{"CUDA error: no kernel image is available", FailureClass::gpu,
                 "the program's CUDA code was not built for this GPU: install a build that names "
                 "its architecture"},
    KnownMessage{"CUDA error: misaligned address", FailureClass::gpu, kGpuKernelRemedy},
    KnownMessage{"CUDA error: unspecified launch failure", FailureClass::gpu, kGpuKernelRemedy},
    KnownMessage{"CUDA error: uncorrectable ECC error", FailureClass::gpu,
                 "the GPU's memory is faulty: `nvidia-smi -q -d ECC` shows it; take the node out "
                 "and reset the GPU"},
    KnownMessage{
        "CUDA-capable device(s) is/are busy or unavailable", FailureClass::gpu,
        "another process holds the GPU alone: `nvidia-smi` shows it, and its compute mode"},
    KnownMessage{"Duplicate GPU detected", FailureClass::gpu,
                 "two ranks use one GPU: call torch.cuda.set_device(LOCAL_RANK), or give "
                 "--gpu-binding exclusive"},
    KnownMessage{"ProcessGroupNCCL is only supported with GPUs", FailureClass::gpu, kNoGpuRemedy},
    KnownMessage{"nccl2 requires at least one CUDA device", FailureClass::gpu, kNoGpuRemedy},
    KnownMessage{"CUDA driver version is insufficient", FailureClass::gpu,
                 "the NVIDIA driver is older than the CUDA runtime needs: update the driver or use "
                 "an older CUDA build"},
    KnownMessage{"Found no NVIDIA driver", FailureClass::gpu,
                 "no NVIDIA driver is here; in a container start it with --gpus all"},
    KnownMessage{"Bootstrap : no socket interface found", FailureClass::network, kInterfaceRemedy},
    KnownMessage{"NCCL error", FailureClass::network, kNcclRemedy},
    KnownMessage{"ncclSystemError", FailureClass::network, kNcclRemedy},
    KnownMessage{"ncclRemoteError", FailureClass::network, kNcclRemedy},
    KnownMessage{"ncclInternalError", FailureClass::network, kNcclRemedy},
    KnownMessage{"Unable to find address for: ", FailureClass::network, kInterfaceRemedy},
    KnownMessage{"Name or service not known", FailureClass::network, kNameRemedy},
    KnownMessage{"Temporary failure in name resolution", FailureClass::network, kNameRemedy},
    KnownMessage{"terminate called without an active exception", FailureClass::signal,
                 "a thread still ran as the program ended: join it, or call "
                 "torch.distributed.destroy_process_group() before the end"},
    KnownMessage{"EADDRINUSE", FailureClass::network, kPortRemedy},
    KnownMessage{"Address already in use", FailureClass::network, kPortRemedy},
    KnownMessage{"No space left on device", FailureClass::disk,
                 "a disk is full: `df -h` and `df -i` show which"},
    KnownMessage{"Disk quota exceeded", FailureClass::disk,
                 "your quota is used up: `quota -s` shows where"},
    // torch.save() does not say why its stream refused bytes.
    KnownMessage{"unexpected pos ", FailureClass::disk, kUnwrittenRemedy},
    KnownMessage{"PytorchStreamWriter failed writing file", FailureClass::disk, kUnwrittenRemedy},
    KnownMessage{"EOF when reading a line", FailureClass::user,
                 "standard input has ended: only one rank reads muster's, rank 0 unless --stdin "
                 "names another"},
    KnownMessage{"Too many open files", FailureClass::user, kDescriptorRemedy},
    KnownMessage{"received 0 items of ancdata", FailureClass::user, kDescriptorRemedy},
    // Python, libgomp, glibc's callers (OpenBLAS, Go), XLA, libomp, Rust, Java, bash, C++.
    KnownMessage{"can't start new thread", FailureClass::limit, kProcessLimitRemedy},
    KnownMessage{"libgomp: Thread creation failed", FailureClass::limit, kProcessLimitRemedy},
    KnownMessage{"pthread_create failed", FailureClass::limit, kProcessLimitRemedy},
    KnownMessage{"creation via pthread_create() failed", FailureClass::limit, kProcessLimitRemedy},
    KnownMessage{"necessary resources for OMP thread", FailureClass::limit, kProcessLimitRemedy},
    KnownMessage{"failed to spawn thread: ", FailureClass::limit, kProcessLimitRemedy},
    KnownMessage{"failed to create new OS thread", FailureClass::limit, kProcessLimitRemedy},
    KnownMessage{"unable to create native thread", FailureClass::limit, kProcessLimitRemedy},
    KnownMessage{"fork: Resource temporarily unavailable", FailureClass::limit,
                 kProcessLimitRemedy},
    KnownMessage{"fork: retry: Resource temporarily unavailable", FailureClass::limit,
                 kProcessLimitRemedy},
    KnownMessage{"std::system_error: Resource temporarily unavailable", FailureClass::limit,
                 kProcessLimitRemedy},
    KnownMessage{"Cannot allocate memory", FailureClass::oom,
                 "the machine or a limit (ulimit -v) refuses more memory: use fewer or smaller "
                 "workers"},
    KnownMessage{"std::bad_alloc", FailureClass::oom,
                 "the machine or a limit (ulimit -v) refuses more memory: use fewer or smaller "
                 "workers"},
    KnownMessage{"Error while finding module specification for ", FailureClass::user,
                 kModuleRemedy},
    KnownMessage{"ModuleNotFoundError: ", FailureClass::user,
                 "that package is not installed for the Python that ran; --python chooses another"},
    KnownMessage{"No module named ", FailureClass::user, kModuleRemedy},
    KnownMessage{"Default process group has not been initialized", FailureClass::user,
                 "call torch.distributed.init_process_group() before the first collective"},
};

}  // namespace

std::optional<Remedy> known_remedy(std::string_view message) {
  for (const KnownMessage& known : kKnownMessages) {
    if (contains(message, known.needle)) {
      return Remedy{known.kind, std::string(known.remedy)};
    }
  }
  return {};
}

bool xid_of_hardware(int number) {
  return is_one_of(number, {48, 74, 79, 94, 95, 119, 120, 140});
}

bool xid_of_memory(int number) {
  return is_one_of(number, {48, 94, 95});
}

bool xid_of_program(int number) {
  return is_one_of(number, {13, 31, 43});
}

}  // namespace muster
