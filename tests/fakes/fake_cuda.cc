#include "tests/fakes/fake_cuda.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <future>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/fakes/fake_gpu.h"
#include "worker_lib/backends/nccl/cuda_driver.h"

using muster::fake::FakeEvent;
using muster::fake::FakeStream;

extern "C" __attribute__((visibility("default"))) muster::fake::FakeGpu* fake_gpu() {
  static auto* const gpu = new muster::fake::FakeGpu;
  return gpu;
}

namespace muster::fake {

namespace {

constexpr int kMostGpus = 16;
constexpr int kInvalidValue = 1;
constexpr int kNoDevice = 100;
constexpr int kInvalidContext = 201;
constexpr int kNotReady = 600;

struct FakeContext {
  int gpu = 0;
  FakeStream legacy;
};

FakeContext* context_of(int gpu) {
  static auto* const contexts = new std::array<FakeContext, kMostGpus>;
  (*contexts)[static_cast<size_t>(gpu)].gpu = gpu;
  return &(*contexts)[static_cast<size_t>(gpu)];
}

std::vector<FakeContext*>& context_stack() {
  static thread_local std::vector<FakeContext*> stack;
  return stack;
}

// All open streams, for calls that wait for every one.
std::mutex& streams_mutex() {
  static auto* const mutex = new std::mutex;
  return *mutex;
}
std::set<FakeStream*>& open_streams() {
  static auto* const streams = new std::set<FakeStream*>;
  return *streams;
}

int misuse(int error) {
  fake_gpu()->misuses += 1;
  return error;
}

}  // namespace

FakeStream::FakeStream() : queue_(std::make_shared<Queue>()) {
  std::thread([queue = queue_] { work(queue); }).detach();
}

void FakeStream::work(const std::shared_ptr<Queue>& queue) {
  while (true) {
    std::function<void()> task;
    {
      std::unique_lock lock(queue->mutex);
      queue->changed.wait(lock, [&] { return queue->closed || !queue->tasks.empty(); });
      if (queue->tasks.empty()) return;
      task = std::move(queue->tasks.front());
      queue->tasks.pop_front();
    }
    task();
  }
}

void FakeStream::put(std::function<void()> task) {
  {
    const std::lock_guard lock(queue_->mutex);
    queue_->tasks.push_back(std::move(task));
  }
  queue_->changed.notify_all();
}

void FakeStream::close() {
  {
    const std::lock_guard lock(queue_->mutex);
    queue_->closed = true;
  }
  queue_->changed.notify_all();
}

void FakeEvent::record(FakeStream& stream) {
  uint64_t number = 0;
  {
    const std::lock_guard lock(state_->mutex);
    number = ++state_->recorded;
  }
  stream.put([state = state_, number] {
    {
      const std::lock_guard lock(state->mutex);
      state->reached = number;
    }
    state->changed.notify_all();
  });
}

void FakeStream::finish() {
  auto done = std::make_shared<std::promise<void>>();
  put([done] { done->set_value(); });
  done->get_future().wait();
}

bool FakeEvent::is_reached() const {
  const std::lock_guard lock(state_->mutex);
  return state_->reached >= state_->recorded;
}

void FakeEvent::hold(FakeStream& stream) const {
  const std::lock_guard lock(state_->mutex);
  stream.put([state = state_, number = state_->recorded] {
    std::unique_lock waiting(state->mutex);
    state->changed.wait(waiting, [&] { return state->reached >= number; });
  });
}

int current_gpu() {
  return context_stack().empty() ? -1 : context_stack().back()->gpu;
}

FakeStream* stream_of(void* handle) {
  if (handle != nullptr) return static_cast<FakeStream*>(handle);
  return context_stack().empty() ? nullptr : &context_stack().back()->legacy;
}

}  // namespace muster::fake

#define FAKE_API extern "C" __attribute__((visibility("default")))

using namespace muster::fake;

FAKE_API int cuInit(unsigned) {
  return fake_gpu()->init_error;
}

FAKE_API int cuDeviceGetCount(int* count) {
  *count = fake_gpu()->gpus;
  return 0;
}

FAKE_API int cuDeviceGet(int* device, int index) {
  if (index < 0 || index >= fake_gpu()->gpus) return misuse(kInvalidValue);
  *device = index;
  return 0;
}

FAKE_API int cuDeviceGetName(char* name, int length, int device) {
  std::strncpy(name, ("Fake GPU " + std::to_string(device)).c_str(), static_cast<size_t>(length));
  return 0;
}

FAKE_API int cuDeviceGetUuid_v2(muster::worker::CudaUuid* uuid, int device) {
  uuid->bytes = {};
  uuid->bytes[15] = fake_gpu()->same_uuid ? '\1' : static_cast<char>(device + 1);
  return 0;
}

FAKE_API int cuDevicePrimaryCtxRetain(void** context, int device) {
  fake_gpu()->contexts += 1;
  *context = context_of(device);
  return 0;
}

FAKE_API int cuDevicePrimaryCtxRelease_v2(int) {
  fake_gpu()->contexts -= 1;
  return 0;
}

FAKE_API int cuCtxGetCurrent(void** context) {
  *context = context_stack().empty() ? nullptr : context_stack().back();
  return 0;
}

FAKE_API int cuCtxPushCurrent_v2(void* context) {
  context_stack().push_back(static_cast<FakeContext*>(context));
  return 0;
}

