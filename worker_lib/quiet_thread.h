// Threads of the library block all signals, so that a program's handlers run on the program's
// threads alone.
#pragma once

#include <csignal>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "worker_lib/failure.h"

namespace muster::worker {

// While it lives, the calling thread and the threads that it makes block all signals.
class SignalsHeldBack {
 public:
  SignalsHeldBack() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsHeldBack() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsHeldBack(const SignalsHeldBack&) = delete;
  SignalsHeldBack& operator=(const SignalsHeldBack&) = delete;

 private:
  sigset_t before_{};
};

// Throws std::system_error if no thread can be made.
template <typename Work>
std::thread quiet_thread(Work&& work) {
  const SignalsHeldBack held_back;
  return std::thread(std::forward<Work>(work));
}

// The same; ErrorCode::system if no thread can be made.
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
