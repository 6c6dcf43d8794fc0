// The news that this process has heard, and the listeners to it. Any thread. Listeners are called
// one at a time, and none after its unsubscribe() has returned.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "worker_lib/watch/watch.h"

namespace muster::worker {

class WatchBoard {
 public:
  // Calls all listeners, on this thread.
  void publish(const Watch::News& news);

  // First calls `listener` with everything that was published, on this thread.
  int subscribe(Watch::Listener listener);
  // Afterwards the listener is not called any more; waits for a call in progress on another thread.
  // A listener may unsubscribe itself.
  void unsubscribe(int id);

 private:
  // Held during calls, so that all hear everything in one order. Recursive for listeners that
  // subscribe and unsubscribe.
  std::recursive_mutex mutex_;
  std::vector<Watch::News> history_;
  std::map<int, std::shared_ptr<const Watch::Listener>> listeners_;
  int next_id_ = 0;
};

}  // namespace muster::worker
