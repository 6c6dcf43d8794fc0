// SIGTERM as an event. The handler is installed only if the program left SIGTERM at its default. It
// writes to an eventfd and, if the process is to end (StopPolicy::end_calls), arms a timer: after a
// second the process ends by SIGTERM, as it would at once without us. The timer is the kernel's and
// the state the process's, so that this works whatever the program does meanwhile,
// destroy_process_group() included. A child of fork() dies of SIGTERM as usual. At most one is
// installed in a process at a time. Any thread.
#pragma once

#include <atomic>
#include <memory>

#include "muster/init.h"
#include "worker_lib/failure.h"

namespace muster::worker {

class StopSignal {
 public:
  // Installs nothing with StopPolicy::ignore, over a program's handler, or if another is installed.
  static Outcome<std::unique_ptr<StopSignal>> install(StopPolicy policy);
  StopSignal(StopSignal&&) = delete;
  // Restores SIGTERM's default unless the program installed its own handler or SIGTERM is ending
  // it.
  ~StopSignal();

  // Readable once SIGTERM has come, even to an earlier StopSignal. Never read it.
  int event_fd() const { return event_fd_; }
  bool came() const;
  // Acts as if SIGTERM had come, without ending the process.
  void pretend();
  bool is_installed() const { return installed_; }

 private:
  StopSignal(int event_fd, bool installed) : event_fd_(event_fd), installed_(installed) {}

  int event_fd_;
  bool installed_;
  std::atomic<bool> pretended_ = false;
};

}  // namespace muster::worker
