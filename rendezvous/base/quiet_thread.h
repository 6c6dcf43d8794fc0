// Threads that block all signals, so that handlers run on the intended threads: the control loop's
// in the launcher, the program's own in a worker.
#pragma once

#include <csignal>
#include <thread>
#include <utility>

namespace muster {

// Blocks all signals in the calling thread, and so in threads that it makes, while it exists.
class SignalsHeldBack {
 public:
  SignalsHeldBack() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsHeldBack() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsHeldBack(SignalsHeldBack&&) = delete;

 private:
  sigset_t before_{};
};

// Throws std::system_error if no thread can be made.
template <typename Work>
std::thread quiet_thread(Work&& work) {
  const SignalsHeldBack held_back;
  return std::thread(std::forward<Work>(work));
}

}  // namespace muster
