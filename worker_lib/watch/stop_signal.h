// SIGTERM as an event. The handler is installed only where the program left SIGTERM at its default.
// It writes one eventfd and, where the process is to end (StopPolicy::end_calls), arms a timer:
// after a second the process ends by SIGTERM, as it would have without us at once. The timer is the
// kernel's and the state the process's, so that this holds whatever the program does meanwhile,
// destroy_process_group() included. A child of fork() dies of SIGTERM as ever.
//
// One that is installed at a time in a process. Any thread.
#pragma once

#include <atomic>
#include <memory>

#include "muster/init.h"
#include "worker_lib/failure.h"

namespace muster::worker {

class StopSignal {
 public:
  // With StopPolicy::ignore, or where the program has a handler of its own, nothing is installed.
  static Outcome<std::unique_ptr<StopSignal>> install(StopPolicy policy);
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;
  // Puts SIGTERM back to its default, unless the program has put a handler of its own there since,
  // or SIGTERM came and the process is about to end.
  ~StopSignal();

  // Readable from the moment that SIGTERM came, also to an earlier StopSignal. Never read it.
  int event_fd() const { return event_fd_; }
  bool came() const;
  // As if it had come, without the end.
  void pretend();
  bool is_installed() const { return installed_; }

 private:
  StopSignal(int event_fd, bool installed) : event_fd_(event_fd), installed_(installed) {}

  int event_fd_;
  bool installed_;
  std::atomic<bool> pretended_ = false;
};

}  // namespace muster::worker
