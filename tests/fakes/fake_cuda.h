// The streams and events of the fake: see fake_gpu.h.
// One process-wide fake device; any thread.
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
  // The thread ends when all tasks are done.
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

// `handle`, or for null the current GPU's legacy default stream; null if there is no context.
FakeStream* stream_of(void* handle);
// The GPU whose context is current on this thread; -1: none.
int current_gpu();

}  // namespace muster::fake
