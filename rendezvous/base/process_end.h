// A descriptor that becomes readable at the end of a process: a pidfd (pidfd_open(2)), or, if the
// kernel or a sandbox refuses that (Linux before 5.3, RHEL 8, gVisor, old seccomp profiles), a pipe
// that a thread writes to. Any thread.
#pragma once

#include <sys/types.h>

#include "rendezvous/base/unique_fd.h"

namespace muster {

// Returns a close-on-exec descriptor that is readable once `pid` has ended, and stays so. An
// unreaped child's pid cannot have been reused. Without a pidfd, the end of a process that is no
// child is seen up to 20 ms late. Empty, with errno set, if the process is gone or no descriptor or
// thread is left.
UniqueFd open_process_end(pid_t pid);

// Sends a signal to `pid`, for which open_process_end() returned `end`. Without a pidfd the caller
// must not have reaped it. On failure returns false with kill(2)'s errno.
bool signal_by_end(const UniqueFd& end, pid_t pid, int signal);

}  // namespace muster
