// The updates that this process has received, and their listeners. Any thread. Listeners are called
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

  // First calls `listener` with all earlier updates, on this thread.
  int subscribe(Watch::Listener listener);
  // Waits for a call in progress on another thread. A listener may unsubscribe itself.
  void unsubscribe(int id);

 private:
  // Held during calls, for one order. Recursive: listeners may subscribe and unsubscribe.
  std::recursive_mutex mutex_;
  std::vector<Watch::News> history_;
  std::map<int, std::shared_ptr<const Watch::Listener>> listeners_;
  int next_id_ = 0;
};

}  // namespace muster::worker
