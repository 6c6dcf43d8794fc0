// Finds and signals the descendants of a process. A child subreaper adopts every orphan below it,
// so the tree under the agent (and, when the agent is gone, under the front) is exactly the job:
// whoever calls setsid, forks twice or clears its environment is still in it. Nothing here
// remembers pids: each call looks anew, and every signal goes through a pidfd whose process has
// been checked again after opening.
//
// Cost: one pass over /proc, about 10 us a process. Blocking, but only on procfs.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <sys/types.h>

#include "rendezvous/base/time.h"

namespace muster {

struct ProcessEntry {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t group = 0;           // Process group.
  char state = '?';          // As in /proc/PID/stat: R, S, D, Z, T, ...
  unsigned flags = 0;        // PF_*, as in proc(5).
  bool refused = false;      // kill_descendants() was not permitted to signal it.
  int threads = 1;           // A leader may be 'Z' while its other threads run.
  uint64_t start_ticks = 0;  // With the pid, the identity of a process.
  std::string name;          // comm, at most 15 bytes
};

// Whether nothing of it runs any more: a zombie that waits to be reaped.
inline bool is_over(const ProcessEntry& process) {
  return process.state == 'Z' && process.threads <= 1;
}

// Whether the end of that process has begun, though it is not over: it exits (PF_EXITING), dumps
// core, or was sent SIGKILL (proc(5)). A process that frees gigabytes takes a second from here to
// its end, while its connections are closed already. None: procfs does not show it.
std::optional<bool> is_exiting(pid_t pid);

// Parses one line of /proc/PID/stat; nothing if it is not one. The name may hold spaces and
// parentheses.
std::optional<ProcessEntry> parse_process_stat(std::string_view line);

// The processes below `root` (not itself), parents before children, zombies included. Subtrees
// under a pid in `except` are left out.
std::vector<ProcessEntry> descendants_of(pid_t root, const std::set<pid_t>& except);

// What /proc says of this process now.
std::optional<ProcessEntry> look_at_entry(pid_t pid);

// The user that it runs as (its real one), where we may not signal it.
std::optional<uid_t> foreign_user_of(pid_t pid);

// "not permitted: pid 7 (sudo) runs as uid 0, and uid 1000 cannot stop it".
std::string refusal_text(const ProcessEntry& process);

// gone: or it has become another process meanwhile. refused: it runs as another user (kill(2)).
enum class SignalOutcome { sent, gone, refused };

// Sends `signal` to that very process.
SignalOutcome signal_process(const ProcessEntry& process, int signal);

// Kills (SIGKILL, then SIGCONT for the stopped) everything below the calling process but `except`,
// and reaps it, again and again until nothing is left but what may not be signalled, or `patience`
// is over. Returns what could not be killed.
std::vector<ProcessEntry> kill_descendants(const std::set<pid_t>& except, Duration patience);

// Pids of the calling process's children at this moment.
std::set<pid_t> children_of_self();

}  // namespace muster
