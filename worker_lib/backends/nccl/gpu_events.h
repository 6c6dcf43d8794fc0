// CUDA events that mark the end of an operation in a stream; reused, since creating one costs more
// than recording one. Shared by a group's core and all that wait for its operations. Any thread.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "worker_lib/backends/nccl/cuda_driver.h"
#include "worker_lib/failure.h"

namespace muster::worker {

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
