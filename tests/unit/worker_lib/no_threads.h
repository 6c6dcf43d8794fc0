// A scope in which no thread can start, as under a limit of processes (pids.max, ulimit -u). A real
// limit would hit the whole machine or nothing, since root is not counted.
#pragma once

#include <cstdlib>

#include <pthread.h>

namespace muster::worker {

class NoThreads {
 public:
  NoThreads() {
    if (pthread_getattr_default_np(&before_) != 0) std::abort();
    pthread_attr_t none;
    pthread_attr_init(&none);
    // No address space has room for such a stack.
    pthread_attr_setstacksize(&none, size_t{1} << 62);
    if (pthread_setattr_default_np(&none) != 0) std::abort();
    pthread_attr_destroy(&none);
  }
  ~NoThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t before_{};
};

}  // namespace muster::worker
