// A descriptor by which poll(2) shows the end of a process: a pidfd (pidfd_open(2)), or, where the
// kernel or a sandbox refuses that (Linux before 5.3, RHEL 8, gVisor, old seccomp profiles), the
// end of a pipe that a thread writes to. Any thread.
#pragma once

#include <sys/types.h>

#include "rendezvous/base/unique_fd.h"

namespace muster {

// Readable once `pid` has ended, for good; close-on-exec. A child that has not been reaped is
// always the one that is meant. Without a pidfd, the end of any other process is seen up to 20 ms
// late. Holds none, and errno says why, if the process is gone, or if there is no descriptor or no
// thread left.
UniqueFd open_process_end(pid_t pid);

// Sends a signal to the process of open_process_end(), which `end` belongs to. Without a pidfd the
// caller must not have reaped it. False: errno is kill(2)'s.
bool signal_by_end(const UniqueFd& end, pid_t pid, int signal);

}  // namespace muster
