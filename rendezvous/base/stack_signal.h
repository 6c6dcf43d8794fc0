// The signal that requests a worker's Python stacks: Python's hook registers faulthandler on a
// real-time signal, which appends them to a file in the hook's folder; the agent sends the signal
// if /proc shows that it is caught (proc_pid_status(5)) and the file exists. It works while the GIL
// is held, without ptrace, and in a process that hides itself (PR_SET_DUMPABLE).
#pragma once

#include <csignal>

namespace muster {

// Mid-range, because libraries use the ends. Python's hook (sitecustomize.py) has the same number.
inline int stack_signal() {
  return SIGRTMIN + 13;
}

// "stacks-PID" in the hook's folder.
inline constexpr const char* kStackFile = "stacks";

}  // namespace muster
