// CUDA events that mark the end of an operation in a stream, reused because creating one costs more
// than recording one.
//
// Shared by the core of a group and by everything that waits for its operations, so it outlives
// both. Any thread.
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
  GpuEvents(const GpuEvents&) = delete;
  GpuEvents& operator=(const GpuEvents&) = delete;
  ~GpuEvents();

  // A point in a stream, reached or not.
  class Mark {
   public:
    Mark(std::shared_ptr<GpuEvents> events, CudaEvent event)
        : events_(std::move(events)), event_(event) {}
    Mark(const Mark&) = delete;
    Mark& operator=(const Mark&) = delete;
    ~Mark() { events_->give_back(event_); }

    // Of its event; true at once if that is known.
    Outcome<bool> is_reached() const {
      return is_done() ? Outcome<bool>(true) : events_->is_reached(event_);
    }
    // Makes what is put into `stream` from now on wait for it.
    Outcome<> hold(CudaStream stream) const;
    // Records that it was reached while nothing had been stopped, for later callers of is_done().
    void note_done() { done_.store(true, std::memory_order_release); }
    bool is_done() const { return done_.load(std::memory_order_acquire); }

   private:
    std::shared_ptr<GpuEvents> events_;
    CudaEvent event_;
    std::atomic<bool> done_{false};
  };

  // Marks the end of what is in `stream` now.
  Outcome<std::shared_ptr<Mark>> mark(CudaStream stream);

  // The same without an object, for whoever gives the event back. `spare`: the event to be used; if
  // this fails, it is still the caller's.
  Outcome<CudaEvent> record(CudaStream stream, CudaEvent spare = nullptr);
  void give_back(CudaEvent event);
  // Whether the work before it is complete or was stopped. Fails with backend if the GPU failed.
  Outcome<bool> is_reached(CudaEvent event) const;

 private:
  std::shared_ptr<Gpu> gpu_;
  std::mutex mutex_;
  std::vector<CudaEvent> free_;
};

}  // namespace muster::worker
