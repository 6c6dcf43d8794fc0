// The library's threads: quiet ones, so that a program's handlers run on the program's threads
// alone, and an error of ours where none can be made.
#pragma once

#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/base/quiet_thread.h"
#include "worker_lib/failure.h"

namespace muster::worker {

// As quiet_thread(); ErrorCode::system if no thread can be made.
template <typename Work>
Outcome<std::thread> start_quiet_thread(Work&& work) {
  try {
    return quiet_thread(std::forward<Work>(work));
  } catch (const std::system_error& refused) {
    return failed(ErrorCode::system,
                  fmt::format("cannot start a thread: {}; the limits of threads (ulimit -u, "
                              "pids.max) or of memory (ulimit -v) may be reached",
                              refused.code().message()));
  }
}

}  // namespace muster::worker
