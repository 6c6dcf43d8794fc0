// Starts the library's threads: with all signals blocked, so that the program's handlers run on the
// program's threads only, and with a Failure instead of an exception if none can be made.
#pragma once

#include <system_error>
#include <thread>
#include <utility>

#include "rendezvous/base/process_limit.h"
#include "rendezvous/base/quiet_thread.h"
#include "worker_lib/failure.h"

namespace muster::worker {

// Calls quiet_thread(); ErrorCode::system if no thread can be made.
template <typename Work>
Outcome<std::thread> start_quiet_thread(Work&& work) {
  try {
    return quiet_thread(std::forward<Work>(work));
  } catch (const std::system_error& refused) {
    return failed(ErrorCode::system, call_failed("starting a thread", refused.code().value()));
  }
}

// Runs `work` on a new thread, or here if none can be made.
template <typename Work>
void start_or_run(Work work) {
  if (Outcome<std::thread> thread = start_quiet_thread(work)) {
    thread->detach();
  } else {
    work();
  }
}

}  // namespace muster::worker
