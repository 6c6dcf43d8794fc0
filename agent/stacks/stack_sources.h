// The sources of a process's thread stacks.
//
// elfutils' libdw unwinds native stacks (native_stacks.cc). It is opened at run time (Debian:
// libdw1). ptrace(2) holds each thread while its registers and stack are read, about a millisecond,
// which may end its system call with EINTR; a thread in an uninterruptible sleep is not held. If
// the caller is killed meanwhile, the kernel resumes the thread. Blocks for as long as the kernel
// does: call it in a process that can be killed.
//
// Python stacks (python_stacks.cc, pure) come from the output of py-spy, which reads them out of a
// process, and of CPython's faulthandler, by which a process prints its own. Neither is trusted:
// what does not parse is left out.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "agent/hang/stacks.h"
#include "rendezvous/base/error.h"

namespace muster {

// The main thread comes first. Fails with ExitCode::environment if no thread could be read.
// `missing`: set to one line about the threads that could not be read, if any.
Result<std::vector<ThreadStack>> native_stacks(pid_t pid, std::string& missing);

// Parses the output of `py-spy dump --json`; nullopt if it is something else.
std::optional<std::vector<ThreadStack>> stacks_of_py_spy(std::string_view text);

// Parses the output of CPython's faulthandler: "Thread 0x... (most recent call first):" and frames,
// or, for a single thread, "Stack (most recent call first):". The single or current thread gets the
// number `thread`; the numbers of others are unknown. Empty if there is no stack.
std::vector<ThreadStack> stacks_of_faulthandler(std::string_view text, pid_t thread);

}  // namespace muster
