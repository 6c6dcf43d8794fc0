#include "worker_lib/backends/nccl/cuda_driver.h"

#include <cstdlib>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/base/contract.h"
#include "rendezvous/base/hex.h"

namespace muster::worker {
namespace {

constexpr OpenedLibrary::Names kCudaNames{"cuInit", "MUSTER_CUDA_LIBRARY", "libcuda.so.1"};

// "CUDA_VISIBLE_DEVICES=1,2", for messages.
std::string visible_devices() {
  const std::string name(env::kCudaVisibleDevices);
  const char* const value = std::getenv(name.c_str());
  return value == nullptr ? name + " is not set" : fmt::format("{}={}", name, value);
}

}  // namespace

std::string CudaApi::describe(int error) const {
  const char* name = nullptr;
  const char* text = nullptr;
  get_error_name(error, &name);
  get_error_string(error, &text);
  return fmt::format("{} ({}): {}", name != nullptr ? name : "unknown CUDA error", error,
                     text != nullptr ? text : "no description");
}

Outcome<> CudaApi::check(int error, const char* what) const {
  if (error == kCudaSuccess) return Done{};
  return failed(ErrorCode::backend, fmt::format("{} failed with {}", what, describe(error)));
}

Outcome<CudaApi> open_cuda_driver() {
  Outcome<OpenedLibrary> library = OpenedLibrary::open(kCudaNames);
  if (!library)
    return failed(ErrorCode::backend,
                  fmt::format("no CUDA driver was found ({}); operations on GPU memory need an "
                              "NVIDIA GPU with its driver, and a container that has access to them",
                              library.error().message));
  CudaApi cuda{std::move(*library)};
  if (const std::string& missing = cuda.library.missing(); !missing.empty())
    return failed(ErrorCode::backend,
                  fmt::format("the CUDA driver {} is too old: it has no {}; install one of CUDA "
                              "11.4 or later",
                              cuda.library.path(), missing));
  if (const int error = cuda.init(0); error != kCudaSuccess)
    return failed(
        ErrorCode::backend,
        fmt::format(
            "the CUDA driver {} failed to initialise: {}; check what nvidia-smi reports ({})",
            cuda.library.path(), cuda.describe(error), visible_devices()));
  return cuda;
}

Outcome<const CudaApi*> cuda_driver() {
  static const Outcome<CudaApi> opened = open_cuda_driver();
  if (!opened) return tl::unexpected(opened.error());
  return &*opened;
}

Outcome<int> count_gpus(const CudaApi& cuda) {
  int count = 0;
  if (const Outcome<> counted = cuda.check(cuda.device_get_count(&count), "cuDeviceGetCount");
      !counted)
    return tl::unexpected(counted.error());
  if (count == 0)
    return failed(ErrorCode::backend,
                  fmt::format("this process sees no GPU ({})", visible_devices()));
  return count;
}

Outcome<std::shared_ptr<Gpu>> Gpu::open(const CudaApi& cuda, int index) {
  const Outcome<int> count = count_gpus(cuda);
  if (!count) return tl::unexpected(count.error());
  if (index < 0 || index >= *count)
    return failed(
        ErrorCode::backend,
        fmt::format(
            "GPU {} was requested (InitOptions::device, else LOCAL_RANK), but this process sees {} "
            "({}); start at most one rank for each GPU, or give more of them to this process",
            index, *count, visible_devices()));
  std::shared_ptr<Gpu> gpu(new Gpu(cuda, index));
  std::array<char, 256> name{};
  CudaUuid uuid;
  if (auto ok = cuda.check(cuda.device_get(&gpu->device_, index), "cuDeviceGet"); !ok)
    return tl::unexpected(ok.error());
  if (cuda.device_get_name(name.data(), static_cast<int>(name.size()) - 1, gpu->device_) ==
      kCudaSuccess)
    gpu->name_ = name.data();
  if (cuda.device_get_uuid(&uuid, gpu->device_) == kCudaSuccess)
    gpu->uuid_ = to_hex({uuid.bytes.data(), uuid.bytes.size()});
  if (auto ok = cuda.check(cuda.device_primary_ctx_retain(&gpu->context_, gpu->device_),
                           "cuDevicePrimaryCtxRetain");
      !ok)
    return tl::unexpected(ok.error());
  return gpu;
}

Gpu::~Gpu() {
  if (context_ != nullptr) cuda_.device_primary_ctx_release(device_);
}

Gpu::Current::Current(const Gpu& gpu) : gpu_(gpu) {
  CudaContext current = nullptr;
  if (gpu.cuda_.ctx_get_current(&current) == kCudaSuccess && current == gpu.context_) return;
  pushed_ = gpu.cuda_.ctx_push_current(gpu.context_) == kCudaSuccess;
}

Gpu::Current::~Current() {
  CudaContext popped = nullptr;
  if (pushed_) gpu_.cuda_.ctx_pop_current(&popped);
}

GpuEvents::~GpuEvents() {
  const Gpu::Current current(*gpu_);
  for (const CudaEvent event : free_)
    gpu_->cuda().event_destroy(event);
}

Outcome<CudaEvent> GpuEvents::record(CudaStream stream, CudaEvent spare) {
  const CudaApi& cuda = gpu_->cuda();
  CudaEvent event = spare;
  if (event == nullptr) {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      event = free_.back();
      free_.pop_back();
    }
  }
  if (event == nullptr) {
    const Outcome<> made =
        cuda.check(cuda.event_create(&event, kCudaEventDisableTiming), "cuEventCreate");
    if (!made) return tl::unexpected(made.error());
  }
  if (const Outcome<> recorded = cuda.check(cuda.event_record(event, stream), "cuEventRecord");
      !recorded) {
    if (event != spare) give_back(event);
    return tl::unexpected(recorded.error());
  }
  return event;
}

Outcome<std::shared_ptr<GpuEvents::Mark>> GpuEvents::mark(CudaStream stream) {
  const Outcome<CudaEvent> event = record(stream);
  if (!event) return tl::unexpected(event.error());
  return std::make_shared<Mark>(shared_from_this(), *event);
}

void GpuEvents::give_back(CudaEvent event) {
  const std::lock_guard lock(mutex_);
  free_.push_back(event);
}

Outcome<bool> GpuEvents::is_passed(CudaEvent event) const {
  const Gpu::Current current(*gpu_);
  const CudaApi& cuda = gpu_->cuda();
  const int state = cuda.event_query(event);
  if (state == kCudaNotReady) return false;
  // A captured event is a node of a graph, and counts as passed whether the graph has run or not.
  if (state != kCudaCapturedEvent) {
    if (const Outcome<> fine = cuda.check(state, "cuEventQuery"); !fine)
      return tl::unexpected(fine.error());
  }
  return true;
}

Outcome<> GpuEvents::Mark::hold(CudaStream stream) const {
  const Gpu::Current current(*events_->gpu_);
  const CudaApi& cuda = events_->gpu_->cuda();
  return cuda.check(cuda.stream_wait_event(stream, event_, 0), "cuStreamWaitEvent");
}

}  // namespace muster::worker
