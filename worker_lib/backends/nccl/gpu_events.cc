#include "worker_lib/backends/nccl/gpu_events.h"

namespace muster::worker {

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
