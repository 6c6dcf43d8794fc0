// Which processes of a rank get the signal that asks it to end. A trainer that handles it saves its
// state, and its data loaders, compile workers and the like serve it until it has ended, so it gets
// the signal alone. A shell or a wrapper that only waits for its children would end without them,
// so the processes below it that handle the signal get it instead:
//
//   it handles the signal                it alone: a trainer, a profiler, `uv run`, muster
//   a shell or wrapper that does not     below each of its children the first that handles it
//   a shell that has a trap              the shell, whose trap runs once the command in the
//                                        foreground has ended, and that command, or below it the
//                                        first that handles it; what runs in the background is left
//                                        to the trap
//   nothing handles it                   none: the caller signals the whole group
//
// To handle a signal is to catch it, or to block it, as programs do that read signals by sigwait or
// a signalfd. `unshare --fork` blocks it while it waits for its child, and is a wrapper. Every
// Python program catches SIGINT: where it waits for a child and does not catch SIGTERM, it is a
// wrapper, too. For SIGINT every bash and dash counts as a shell that has a trap.
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
  std::string program;    // The name of its executable, also of a script's interpreter.
};

// As /proc shows it now; nothing is known of a process that has ended.
SignalUse signal_use_of(pid_t pid);

bool is_shell(const SignalUse& use);

// False: the process does not handle the signal, nor can any below it in its place, as one can that
// an ended shell has left.
bool may_handle(const SignalUse& use, int signal);

// Pids out of a tree, at or below its root.
struct StopReceivers {
  std::vector<pid_t> receivers;      // Empty: nothing there handles the signal.
  std::vector<pid_t> left_to_traps;  // What a shell with a trap started in the background.
};
StopReceivers stop_receivers(const std::vector<ProcessEntry>& tree, pid_t root, int signal,
                             const std::function<SignalUse(pid_t)>& use);

}  // namespace muster
