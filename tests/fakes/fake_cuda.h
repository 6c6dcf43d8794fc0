// Streams and events of the fake in fake_gpu.h.
// The fake is one per process and is used from any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

namespace muster::fake {

// Performs its tasks in order, on its own thread.
class FakeStream {
 public:
  FakeStream();
  void put(std::function<void()> task);
  // Waits until all tasks are done.
  void finish();
  // Lets the thread end once all tasks are done.
  void close();

 private:
  struct Queue {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::function<void()>> tasks;
    bool closed = false;
  };
  static void work(const std::shared_ptr<Queue>& queue);
  std::shared_ptr<Queue> queue_;
};

class FakeEvent {
 public:
  void record(FakeStream& stream);
  bool is_reached() const;
  // Makes the stream wait for the event as recorded now; a later record() does not affect that.
  void hold(FakeStream& stream) const;

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    uint64_t recorded = 0;
    uint64_t reached = 0;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

// Returns `handle`, or for null the current GPU's legacy default stream; null without a context.
FakeStream* stream_of(void* handle);
// Returns the GPU whose context is current on this thread; -1 if there is none.
int current_gpu();

}  // namespace muster::fake
