// The facts about a failed worker and an ended job: plain data, filled by the agent's shell and
// read by all of agent/report (the verdict on the screen, result.json, the launcher's error file),
// which is pure except for evidence.h and kernel_log.h. Times are wall clock because users and log
// collectors compare them with other logs; the supervision itself never reads them.
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

// A worker that failed or was stopped because another failed. Lists are in order of observation.
struct WorkerFailure {
  int rank = 0;
  int local_rank = 0;
  pid_t pid = 0;
  int attempt = 0;
  std::string host;
  int node_rank = -1;  // The host's; -1: that of the containing report.
  std::string role = "default";
  std::string device;   // A label such as "GPU 2 (0000:3b:00.0)"; empty if there is none.
  std::string call;     // Call it was in: "all_reduce #17 of group 'world' for 3.2 s"; or empty.
  std::string program;  // Name that users know: "train.py", "-m pkg.mod", "./solver".
  std::string binary;   // Executed file: "/usr/bin/python3". Empty: same as program.
  ExitStatus status;
  std::string declared;  // Why the agent itself declared it failed ("stuck in uninterruptible sleep
                         // for 60 s"); empty for a plain exit.
  // True if our own TERM or KILL ended it; it is the culprit only if it had failed before.
  bool stopped_by_muster = false;
  Part part = Part::failed_later;  // Its part in the attempt's failure.
  std::string sentence;            // "exited with 1: ValueError: boom"; empty: not examined.
  std::string exception;           // The program's own error: "ValueError: boom"; or empty.
  WallTime time;                   // Time at which the exit was observed.
  Duration ran{0};                 // Time from its start to its exit.
  long max_rss_kib = 0;            // The rusage's of its wait; 0: unknown.
  double cpu_s = 0;
  std::string stderr_tail;  // Raw bytes, at most 64 KiB, possibly starting in the middle of a line.
  std::string stdout_tail;  // The last 16 KiB.
  bool unread = false;      // True if its log disk hung, so no output was read. Local to its node.
  std::string stdout_log_path;
  std::string stderr_log_path;
  std::string error_file_path;
  std::optional<std::string> error_file_content;
  bool summary_only = false;  // True if its node only reported how it ended.

  friend bool operator==(const WorkerFailure&, const WorkerFailure&) = default;
};

// A GPU fault that the NVIDIA driver logged.
struct Xid {
  int number = 0;    // NVIDIA's number for it.
  pid_t pid = 0;     // The process that it names; 0: none.
  std::string gpu;   // "0000:c1:00"
  std::string text;  // "GPU has fallen off the bus", or empty; one printable line.

  friend bool operator==(const Xid&, const Xid&) = default;
};

struct OomVictim {
  pid_t pid = 0;
  std::string name;     // comm
  bool is_own = false;  // True if the kernel logged that it was in muster's memory cgroup.

  friend bool operator==(const OomVictim&, const OomVictim&) = default;
};

// What gather_evidence() finds after a death, which the recorder copies as a whole. A default value
// means "not found, or not checked".
struct GatheredEvidence {
  std::optional<bool> oom_victim;      // True if the kernel log says that it killed this worker.
  std::vector<OomVictim> oom_victims;  // All in the kernel log, including other users' processes.
  bool stack_overflow = false;         // True if the kernel log shows one.
  std::optional<Xid> xid;              // Logged during the attempt.
  int64_t shm_free_bytes = -1;         // /dev/shm; -1: not checked.
  int64_t shm_total_bytes = 0;
  std::string core_path;     // An existing core file of this worker.
  std::string core_handler;  // How to find a core that a handler took: "coredumpctl info 4711".
  int64_t core_limit_bytes = -1;  // RLIMIT_CORE of the worker; -1: unlimited or not checked.
  std::string full_log_disk;      // Path of the log folder if its disk is full.
};

// The machine's state right after a death. Its own members are known at once, or once the output is
// complete.
struct HostEvidence : GatheredEvidence {
  int64_t oom_kills = 0;  // Kernel kills in our own memory cgroup since the attempt started.
  int64_t machine_oom_kills = 0;   // The same for the whole machine (or container VM).
  bool more_kills = false;         // More workers died of SIGKILL than oom_kills can account for.
  int64_t memory_limit_bytes = 0;  // The memory cgroup's; 0: unknown or unlimited.
  WorkerLimits limits;
  std::string process_limit;  // The effective limit on processes and threads, in words.
  std::string expired_timer;  // Scope of the file timer that killed this worker.
  bool lost_console = false;  // True if we closed its pipe because our console's reader was gone.
};

// A process that did not die of SIGKILL.
struct StuckProcess {
  pid_t pid = 0;
  int rank = -1;  // Rank of the worker that it is or descends from; -1: unknown.
  std::string name;
  char state = '?';                        // As in /proc/PID/stat; 'D' is uninterruptible sleep.
  std::string wchan;                       // The kernel function it sleeps in; empty: unknown.
  std::optional<uid_t> foreign_user = {};  // Set if it runs as this other user, not ours to signal.

