// Messages as the libraries print them, each with the remedy that it must lead to.
#include "agent/report/remedies.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace muster {
namespace {

struct Example {
  std::string message;
  FailureClass kind;
  std::string word_of_remedy;
};

const std::vector<Example>& examples() {
  static const std::vector<Example> list = {
      {"RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. It is possible "
       "that dataloader's workers are out of shared memory.",
       FailureClass::shm, "--shm-size"},
      {"RuntimeError: unable to write to file </torch_123_456_0>: No space left on device (28)",
       FailureClass::shm, "--shm-size"},
      {"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total "
       "capacity of 79.14 GiB",
       FailureClass::gpu, "batch"},
      {"RuntimeError: [enforce fail at inline_container.cc:671] . unexpected pos 1280 vs 1184 "
       "(while handling RuntimeError: basic_ios::clear: iostream error)",
       FailureClass::disk, "df -h"},
      {"RuntimeError: [enforce fail at inline_container.cc:863] . PytorchStreamWriter failed "
       "writing file data/1: file write failed",
       FailureClass::disk, "df -h"},
      {"EOFError: EOF when reading a line", FailureClass::user, "--stdin"},
      {"RuntimeError: CUDA error: out of memory", FailureClass::gpu, "batch"},
      {"torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB.", FailureClass::gpu,
       "batch"},
      {"torch.AcceleratorError: CUDA error: device-side assert triggered", FailureClass::gpu,
       "CUDA_LAUNCH_BLOCKING"},
      {"RuntimeError: CUDA error: an illegal memory access was encountered", FailureClass::gpu,
       "CUDA_LAUNCH_BLOCKING"},
      {"RuntimeError: CUDA error: invalid device ordinal", FailureClass::gpu, "--nproc-per-node"},
      {"RuntimeError: CUDA error: no kernel image is available for execution on the device",
       FailureClass::gpu, "architecture"},
      {"CUDA driver version is insufficient for CUDA runtime version", FailureClass::gpu, "driver"},
      {"RuntimeError: Found no NVIDIA driver on your system.", FailureClass::gpu, "--gpus all"},
      {"torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:268, unhandled "
       "system error",
       FailureClass::network, "NCCL_DEBUG"},
      {"ncclSystemError: System call (e.g. socket, malloc) or external library call failed",
       FailureClass::network, "NCCL_DEBUG"},
      {"ncclRemoteError: A call failed possibly due to a network error", FailureClass::network,
       "NCCL_DEBUG"},
      {"ncclInternalError: Internal check failed.", FailureClass::network, "NCCL_DEBUG"},
      {"torch.distributed.DistNetworkError: The server socket has failed to listen on any local "
       "network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: "
       "address already in use",
       FailureClass::network, "ss -ltnp"},
      {"OSError: [Errno 98] Address already in use", FailureClass::network, "ss -ltnp"},
      {"OSError: [Errno 28] No space left on device: '/data/ckpt.pt'", FailureClass::disk, "df -h"},
      {"OSError: [Errno 122] Disk quota exceeded", FailureClass::disk, "quota"},
      {"OSError: [Errno 24] Too many open files", FailureClass::user, "ulimit -n"},
      {"OSError: [Errno 12] Cannot allocate memory", FailureClass::oom, "memory"},
      {"std::bad_alloc: std::bad_alloc", FailureClass::oom, "memory"},
      {"ModuleNotFoundError: No module named 'torch'", FailureClass::user, "package"},
      {"/usr/bin/python3: No module named pkg.trian", FailureClass::user, "-m takes a module"},
      {"/usr/bin/python3: Error while finding module specification for 'pkg.train' "
       "(ModuleNotFoundError: No module named 'pkg')",
       FailureClass::user, "-m takes a module"},
      {"RuntimeError: CUDA error: misaligned address", FailureClass::gpu, "CUDA_LAUNCH_BLOCKING"},
      {"RuntimeError: CUDA error: unspecified launch failure", FailureClass::gpu,
       "CUDA_LAUNCH_BLOCKING"},
      {"torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered", FailureClass::gpu,
       "ECC"},
      {"RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable",
       FailureClass::gpu, "compute mode"},
      {"torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:77, invalid usage (run "
       "with NCCL_DEBUG=WARN for details), NCCL version 2.30.7; last error: Duplicate GPU detected "
       ": rank 1 and rank 0 both on CUDA device 3b000",
       FailureClass::gpu, "set_device"},
      {"ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!",
       FailureClass::gpu, "gloo"},
      {"RuntimeError: nccl2 requires at least one CUDA device", FailureClass::gpu, "gloo"},
      {"NCCL WARN Bootstrap : no socket interface found", FailureClass::network, "--iface"},
      {"RuntimeError: [enforce fail at gloo/transport/tcp/device.cc:84] ifa != nullptr. Unable to "
       "find address for: eth9",
       FailureClass::network, "GLOO_SOCKET_IFNAME"},
      {"socket.gaierror: [Errno -2] Name or service not known", FailureClass::network, "getent"},
      {"socket.gaierror: [Errno -3] Temporary failure in name resolution", FailureClass::network,
       "getent"},
      {"RuntimeError: received 0 items of ancdata", FailureClass::user, "ulimit -n"},
      {"RuntimeError: can't start new thread", FailureClass::limit, "ulimit -u"},
      {"ValueError: Default process group has not been initialized, please make sure to call "
       "init_process_group.",
       FailureClass::user, "init_process_group()"},
  };
  return list;
}

TEST(KnownRemedy, FitsEveryExample) {
  for (const Example& example : examples()) {
    const std::optional<Remedy> remedy = known_remedy(example.message);
    ASSERT_TRUE(remedy.has_value()) << example.message;
    EXPECT_EQ(remedy->kind, example.kind) << example.message;
    EXPECT_NE(remedy->text.find(example.word_of_remedy), std::string::npos)
        << example.message << "\n"
        << remedy->text;
  }
}

TEST(KnownRemedy, FindsTheMessageAnywhere) {
  for (const Example& example : examples()) {
    EXPECT_EQ(known_remedy("before " + example.message + " after"), known_remedy(example.message));
  }
}

TEST(KnownRemedy, IsOneLineWithoutAFullStop) {
  for (const Example& example : examples()) {
    const std::string text = known_remedy(example.message)->text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    EXPECT_NE(text.back(), '.') << text;
  }
}

TEST(KnownRemedy, PrefersTheSpecialCase) {
  const auto remedy = known_remedy(
      "RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that "
      "dataloader's workers are out of shared memory. No space left on device");
  ASSERT_TRUE(remedy.has_value());
  EXPECT_EQ(remedy->kind, FailureClass::shm);
}

TEST(KnownRemedy, IsNoneForAnUnknownMessage) {
  for (const char* message :
       {"", "ValueError: boom", "RuntimeError: CUDA error", "Connection reset by peer",
        "RuntimeError: Expected all tensors to be on the same device", "Killed",
        "TimeoutError: timed out", "KeyError: 'NCCL'"}) {
    EXPECT_EQ(known_remedy(message), std::nullopt) << message;
  }
}

}  // namespace
}  // namespace muster
