// Delayed actions. The first after() starts the thread that runs them; the destructor ends it and
// drops the actions that are not due yet.
//
// Owned by a group. Any thread may call after(); the actions run on this object's thread.
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
