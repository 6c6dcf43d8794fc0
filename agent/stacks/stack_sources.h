// Where the stacks of a process's threads come from.
//
// Native ones (native_stacks.cc) are unwound by elfutils' libdw, which is opened at run time
// (Debian: libdw1). Each thread is held by ptrace(2) while its registers and stack are read, about
// a millisecond; that may end a system call of it with EINTR. A thread in an uninterruptible sleep
// is not held. If the caller is killed meanwhile, the kernel lets the thread go on. Blocks for as
// long as the kernel does: call it in a process that can be killed.
//
// Python's (python_stacks.cc, pure) are in the words of two programs: py-spy, which reads them out
// of a process, and CPython's faulthandler, by which a process prints its own. Neither's words are
// trusted, and what does not follow their form is left out.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "agent/hang/stacks.h"
#include "rendezvous/base/error.h"

namespace muster {

// The main thread first. Fails with ExitCode::environment if no thread could be read.
// `missing`: one line about threads that could not be read; unchanged if all could.
Result<std::vector<ThreadStack>> native_stacks(pid_t pid, std::string& missing);

// What `py-spy dump --json` prints; nullopt: it is something else.
std::optional<std::vector<ThreadStack>> stacks_of_py_spy(std::string_view text);

// What CPython's faulthandler prints: "Thread 0x... (most recent call first):" and its frames, or
// of one thread "Stack (most recent call first):". That one, and the current thread, is `thread`;
// the others are not known by number. Empty: there is none.
std::vector<ThreadStack> stacks_of_faulthandler(std::string_view text, pid_t thread);

}  // namespace muster
