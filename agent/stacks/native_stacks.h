// The native stacks of a process's threads, unwound by elfutils' libdw, which is opened at run time
// (Debian: libdw1). Each thread is held by ptrace(2) while its registers and stack are read, about
// a millisecond; that may end a system call of it with EINTR. A thread in an uninterruptible sleep
// is not held. If the caller is killed meanwhile, the kernel lets the thread go on.
//
// Blocks for as long as the kernel does: call it in a process that can be killed.
#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

#include "agent/hang/stacks.h"
#include "rendezvous/base/error.h"

namespace muster {

// The main thread first. Fails with ExitCode::environment if no thread could be read.
// `missing`: one line about threads that could not be read; unchanged if all could.
Result<std::vector<ThreadStack>> native_stacks(pid_t pid, std::string& missing);

}  // namespace muster
