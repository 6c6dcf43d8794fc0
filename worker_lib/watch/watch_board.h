// The news that this process has heard, and who wants to hear more. Any thread.
// Listeners are called one at a time, and none after its unsubscribe() returned.
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
  // After it the listener is not called any more; a call under way on another thread is waited for.
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
