// How a worker's Python stacks are asked for: Python's hook registers faulthandler on a real-time
// signal, to print them to a file in its folder, and the agent sends the signal if /proc shows that
// it is caught (proc_pid_status(5)) and that file is there. It works while the GIL is held, without
// ptrace, and in a process that hides itself (PR_SET_DUMPABLE). The file is opened for appending.
#pragma once

#include <csignal>

namespace muster {

// In the middle of the range, away from its ends, of which libraries take theirs. Python's hook has
// the same number and name (sitecustomize.py).
inline int stack_signal() {
  return SIGRTMIN + 13;
}

// "stacks-PID" in the hook's folder.
inline constexpr const char* kStackFile = "stacks";

}  // namespace muster
