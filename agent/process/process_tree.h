// Finds and signals the descendants of a process. A child subreaper adopts every orphan below it,
// so the tree under the agent (and, when the agent is gone, under the front) is exactly the job: a
// process that calls setsid, forks twice or clears its environment is still in it. No pids are
// cached: each call scans /proc again, and every signal goes through a pidfd whose process is
// checked again after opening.
//
// Cost: one pass over /proc, about 10 us per process. Blocks only on procfs.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "rendezvous/base/time.h"

namespace muster {

// Where /proc/PID/ns/pid points in it. The kernel's PROC_PID_INIT_INO: the same on every machine
// since Linux 3.8.
inline constexpr std::string_view kFirstPidNamespace = "pid:[4026531836]";

struct ProcessEntry {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t group = 0;           // Process group.
  char state = '?';          // As in /proc/PID/stat: R, S, D, Z, T, ...
  unsigned flags = 0;        // PF_*, as in proc(5).
  bool refused = false;      // kill_descendants() was not permitted to signal it.
  int threads = 1;           // The leader may be 'Z' while its other threads run.
  uint64_t start_ticks = 0;  // Together with the pid, identifies a process.
  Duration reaped_cpu{};     // Of its children that have ended and were reaped.
  std::string name;          // comm, at most 15 bytes
};

// Whether no thread of it runs any more: a zombie that waits to be reaped.
inline bool is_over(const ProcessEntry& process) {
  return process.state == 'Z' && process.threads <= 1;
}

// The text of one of a process's files in /proc, up to `bytes_max` bytes; empty if it cannot be
// read. `status` is longer than most for a user who is in hundreds of groups.
inline constexpr size_t kStatusBytesMax = 64 * 1024;
std::string read_process_file(pid_t pid, const char* name, size_t bytes_max = 4096);

// The value of one line of /proc/PID/status, and as a set of signals: signal n is bit n - 1.
std::string_view status_field(std::string_view status, std::string_view key);
uint64_t signal_mask(std::string_view status, std::string_view key);
inline bool has_signal(uint64_t mask, int signal) {
  return (mask >> (signal - 1) & 1) != 0;
}

// Whether the process has begun to end: it exits (PF_EXITING), dumps core, or was sent SIGKILL
// (proc(5)). A process that frees gigabytes takes a second from here to its end, while its
// connections are already closed. nullopt: procfs does not show it.
std::optional<bool> is_exiting(pid_t pid);

// Parses one line of /proc/PID/stat; nullopt if it is not one. The name may contain spaces and
// parentheses.
std::optional<ProcessEntry> parse_process_stat(std::string_view line);

// The processes below `root` (not itself), parents before children, zombies included. Subtrees
// under a pid in `except` are left out.
std::vector<ProcessEntry> descendants_of(pid_t root, const std::set<pid_t>& except);

// The entry of one process as /proc shows it now.
std::optional<ProcessEntry> look_at_entry(pid_t pid);

// Whether `pid` is `ancestor`, or was started by it or by a process below it.
bool is_at_or_below(pid_t pid, pid_t ancestor);

// The (real) user that the process runs as, if we may not signal it.
std::optional<uid_t> foreign_user_of(pid_t pid);

// The users (effective, and for files and sockets) that the processes below `root` run as now. Any
// thread.
std::set<uid_t> users_below(pid_t root);

// "not permitted: pid 7 (sudo) runs as uid 0, and uid 1000 cannot stop it".
std::string refusal_text(const ProcessEntry& process);

// gone: it has ended, or its pid was reused. refused: it runs as another user (kill(2)).
enum class SignalOutcome { sent, gone, refused };

// Sends `signal` to exactly this process.
SignalOutcome signal_process(const ProcessEntry& process, int signal);

// Kills (SIGKILL, then SIGCONT for stopped ones) everything below the calling process except
// `except` and reaps it, repeatedly until only processes that may not be signalled are left, or
// `patience` is over. Returns what could not be killed.
std::vector<ProcessEntry> kill_descendants(const std::set<pid_t>& except, Duration patience);

// A subreaper's orphans become its children, whatever they were to their parents, so nothing runs
// below a process without children. "ECHILD" in waitpid(2); a child that ends without SIGCHLD, as
// the witness of signals does, is not counted.
bool has_children();

// Pids of the calling process's children at this moment.
std::set<pid_t> children_of_self();

}  // namespace muster