  friend bool operator==(const StuckProcess&, const StuckProcess&) = default;
};

// A rank that SIGKILL ended because its grace ran out, and where it was then.
struct LeftRank {
  int rank = 0;
  Duration had{0};      // Time from the stop's first signal to SIGKILL.
  std::string where;    // "evaluate (train.py:5) ← main (train.py:9)"; empty: unknown.
  std::string missing;  // Why `where` is unknown, in one line.
  std::string call;     // The recorded call that it waited in: "barrier #7"; empty: none.
  std::string group;    // The call's group.

  friend bool operator==(const LeftRank&, const LeftRank&) = default;
};

// The coarse class of a failure, for a scheduler's requeue rule; named as in result.json.
enum class FailureClass { user, oom, gpu, network, signal, shm, disk, stuck, timer, limit };

struct Cause {
  FailureClass kind = FailureClass::user;
  std::string sentence;   // "exited with 1: ValueError: boom"; follows "rank 3 ".
  std::string exception;  // The program's own error: "ValueError: boom"; or empty.
  std::string remedy;     // Advice, if it is certain; else empty.

  friend bool operator==(const Cause&, const Cause&) = default;
};

enum class JobEnd {
  success,
  failed,        // A worker failed and no restart was left.
  stopped,       // A signal to the launcher stopped it.
  spawn_failed,  // The program could not be executed.
  round_failed,  // Log folder, port, devices or rendezvous failed.
  unkillable,    // Processes outlived SIGKILL.
};

// The failure that ended an attempt.
struct AttemptCulprit {
  int rank = 0;
  ExitStatus status;
  std::string exception;
  std::string sentence;  // "exited with 3"
  Duration ran{0};       // Time from its start to its exit.
};

struct AttemptRecord {
  int attempt = 0;
  WallTime started{};
  Duration lasted{0};
  std::string why_ended{};  // "rank 1 exited with 3"; "all workers succeeded".
  bool by_outcome = false;  // True if `why_ended` is only how the job ended on this node.
  std::optional<AttemptCulprit> culprit{};
};

// A finding of the hang detector, in the words and units of schema.md.
struct HangReport {
  std::vector<int> ranks;  // The late ones or culprits.
  std::string what;        // The class: "never_entered".
  std::string by;          // "proof", "time"
  std::string group;
  std::string operation;
  uint64_t ordinal = 0;  // 0: the call has none.
  std::vector<int> waiting;
  double seconds = 0;      // Their waiting time.
  std::string confidence;  // "high", "medium", "low"
  std::string text;        // A line for people.
  bool is_mismatch = false;
  int attempt = 0;

  friend bool operator==(const HangReport&, const HangReport&) = default;
};

// The workers that did not succeed in an attempt, and which of them is to blame.
struct AttemptFailures {
  std::vector<WorkerFailure> failures;  // Ordered by observation.
  std::optional<size_t> culprit;        // Index into `failures`.
  std::optional<size_t> witness;        // Index of the one that names the culprit.
  Reason reason = Reason::only_failure;
  Cause cause;  // The culprit's.
  // Ranks of nodes that reported only that muster stopped them; ascending.
  std::vector<int> stopped_elsewhere;
  int others_untold = 0;  // Number of further failures that did not fit.

  // REQUIRES: `culprit` is set.
  const WorkerFailure& the_culprit() const {
    CHECK(culprit && *culprit < failures.size());
    return failures[*culprit];
  }

  friend bool operator==(const AttemptFailures&, const AttemptFailures&) = default;
};

// REQUIRES: `culprit` is set.
AttemptCulprit attempt_culprit(const AttemptFailures& attempt);

// `failures`: the last attempt's if it failed, or had failed workers before it was stopped.
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
  std::string tails_dir;          // Folder with the last attempt's last lines; empty: not kept.
  bool kill_requested = false;    // True if a second signal ended the grace.
  std::vector<int> killed_ranks;  // Ranks that outlived the grace, or the second signal.
  std::vector<WorkerFailure> failed_in_stop;  // Ranks of this node that failed during the stop.

  std::vector<LeftRank> left;  // This node's in the last attempt, whatever the reason of its stop.

  Error error;                      // spawn_failed, round_failed
  bool lost_node = false;           // round_failed: the job could not go on without a node.
  std::vector<StuckProcess> stuck;  // unkillable
};

// Rank of the node that the worker ran on; nullopt if the job has one node.
std::optional<int> node_rank_of(const JobReport& report, const WorkerFailure& failure);

// The exit code that a failed attempt stands for; never 0.
int culprit_code(const AttemptFailures& attempt);

// The causes that --exit-code accepts: the classes of failures, hang, lost, rendezvous, stopped.
std::vector<std::string_view> exit_causes();

// The launcher's exit code: the cause's if it has one, else the policy's (torchrun: 1 if failed).
int exit_code_of(const JobReport& report, const ExitCodes& codes);

}  // namespace muster
