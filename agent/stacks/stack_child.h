// Reads the stacks of one process, as a child of the agent that may be killed at any moment:
// whatever looks at a process that is stuck in the kernel may get stuck too.
//
//   muster --internal-stacks quiet|brief|thorough PID [FILE]
//
//   quiet      what disturbs nobody: the Python frames as py-spy reads them without holding the
//              process
//   brief      the Python frames; if none can be read, the native ones; both by the means of
//              "thorough"
//   thorough   also native frames (stack_sources.h), and where py-spy is not installed the Python
//              frames by a signal, which the program must have asked for (stack_signal.h): they may
//              end a system call of the process with EINTR. FILE: where the program writes them.
//
// Prints a reply of the control protocol with one RankStacks, again whenever it knows more: the
// last complete line counts.
#pragma once

#include <string>
#include <vector>

namespace muster {

inline constexpr const char* kStacksFlag = "--internal-stacks";

// `args` without the flag. Returns the exit code.
int stacks_child_main(const std::vector<std::string>& args);

}  // namespace muster