FAKE_API int cuCtxPopCurrent_v2(void** context) {
  if (context_stack().empty()) return misuse(kInvalidContext);
  *context = context_stack().back();
  context_stack().pop_back();
  return 0;
}

FAKE_API int cuCtxSetCurrent(void* context) {
  context_stack().assign(context == nullptr ? 0 : 1, static_cast<FakeContext*>(context));
  return 0;
}

FAKE_API int cuCtxSynchronize() {
  if (current_gpu() < 0) return misuse(kInvalidContext);
  stream_of(nullptr)->finish();
  const std::lock_guard lock(streams_mutex());
  for (FakeStream* const stream : open_streams())
    stream->finish();
  return 0;
}

FAKE_API int cuStreamSynchronize(void* stream) {
  FakeStream* const on = stream_of(stream);
  if (on == nullptr) return misuse(kInvalidContext);
  on->finish();
  return 0;
}

FAKE_API int cuMemcpyHtoD_v2(unsigned long long to, const void* from, size_t bytes) {
  std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  return 0;
}

FAKE_API int cuMemcpyDtoH_v2(void* to, unsigned long long from, size_t bytes) {
  std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
  return 0;
}

FAKE_API int cuMemsetD32Async(unsigned long long to, unsigned value, size_t count, void* stream) {
  FakeStream* const on = stream_of(stream);
  if (on == nullptr) return misuse(kInvalidContext);
  on->put([=] { std::fill_n(reinterpret_cast<unsigned*>(to), count, value); });
  return 0;
}

FAKE_API int cuMemcpyDtoDAsync_v2(unsigned long long to, unsigned long long from, size_t bytes,
                                  void* stream) {
  FakeStream* const on = stream_of(stream);
  if (on == nullptr) return misuse(kInvalidContext);
  on->put([=] {
    std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
  });
  return 0;
}

FAKE_API int cuMemGetInfo_v2(size_t* free, size_t* total) {
  *free = *total = size_t{1} << 40;
  return 0;
}

FAKE_API int cuGetErrorName(int error, const char** name) {
  *name = error == kNoDevice ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_FAKE";
  return 0;
}

FAKE_API int cuGetErrorString(int error, const char** text) {
  *text = error == kNoDevice ? "no CUDA-capable device is detected" : "the fake was told to fail";
  return 0;
}

FAKE_API int cuStreamCreate(void** stream, unsigned) {
  if (current_gpu() < 0) return misuse(kInvalidContext);
  fake_gpu()->streams += 1;
  auto* const made = new FakeStream;
  const std::lock_guard lock(streams_mutex());
  open_streams().insert(made);
  *stream = made;
  return 0;
}

FAKE_API int cuStreamDestroy_v2(void* stream) {
  if (current_gpu() < 0) return misuse(kInvalidContext);
  fake_gpu()->streams -= 1;
  {
    const std::lock_guard lock(streams_mutex());
    open_streams().erase(static_cast<FakeStream*>(stream));
  }
  static_cast<FakeStream*>(stream)->close();
  delete static_cast<FakeStream*>(stream);
  return 0;
}

FAKE_API int cuStreamWaitEvent(void* stream, void* event, unsigned) {
  FakeStream* const on = stream_of(stream);
  if (on == nullptr) return misuse(kInvalidContext);
  static_cast<FakeEvent*>(event)->hold(*on);
  return 0;
}

FAKE_API int cuStreamIsCapturing(void*, int* status) {
  *status = fake_gpu()->stream_is_captured ? 1 : 0;
  return 0;
}

FAKE_API int cuEventCreate(void** event, unsigned) {
  if (current_gpu() < 0) return misuse(kInvalidContext);
  fake_gpu()->events += 1;
  *event = new FakeEvent;
  return 0;
}

FAKE_API int cuEventDestroy_v2(void* event) {
  fake_gpu()->events -= 1;
  delete static_cast<FakeEvent*>(event);
  return 0;
}

FAKE_API int cuEventRecord(void* event, void* stream) {
  FakeStream* const on = stream_of(stream);
  if (on == nullptr) return misuse(kInvalidContext);
  static_cast<FakeEvent*>(event)->record(*on);
  return 0;
}

FAKE_API int cuEventQuery(void* event) {
  fake_gpu()->queries += 1;
  if (const int error = fake_gpu()->event_error) return error;
  return static_cast<FakeEvent*>(event)->is_reached() ? 0 : kNotReady;
}

FAKE_API int cuMemAlloc_v2(unsigned long long* pointer, size_t bytes) {
  if (current_gpu() < 0) return misuse(kInvalidContext);
  fake_gpu()->allocations += 1;
  *pointer = reinterpret_cast<unsigned long long>(std::calloc(1, bytes));
  return 0;
}

FAKE_API int cuMemFree_v2(unsigned long long pointer) {
  fake_gpu()->allocations -= 1;
  std::free(reinterpret_cast<void*>(pointer));
  return 0;
}

FAKE_API int cuThreadExchangeStreamCaptureMode(int* mode) {
  *mode = 0;
  return 0;
}

FAKE_API int cuLaunchHostFunc(void* stream, void (*function)(void*), void* data) {
  FakeStream* const on = stream_of(stream);
  if (on == nullptr) return misuse(kInvalidContext);
  on->put([function, data] { function(data); });
  return 0;
}
