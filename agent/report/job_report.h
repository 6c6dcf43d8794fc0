// What is known when a worker fails and when a job ends: plain data, filled by the agent's shell
// and read by everything in agent/report (the verdict on the screen, result.json, the error file of
// the launcher). The rest of agent/report is pure, except evidence.h and kernel_log.h, which look
// at the machine. Times are wall clock because users and log collectors compare them with other
// logs; the supervision itself never reads them.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "agent/launch_spec.h"
#include "agent/process/exit_status.h"
#include "agent/report/judge.h"
#include "agent/wall_time.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"

namespace muster {

// One worker that failed, or was stopped because another one had. Lists are in order of
// observation.
struct WorkerFailure {
  int rank = 0;
  int local_rank = 0;
  pid_t pid = 0;
  int attempt = 0;
  std::string host;
  int node_rank = -1;  // Of the host; -1: that of the containing report.
  std::string role = "default";
  std::string device;   // A label such as "GPU 2 (0000:3b:00.0)"; empty if there is none.
  std::string call;     // What it was in: "all_reduce #17 of group 'world' for 3.2 s"; or empty.
  std::string program;  // As users know it: "train.py", "-m pkg.mod", "./solver".
  std::string binary;   // What was executed: "/usr/bin/python3". Empty: same as program.
  ExitStatus status;
  std::string declared;  // Why the agent itself declared it failed ("stuck in uninterruptible sleep
                         // for 60 s"); empty for a plain exit.
  // It died after, and because of, our own TERM or KILL: the culprit only if it had failed before.
  bool stopped_by_muster = false;
  Part part = Part::failed_later;  // In the failure of its attempt.
  std::string sentence;            // "exited with 1: ValueError: boom"; empty: not examined.
  WallTime time;                   // When the exit was observed.
  Duration ran{0};                 // From its start to its exit.
  long max_rss_kib = 0;            // From the rusage of its wait; 0: unknown.
  double cpu_s = 0;
  std::string stderr_tail;  // Raw bytes, at most 64 KiB, possibly starting in the middle of a line.
  std::string stdout_tail;  // Likewise; only if stderr is empty and no file has it.
  bool unread = false;      // What it printed: the disk of its logs hangs. Not sent to other nodes.
  std::string stdout_log_path;
  std::string stderr_log_path;
  std::string error_file_path;
  std::optional<std::string> error_file_content;
  bool summary_only = false;  // From another node, which only reported how it ended.

  friend bool operator==(const WorkerFailure&, const WorkerFailure&) = default;
};

// A fault that the NVIDIA driver logged of a GPU.
struct Xid {
  int number = 0;    // In NVIDIA's catalogue of them.
  pid_t pid = 0;     // Whom it names; 0: nobody.
  std::string gpu;   // "0000:c1:00"
  std::string text;  // "GPU has fallen off the bus", or empty; one printable line.

  friend bool operator==(const Xid&, const Xid&) = default;
};

// Whom the kernel's out-of-memory killer has killed.
struct OomVictim {
  pid_t pid = 0;
  std::string name;     // comm
  bool is_own = false;  // In muster's memory cgroup, if the kernel has said so.

  friend bool operator==(const OomVictim&, const OomVictim&) = default;
};

// What the machine showed right after a death. Every field has a value for "not checked".
struct HostEvidence {
  int64_t oom_kills = 0;  // By the kernel in our own memory cgroup since the attempt started.
  int64_t machine_oom_kills = 0;   // The same for the whole machine (or container VM).
  bool more_kills = false;         // More workers died of SIGKILL than oom_kills can account for.
  std::optional<bool> oom_victim;  // Whether the kernel log says that it killed this worker.
  std::vector<OomVictim> oom_victims;  // All in the kernel log, also other people's processes.
  bool stack_overflow = false;         // According to the kernel log.
  std::optional<Xid> xid;              // Logged during the attempt.
  int64_t memory_limit_bytes = 0;      // That cgroup's; 0: unknown or unlimited.
  int64_t shm_free_bytes = -1;         // /dev/shm; -1: not checked.
  int64_t shm_total_bytes = 0;
  std::string core_path;     // An existing core file of this worker.
  std::string core_handler;  // How to find a core that a handler took: "coredumpctl info 4711".
  int64_t core_limit_bytes = -1;  // RLIMIT_CORE of the worker; -1: unlimited or not checked.
  std::string full_log_disk;      // Path of the log folder if its disk is full.
  WorkerLimits limits;
  std::string process_limit;  // The one on processes and threads that holds here, in words.
  std::string expired_timer;  // Scope of the file timer that killed this worker.
  bool lost_console = false;  // Its pipe was closed, as the reader of muster's own output was gone.
};

// A process that did not die of SIGKILL.
struct StuckProcess {
  pid_t pid = 0;
  int rank = -1;  // Of the worker that it is or descends from; -1: unknown.
  std::string name;
  char state = '?';                        // As in /proc/PID/stat; 'D' is uninterruptible sleep.
  std::string wchan;                       // The kernel function it sleeps in; empty: unknown.
  std::optional<uid_t> foreign_user = {};  // It runs as this user and may not be signalled.

