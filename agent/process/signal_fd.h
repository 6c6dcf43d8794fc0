// Signals as records to read from a descriptor. The process must block them on all its threads, and
// only one such descriptor at a time gets them. Any thread.
#pragma once

#include <csignal>

#include <sys/signalfd.h>

#include "rendezvous/base/unique_fd.h"

namespace muster {

// As signalfd(2), close-on-exec: gives a signalfd_siginfo for each of `signals`, which all threads
// block. Where a sandbox refuses signalfd4, it is the end of a pipe that a thread writes to; of the
// details only those of signalfd_info() are there then. `flags`: SFD_NONBLOCK. Holds none, and
// errno says why, if there is no descriptor or no thread left.
UniqueFd open_signal_fd(const sigset_t& signals, int flags = 0);

// The number, code, sender and status.
signalfd_siginfo signalfd_info(const siginfo_t& info);

}  // namespace muster
