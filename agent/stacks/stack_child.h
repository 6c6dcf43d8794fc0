// Reads the stacks of one process, in a child of the agent that may be killed at any moment: a
// program that inspects a process stuck in the kernel may get stuck too.
//
//   muster --internal-stacks quiet|brief|thorough PID FILE [CHILD...]
//
//   quiet      without disturbing the process: the Python frames, as py-spy reads them without
//              stopping it
//   brief      the Python frames, by a signal first, then by py-spy; if neither works, the native
//              frames
//   thorough   the Python frames by py-spy, else by a signal, and the native frames
//              (stack_sources.h)
//
// The signal works if the program has registered for it (stack_signal.h); FILE is where it then
// writes its frames, or empty. The signal and native frames may end a system call of the process
// with EINTR. CHILD: a process below it; its main thread is read without a signal, and without
// native frames if it has others, or in `quiet`. Prints a reply of the control protocol with one
// RankStacks, and again whenever it knows more: the last complete line counts.
#pragma once

#include <string>
#include <vector>

namespace muster {

inline constexpr const char* kStacksFlag = "--internal-stacks";

// `args`: without the flag. Returns the exit code.
int stacks_child_main(const std::vector<std::string>& args);

}  // namespace muster
