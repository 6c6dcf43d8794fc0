// One time-out for several operations that are a single call to the user: each gets what those
// before it have left.
#pragma once

#include <algorithm>
#include <chrono>

#include "worker_lib/group/group.h"

namespace muster::worker {

class SharedTime {
 public:
  SharedTime(const Group& group, const CallOptions& options)
      : begin_(std::chrono::steady_clock::now()),
        timeout_(options.timeout.value_or(group.timeout())) {}

  CallOptions left() const {
    const auto past = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::steady_clock::now() - begin_);
    return {.timeout = std::max(timeout_ - past, std::chrono::milliseconds::zero())};
  }

 private:
  const std::chrono::steady_clock::time_point begin_;
  const std::chrono::milliseconds timeout_;
};

}  // namespace muster::worker
