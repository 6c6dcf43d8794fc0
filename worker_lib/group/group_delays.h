// Things to look at again in a while: a thread that is made when the first is asked for, and ended
// by the destructor, which forgets what is not due yet.
//
// Owned by a group. after() from any thread; the actions run on the thread of this.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "worker_lib/operation.h"

namespace muster::worker {

class GroupDelays {
 public:
  GroupDelays() = default;
  GroupDelays(const GroupDelays&) = delete;
  GroupDelays& operator=(const GroupDelays&) = delete;
  ~GroupDelays();

  void after(std::chrono::milliseconds wait, std::function<void()> act);

 private:
  struct Entry {
    Deadline at;
    std::function<void()> act;
  };

  void work_off();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Entry> entries_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace muster::worker
