// Finds and signals the descendants of a process. A child subreaper adopts every orphan below it,
// so the tree under the agent (and, when the agent is gone, under the front) is exactly the job,
// including processes that call setsid, fork twice or clear their environment. No pids are cached:
// each call scans /proc (about 10 us per process), and every signal goes through a pidfd whose
// process is checked again after opening. Blocks on procfs only.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "rendezvous/base/time.h"

namespace muster {

// Target of /proc/PID/ns/pid in the machine's first PID namespace: the kernel's PROC_PID_INIT_INO,
// the same on every machine since Linux 3.8.
inline constexpr std::string_view kFirstPidNamespace = "pid:[4026531836]";

struct ProcessEntry {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t group = 0;           // Process group.
  char state = '?';          // As in /proc/PID/stat: R, S, D, Z, T, ...
  unsigned flags = 0;        // PF_*, as in proc(5).
  bool refused = false;      // True if kill_descendants() was not permitted to signal it.
  int threads = 1;           // The leader may be 'Z' while its other threads run.
  uint64_t start_ticks = 0;  // Together with the pid, identifies a process.
  Duration reaped_cpu{};     // CPU time of its reaped children.
  int wait_status = 0;       // A zombie's, as waitpid(2) gives it; 0 also if /proc hides it.
  std::string name;          // comm, at most 15 bytes
};

// True for a zombie none of whose threads still runs.
inline bool is_over(const ProcessEntry& process) {
  return process.state == 'Z' && process.threads <= 1;
}

// The text of /proc/PID/`name`, up to `bytes_max` bytes; empty if it cannot be read. `status` gets
// long if the user is in hundreds of groups.
inline constexpr size_t kStatusBytesMax = 64 * 1024;
std::string read_process_file(pid_t pid, const char* name, size_t bytes_max = 4096);

// The value of one line of /proc/PID/status, as text and as a set of signals (signal n is bit
// n - 1). `key`: with the newline before it and the colon.
std::string_view status_field(std::string_view status, std::string_view key);
uint64_t signal_mask(std::string_view status, std::string_view key);
inline bool has_signal(uint64_t mask, int signal) {
  return (mask >> (signal - 1) & 1) != 0;
}

// True if the process has begun to end: it exits (PF_EXITING), dumps core, or was sent SIGKILL
// (proc(5)). One that frees gigabytes takes a second from here to its end, while its connections
// are already closed. nullopt: procfs does not show it.
std::optional<bool> is_exiting(pid_t pid);

// Parses a line of /proc/PID/stat, whose name may contain spaces and parentheses.
std::optional<ProcessEntry> parse_process_stat(std::string_view line);

// The processes below `root` (without it), parents before children, zombies included. Omits the
// pids in `except` and everything below them.
std::vector<ProcessEntry> descendants_of(pid_t root, const std::set<pid_t>& except);

// The entry of one process as /proc shows it now.
std::optional<ProcessEntry> look_at_entry(pid_t pid);

bool is_at_or_below(pid_t pid, pid_t ancestor);

// The real uid of a process that we may not signal; nullopt if we may, or it is gone.
std::optional<uid_t> foreign_user_of(pid_t pid);

// The effective and file system uids of the processes below `root`. Any thread.
std::set<uid_t> users_below(pid_t root);

// "not permitted: pid 7 (sudo) runs as uid 0, and uid 1000 cannot stop it".
std::string refusal_text(const ProcessEntry& process);

// gone: it has ended, or its pid was reused. refused: it runs as another user (kill(2)).
enum class SignalOutcome { sent, gone, refused };

// Sends `signal` to exactly this process, never to another that got its pid.
SignalOutcome signal_process(const ProcessEntry& process, int signal);

// Kills (SIGKILL, then SIGCONT for stopped ones) and reaps everything below the calling process
// except `except`, repeatedly, until only processes that may not be signalled are left or
// `patience` is over. Returns what could not be killed.
std::vector<ProcessEntry> kill_descendants(const std::set<pid_t>& except, Duration patience);

// False if nothing runs below this process: a subreaper's orphans become its children, so ECHILD
// from waitid(2) proves it. Children that end without SIGCHLD (SignalWitness) do not count.
bool has_children();

std::set<pid_t> children_of_self();

}  // namespace muster