  friend bool operator==(const StuckProcess&, const StuckProcess&) = default;
};

// Where a rank was when its grace ran out and SIGKILL ended it.
struct LeftRank {
  int rank = 0;
  Duration had{0};      // From the first signal of the stop to SIGKILL.
  std::string where;    // "evaluate (train.py:5) ← main (train.py:9)"; empty: unknown.
  std::string missing;  // One line: why it is unknown.
  std::string call;     // "barrier #7", that it waited in; empty: in none, as far as is recorded.
  std::string group;    // That call's.

  friend bool operator==(const LeftRank&, const LeftRank&) = default;
};

// The coarse class of a failure, for a scheduler's requeue rule. The names are the values in
// result.json.
enum class FailureClass { user, oom, gpu, network, signal, shm, disk, stuck, timer, limit };

struct Cause {
  FailureClass kind = FailureClass::user;
  std::string sentence;   // "exited with 1: ValueError: boom"; follows "rank 3 ".
  std::string exception;  // "ValueError: boom" or empty: the program's own error.
  std::string remedy;     // What to do, if that is certain; else empty.

  friend bool operator==(const Cause&, const Cause&) = default;
};

enum class JobEnd {
  success,
  failed,        // A worker failed and no restart was left.
  stopped,       // By a signal to the launcher.
  spawn_failed,  // The program could not be executed.
  round_failed,  // Log folder, port, devices or rendezvous.
  unkillable,    // Processes outlived SIGKILL.
};

struct AttemptRecord {
  int attempt = 0;
  WallTime started;
  Duration lasted{0};
  std::string why_ended;    // "rank 1 exited with 3"; "all workers succeeded".
  bool by_outcome = false;  // That is only how the job ended on this node.
};

// What the hang detector found, in the words and units of schema.md.
struct HangReport {
  std::vector<int> ranks;  // The late ones or culprits.
  std::string what;        // The class: "never_entered".
  std::string by;          // "proof", "time"
  std::string group;
  std::string operation;
  uint64_t ordinal = 0;  // 0: the call has none.
  std::vector<int> waiting;
  double seconds = 0;      // So long they have waited.
  std::string confidence;  // "high", "medium", "low"
  std::string text;        // For people, in one line.
  bool is_mismatch = false;
  int attempt = 0;

  friend bool operator==(const HangReport&, const HangReport&) = default;
};

// The workers that did not succeed in an attempt, and which of them is to blame.
struct AttemptFailures {
  std::vector<WorkerFailure> failures;  // In order of observation.
  std::optional<size_t> culprit;        // An index into them.
  std::optional<size_t> witness;        // Likewise: the one that names the culprit.
  Reason reason = Reason::only_failure;
  Cause cause;  // Of the culprit.
  // Ranks of nodes that reported only that muster stopped them; ascending.
  std::vector<int> stopped_elsewhere;
  int others_untold = 0;  // Further failures, too many to be sent.

  // REQUIRES: there is a culprit.
  const WorkerFailure& the_culprit() const {
    CHECK(culprit && *culprit < failures.size());
    return failures[*culprit];
  }

  friend bool operator==(const AttemptFailures&, const AttemptFailures&) = default;
};

// Its failures are those of the last attempt if it failed, or if it was stopped or unkillable and a
// worker had failed before.
struct JobReport : AttemptFailures {
  JobEnd end = JobEnd::success;

  std::string run_id;
  std::string program;
  std::string host;
  std::string role = "default";
  std::string log_dir;  // The run's folder; empty: none.
  int world_size = 1;
  int local_world_size = 1;
  int nnodes = 1;
  int node_rank = 0;
  int max_restarts = 0;
  int restarts_used = 0;
  int membership_changes = 0;  // Nodes that came, went or were lost while the job ran.
  WallTime started;
  WallTime ended;
  std::vector<AttemptRecord> attempts;
  std::optional<HangReport> hang;  // The newest verdict that was not withdrawn, of any attempt.

  // stopped
  int stop_signal = 0;
  std::string stopped_by;  // "SIGTERM on node-b (node rank 1)" if another node got the signal.
  Duration stop_took{0};
  std::string tails_dir;          // Where the last lines of the last attempt are; empty: not kept.
  bool kill_requested = false;    // By a second signal, before the grace was over.
  std::vector<int> killed_ranks;  // Ranks that outlived the grace, or the second signal.
  std::vector<WorkerFailure> failed_in_stop;  // Ranks of this node that failed during the stop.

  std::vector<LeftRank> left;  // This node's in the last attempt, whatever it was stopped for.

  Error error;                      // spawn_failed, round_failed
  bool lost_node = false;           // round_failed: the job could not go on without a node.
  std::vector<StuckProcess> stuck;  // unkillable
};

// Rank of the node that the worker ran on; nullopt if the job has one node.
std::optional<int> node_rank_of(const JobReport& report, const WorkerFailure& failure);

// The exit code that a failed attempt stands for; never 0.
int culprit_code(const AttemptFailures& attempt);

// The causes to which --exit-code may give codes: the classes of failures, hang, lost, rendezvous
// and stopped.
std::vector<std::string_view> exit_causes();

// The code that the launcher exits with: that of the cause if it has one, else the policy's. The
// torchrun policy turns every failure into 1.
int exit_code_of(const JobReport& report, const ExitCodes& codes);

}  // namespace muster
