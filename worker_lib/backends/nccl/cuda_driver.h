// The few CUDA functions needed around NCCL (contexts, streams, events), from the driver itself
// (libcuda.so.1, opened on demand). Declared here, so that building needs no CUDA header; a test
// compares the declarations with the real header if it finds one. A stream of the CUDA runtime is a
// driver stream, and the runtime works in the primary context, which is used here.
//
// Sources: "CUDA Driver API" (initialisation, primary context management, stream and event
// management) and "Interactions with the CUDA Runtime" there.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "worker_lib/backends/opened_library.h"
#include "worker_lib/failure.h"

namespace muster::worker {

using CudaStream = void*;
using CudaEvent = void*;
using CudaContext = void*;
using CudaPointer = unsigned long long;

inline constexpr int kCudaSuccess = 0;
inline constexpr int kCudaNotReady = 600;
inline constexpr int kCudaCapturedEvent = 907;
inline constexpr unsigned kCudaStreamNonBlocking = 1;
inline constexpr unsigned kCudaEventDisableTiming = 2;
inline constexpr int kCudaCaptureNone = 0;
inline constexpr int kCudaCaptureModeRelaxed = 2;

struct CudaUuid {
  std::array<char, 16> bytes{};
};

// Members are named after the driver's functions without "cu" and the version suffix, which is the
// one that the headers of CUDA 12 and 13 map the plain names to.
struct CudaApi {
  OpenedLibrary library;
  int (*init)(unsigned flags) = library["cuInit"];
  int (*device_get_count)(int* count) = library["cuDeviceGetCount"];
  int (*device_get)(int* device, int index) = library["cuDeviceGet"];
  int (*device_get_name)(char* name, int length, int device) = library["cuDeviceGetName"];
  int (*device_get_uuid)(CudaUuid* uuid, int device) = library["cuDeviceGetUuid_v2"];
  int (*device_primary_ctx_retain)(CudaContext* context,
                                   int device) = library["cuDevicePrimaryCtxRetain"];
  int (*device_primary_ctx_release)(int device) = library["cuDevicePrimaryCtxRelease_v2"];
  int (*ctx_get_current)(CudaContext* context) = library["cuCtxGetCurrent"];
  int (*ctx_push_current)(CudaContext context) = library["cuCtxPushCurrent_v2"];
  int (*ctx_pop_current)(CudaContext* context) = library["cuCtxPopCurrent_v2"];
  int (*get_error_name)(int error, const char** name) = library["cuGetErrorName"];
  int (*get_error_string)(int error, const char** text) = library["cuGetErrorString"];
  int (*stream_create)(CudaStream* stream, unsigned flags) = library["cuStreamCreate"];
  int (*stream_destroy)(CudaStream stream) = library["cuStreamDestroy_v2"];
  int (*stream_wait_event)(CudaStream stream, CudaEvent event,
                           unsigned flags) = library["cuStreamWaitEvent"];
  int (*stream_is_capturing)(CudaStream stream, int* status) = library["cuStreamIsCapturing"];
  int (*event_create)(CudaEvent* event, unsigned flags) = library["cuEventCreate"];
  int (*event_destroy)(CudaEvent event) = library["cuEventDestroy_v2"];
  int (*event_record)(CudaEvent event, CudaStream stream) = library["cuEventRecord"];
  int (*event_query)(CudaEvent event) = library["cuEventQuery"];
  int (*mem_alloc)(CudaPointer* pointer, size_t bytes) = library["cuMemAlloc_v2"];
  int (*mem_free)(CudaPointer pointer) = library["cuMemFree_v2"];
  int (*thread_exchange_stream_capture_mode)(int* mode) =
      library["cuThreadExchangeStreamCaptureMode"];

  // "CUDA_ERROR_NO_DEVICE (100): no CUDA-capable device is detected".
  std::string describe(int error) const;
  // Succeeds, or fails with code backend: "cuEventRecord failed with CUDA_ERROR_...".
  Outcome<> check(int error, const char* what) const;
};

// Opens and initialises the driver; fails with code backend and a line for the user.
Outcome<CudaApi> open_cuda_driver();
// Returns the process's instance, opened by the first call. Any thread.
Outcome<const CudaApi*> cuda_driver();

// Returns the number of GPUs that this process sees; fails if there is none.
Outcome<int> count_gpus(const CudaApi& cuda);

// A GPU and its primary context, which this object retains. Any thread.
class Gpu {
 public:
  // `index`: among the GPUs that this process sees.
  static Outcome<std::shared_ptr<Gpu>> open(const CudaApi& cuda, int index);
  Gpu(Gpu&&) = delete;
  ~Gpu();

  // Makes the context current on this thread while it lives.
  class Current {
   public:
    explicit Current(const Gpu& gpu);
    Current(Current&&) = delete;
    ~Current();

   private:
    const Gpu& gpu_;
    bool pushed_ = false;
  };

  const CudaApi& cuda() const { return cuda_; }
  int index() const { return index_; }
  const std::string& name() const { return name_; }  // "NVIDIA H100 80GB HBM3"
  // 32 hexadecimal digits that identify the GPU (or MIG instance).
  const std::string& uuid() const { return uuid_; }

 private:
  Gpu(const CudaApi& cuda, int index) : cuda_(cuda), index_(index) {}
  const CudaApi& cuda_;
  int index_;
  int device_ = -1;
  CudaContext context_ = nullptr;
  std::string name_;
  std::string uuid_;
};

// CUDA events that mark the end of an operation in a stream; reused, since creating one costs more
// than recording one. Shared by a group's core and all that wait for its operations. Any thread.
class GpuEvents : public std::enable_shared_from_this<GpuEvents> {
 public:
  explicit GpuEvents(std::shared_ptr<Gpu> gpu) : gpu_(std::move(gpu)) {}
  GpuEvents(GpuEvents&&) = delete;
  ~GpuEvents();

  // A point in a stream.
  class Mark {
   public:
    Mark(std::shared_ptr<GpuEvents> events, CudaEvent event)
        : events_(std::move(events)), event_(event) {}
    Mark(Mark&&) = delete;
    ~Mark() { events_->give_back(event_); }

    // Queries the event, unless it is known to be passed: see GpuEvents::is_passed().
    Outcome<bool> is_passed() const {
      return is_done() ? Outcome<bool>(true) : events_->is_passed(event_);
    }
    // Makes later work on `stream` wait for this point.
    Outcome<> hold(CudaStream stream) const;
    // Remembers that the point was passed normally: no operation had been stopped.
    void note_done() { done_.store(true, std::memory_order_release); }
    bool is_done() const { return done_.load(std::memory_order_acquire); }

   private:
    std::shared_ptr<GpuEvents> events_;
    CudaEvent event_;
    std::atomic<bool> done_{false};
  };

  // Marks the end of the work that is now in `stream`.
  Outcome<std::shared_ptr<Mark>> mark(CudaStream stream);

  // Records an event, which the caller gives back. `spare`: one to reuse; the caller's on failure.
  Outcome<CudaEvent> record(CudaStream stream, CudaEvent spare = nullptr);
  void give_back(CudaEvent event);
  // True if the work before it is complete or was stopped: check failure() of the core next. Fails
  // with backend if the GPU failed.
  Outcome<bool> is_passed(CudaEvent event) const;

 private:
  std::shared_ptr<Gpu> gpu_;
  std::mutex mutex_;
  std::vector<CudaEvent> free_;
};

}  // namespace muster::worker
