// A thread of the library: it takes no signals, so that a program's handlers run on the program's
// threads alone.
#pragma once

#include <csignal>
#include <thread>
#include <utility>

namespace muster::worker {

template <typename Work>
std::thread quiet_thread(Work&& work) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::forward<Work>(work));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace muster::worker
