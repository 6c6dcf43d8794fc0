// Starts one process with our own clone(CLONE_VM | CLONE_VFORK): its cost stays flat as the
// caller's memory grows (fork copies page tables: 25 us per MiB), a failure is reported as
// {step, errno} without a status pipe, and session, parent-death signal, affinity and descriptors
// are set before the first instruction of the program.
//
// Thread rule: call it from a thread that lives as long as the process, since PR_SET_PDEATHSIG
// fires when the spawning *thread* ends (prctl(2)).
#pragma once

#include <csignal>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "agent/process/worker_environment.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/unique_fd.h"

namespace muster {

struct SpawnRequest {
  std::string executable;  // A path with a slash, for execve(2).
  std::vector<std::string> argv;
  std::vector<std::string> environment;  // "NAME=value"
  // Descriptors that become 0, 1 and 2. Borrowed: the caller closes its copies. The program gets no
  // others of the caller's except `kept_fd`.
  int stdin_fd = 0;
  int stdout_fd = 1;
  int stderr_fd = 2;
  int kept_fd = -1;       // Kept open under its number, which is above 2; -1: none. Borrowed.
  std::vector<int> cpus;  // Affinity to set; empty: inherited.
  std::optional<unsigned long> descriptor_limit;  // Soft RLIMIT_NOFILE to give back to the program.
  bool keep_hangup_ignored = false;               // True for nohup: SIGHUP stays ignored.
  std::vector<int> ignored_signals;               // Ignored until the program handles them.
  int cgroup_procs_fd = -1;                       // An open cgroup.procs to enter; -1: stay.
};

// Signals that an engine sends to every process of a job. Helpers ignore them, since they must
// answer while the job ends; a late helper gets SIGKILL.
inline constexpr std::initializer_list<int> kSignalsToAll = {SIGUSR1, SIGUSR2, SIGTERM};

struct SpawnedProcess {
  pid_t pid = -1;
  UniqueFd end;  // Readable once it has ended (rendezvous/base/process_end.h).
};

// Starts the program as leader of a new session and process group, with an empty signal mask and
// SIGKILL as its parent-death signal. Returns once the program runs, or names the step that failed
// and leaves no child behind.
//
// Errors: not_found (ENOENT, ENOTDIR, also of the `#!` interpreter), environment (E2BIG, or a step
// before execve: EAGAIN from clone, a CPU that may not be used, ...), cannot_execute (all others:
// EACCES, ENOEXEC, ELIBBAD, ...).
Result<SpawnedProcess> spawn(const SpawnRequest& request);

// Closes the descriptors from `first` to `last`; with CLOSE_RANGE_CLOEXEC in `flags`, execve(2)
// will. Safe between fork and execve.
void close_descriptors(unsigned first, unsigned last, unsigned flags = 0);

// Drops entries without '='; the first of duplicates wins, as in getenv.
Environment current_environment();

}  // namespace muster
