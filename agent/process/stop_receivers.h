// Which processes of a rank get the signal that asks it to end. A trainer that handles it saves its
// state and needs its data loaders and compile workers meanwhile, so it gets the signal alone. A
// shell or wrapper that only waits for its children would end without them, so the processes below
// it that handle the signal get it instead:
//
//   it handles the signal                it alone: a trainer, a profiler, `uv run`, muster
//   a shell or wrapper that does not     the first below each of its children that handles it
//   a shell that has a trap              the shell, whose trap runs once the command in the
//                                        foreground has ended, and that command, or the first below
//                                        it that handles it; background commands are left to the
//                                        trap
//   nothing handles it                   none: the caller signals the whole group
//
// A program handles a signal if it catches it, or blocks it to read it by sigwait or a signalfd.
// `unshare --fork` blocks it while it waits for its child, and is a wrapper. Every Python program
// catches SIGINT: one that waits for a child and does not catch SIGTERM is a wrapper too. For
// SIGINT every bash and dash counts as a shell that has a trap.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "agent/process/process_tree.h"

namespace muster {

// What a process does with signals, and what it is.
struct SignalUse {
  uint64_t caught = 0;  // Signal n is bit n - 1, as in proc(5).
  uint64_t ignored = 0;
  uint64_t blocked = 0;
  bool waits = false;     // Its main thread is in wait4() or waitid().
  bool own_null = false;  // Its standard input is a /dev/null that its parent opened for it, as a
                          // shell does for `command &`.
  std::string program;    // The name of its executable; of a script, the interpreter's.
};

// Read from /proc now; all defaults for a process that has ended.
SignalUse signal_use_of(pid_t pid);

bool is_shell(const SignalUse& use);

// False if neither the process nor any below it, in its place, can handle the signal. True for one
// that has ended: processes that it left behind may.
bool may_handle(const SignalUse& use, int signal);

// Pids out of a tree, at or below its root.
struct StopReceivers {
  std::vector<pid_t> receivers;      // Empty: no process there handles the signal.
  std::vector<pid_t> left_to_traps;  // Background children of a shell that has a trap.
};
StopReceivers stop_receivers(const std::vector<ProcessEntry>& tree, pid_t root, int signal,
                             const std::function<SignalUse(pid_t)>& use);

}  // namespace muster
