// Disables the library in a child of fork(): its threads do not exist there, its sockets are the
// parent's, and peers would take the child's copies of them for the parent itself, even after the
// parent's death. A fork handler (pthread_atfork) marks the child, every public call checks the
// mark, and the child's descriptors are severed: those registered here, and all sockets of the
// store that rank 0 hosts and of the store's clients. They become /dev/null under the same numbers,
// so that a later close() closes nothing else, and are closed by exec.
//
// Armed by the first Job of a process; a child forked before that may join a job. Processes made by
// vfork(), posix_spawn() and the like exec at once and are not affected. Any thread.
#pragma once

#include <atomic>

#include "worker_lib/failure.h"

namespace muster::worker {

namespace fork_state {
extern std::atomic<bool> is_child;
}

// Installs the handler on the first call in a process.
void arm_fork_guard();

// True in a child of a process that had armed the guard. One load: for hot paths.
inline bool in_forked_child() {
  return fork_state::is_child.load(std::memory_order_relaxed);
}

// Returns the failure with code `forked` and the reason.
Failure forked_failure();

// Registers a descriptor to be severed in forked children: a listening socket, or one whose end of
// file means a death. Call forget_severed() before close(). Descriptors above 65535 are ignored.
void sever_in_forked_child(int fd);
void forget_severed(int fd);

}  // namespace muster::worker
