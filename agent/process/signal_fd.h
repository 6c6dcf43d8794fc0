// Reads signals as records from a descriptor. All threads of the process must block these signals,
// and only one such descriptor at a time gets them. Any thread.
#pragma once

#include <csignal>

#include <sys/signalfd.h>

#include "rendezvous/base/unique_fd.h"

namespace muster {

// Opens a close-on-exec signalfd(2) for `signals`. If a sandbox refuses signalfd4, it is a pipe to
// which a thread writes; its records have only the fields that signalfd_info() sets. `flags`:
// SFD_NONBLOCK. Empty, with errno set, if no descriptor or no thread can be had.
UniqueFd open_signal_fd(const sigset_t& signals, int flags = 0);

// True for what nohup(1) does to SIGHUP, for example.
inline bool is_ignored(int signal) {
  struct sigaction action{};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

// Sets the number, code, sender and status.
signalfd_siginfo signalfd_info(const siginfo_t& info);

}  // namespace muster
