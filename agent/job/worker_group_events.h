// What the worker-group machine hears (events) and what it asks for (effects). Plain values,
// compared with ==, so that tests and the simulator can state whole transcripts.
//
// Every event that speaks of a started group carries its attempt. Attempts are numbered from 0 by
// the machine, one for every start; the restart count (what TORCHELASTIC_RESTART_COUNT shows)
// counts only the starts that a failure paid for, so a change of membership makes it lag behind.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "agent/process/exit_status.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"

namespace muster::group {

// ---- Values that several events and effects share.

// The first failure of an attempt that was observed: it makes the group stop. Whether it is also
// the cause of the others is not decided here (agent/report/judge.h).
struct FirstFailure {
  int attempt = 0;
  int local_rank = 0;
  int pid = 0;
  std::optional<ExitStatus> status;  // None: it was named by FailWorker, see `why`.
  std::string why;                   // Only from FailWorker; empty for a plain exit.
  friend bool operator==(const FirstFailure&, const FirstFailure&) = default;
};

// Why a group is being stopped.
enum class StopReason {
  failure,       // a worker failed: restart if the budget allows
  regroup,       // the membership changed: start anew, free of charge
  spawn_failed,  // a worker could not be started: end
  leftovers,     // all workers succeeded, what they left running outlived the grace
  requested,     // a signal to muster, or the end of the front
  ended,         // others ended the job
};

struct JobOutcome {
  // `ended`: others ended the job, and say why.
  enum class Kind { success, failed, stopped, spawn_failed, round_failed, unkillable, ended };
  Kind kind = Kind::success;
  int signal = 0;  // Of kind stopped (and unkillable after a stop request).
  std::optional<Error>
      error;  // Of kinds spawn_failed and round_failed; of ended, if there was one.
  std::optional<StopReason> stopped_for;  // Of kind unkillable: what the stop was for.
  int attempts = 0;                       // Rounds requested in all.
  int restarts = 0;                       // Restarts taken from the budget.
  friend bool operator==(const JobOutcome&, const JobOutcome&) = default;
};

// ---- Events.

struct Begin {
  friend bool operator==(const Begin&, const Begin&) = default;
};
// The answer to RequestRound: the log folder, the port and the ranks of this attempt are there.
struct RoundReady {
  int attempt = 0;
  std::optional<int> restarts = {};  // Taken from the job's budget so far, where others count.
  friend bool operator==(const RoundReady&, const RoundReady&) = default;
};
struct RoundFailed {
  int attempt = 0;
  Error error;
  friend bool operator==(const RoundFailed&, const RoundFailed&) = default;
};
// The answer to Spawn; always before the same worker's Exited.
struct Spawned {
  int attempt = 0;
  int local_rank = 0;
  int pid = 0;
  friend bool operator==(const Spawned&, const Spawned&) = default;
};
struct SpawnFailed {
  int attempt = 0;
  int local_rank = 0;
  Error error;
  friend bool operator==(const SpawnFailed&, const SpawnFailed&) = default;
};
// The worker itself is reaped. Its descendants may still be there.
struct Exited {
  int attempt = 0;
  int local_rank = 0;
  ExitStatus status;
  friend bool operator==(const Exited&, const Exited&) = default;
};
// A worker that has not ended is to be treated as failed (uninterruptible sleep, a hang verdict).
struct FailWorker {
  int attempt = 0;
  int local_rank = 0;
  std::string why;
  bool restart =
      true;  // false: the job ends with it, whatever the budget (a process that the kernel holds).
  friend bool operator==(const FailWorker&, const FailWorker&) = default;
};
// Every worker is reaped and no descendant of any is left. Stop, Kill and WatchLeftovers oblige the
// shell to say it once, as soon as it is true (at once if it is already). May be said twice. It
// must not overtake a Spawned: one that comes first speaks of that worker too. It may overtake an
// Exited.
struct GroupEmpty {
  int attempt = 0;
  friend bool operator==(const GroupEmpty&, const GroupEmpty&) = default;
};
// The membership changed, the group is to be started anew without paying from the budget.
// `attempt` is the one whose round is out of date.
struct Regroup {
  int attempt = 0;
  friend bool operator==(const Regroup&, const Regroup&) = default;
};
// Others ended the job: stop what still runs and finish. Only of a coordinated group.
struct JobEnded {
  friend bool operator==(const JobEnded&, const JobEnded&) = default;
};
struct StopRequested {
  int signal = 0;
  friend bool operator==(const StopRequested&, const StopRequested&) = default;
};
// Second Ctrl-C, or the front is gone.
struct KillRequested {
  friend bool operator==(const KillRequested&, const KillRequested&) = default;
};
// The user may signal nothing of what is left of the group: it has taken another identity. Waiting
// for a KILL to act is of no use. May be said again.
struct KillRefused {
  int attempt = 0;
  friend bool operator==(const KillRefused&, const KillRefused&) = default;
};
struct Suspend {
  friend bool operator==(const Suspend&, const Suspend&) = default;
};
struct Resume {
  friend bool operator==(const Resume&, const Resume&) = default;
};
struct Forward {
  int signal = 0;
  friend bool operator==(const Forward&, const Forward&) = default;
};
struct Tick {
  friend bool operator==(const Tick&, const Tick&) = default;
};

using Event = std::variant<Begin, RoundReady, RoundFailed, Spawned, SpawnFailed, Exited, FailWorker,
                           GroupEmpty, Regroup, JobEnded, StopRequested, KillRequested, KillRefused,
                           Suspend, Resume, Forward, Tick>;

// ---- Effects.

// Make ready what this attempt needs and answer with RoundReady or RoundFailed.
struct RequestRound {
  int attempt = 0;
  int restart_count = 0;
  friend bool operator==(const RequestRound&, const RequestRound&) = default;
};
// Start this worker and answer with Spawned or SpawnFailed. At most one is unanswered at a time.
struct Spawn {
  int attempt = 0;
  int local_rank = 0;
  friend bool operator==(const Spawn&, const Spawn&) = default;
};
// The stop begins. A stop request or a failed spawn that comes later still prevents the restart.
struct WorkerFailed {
  FirstFailure first;
  bool will_restart = false;
  int restarts_left = 0;  // After that restart.
  friend bool operator==(const WorkerFailed&, const WorkerFailed&) = default;
};
// Send `signal`, then CONT, to each live worker's process group and to all other descendants. May
// come twice for one attempt, when a worker was being started while the stop began; then only those
// that have not had the signal yet need it.
struct Stop {
  int attempt = 0;
  int signal = 0;
  friend bool operator==(const Stop&, const Stop&) = default;
};
// KILL and CONT to all workers and descendants, again and again until GroupEmpty.
struct Kill {
  int attempt = 0;
  friend bool operator==(const Kill&, const Kill&) = default;
};
// For the countdown line, at the beginning of a stop and every few seconds in it. `live` are the
// local ranks that are not reaped; when it is empty, only descendants are left.
struct ReportStopping {
  int attempt = 0;
  StopReason reason = StopReason::failure;
  int signal = 0;        // What the group got first.
  bool killing = false;  // KILL was sent; `left` is the time until we give up.
  Duration left{};       // Else: the time until KILL.
  std::vector<int> live;
  friend bool operator==(const ReportStopping&, const ReportStopping&) = default;
};
// All workers succeeded. Say GroupEmpty as soon as no descendant is left.
struct WatchLeftovers {
  int attempt = 0;
  friend bool operator==(const WatchLeftovers&, const WatchLeftovers&) = default;
};
// Descendants are still there a moment after the last worker: name them in one line.
struct ReportLeftovers {
  int attempt = 0;
  Duration left{};  // Until they get TERM.
  friend bool operator==(const ReportLeftovers&, const ReportLeftovers&) = default;
};
struct SuspendWorkers {
  int attempt = 0;
  friend bool operator==(const SuspendWorkers&, const SuspendWorkers&) = default;
};
struct ResumeWorkers {
  int attempt = 0;
  friend bool operator==(const ResumeWorkers&, const ResumeWorkers&) = default;
};
// Send it once to every live worker.
struct ForwardSignal {
  int attempt = 0;
  int signal = 0;
  friend bool operator==(const ForwardSignal&, const ForwardSignal&) = default;
};
// The next start waits for `delay`: for the line "the last 3 attempts died within 1 s; next in 2
// s".
struct BackOff {
  int attempt = 0;  // The one that will be started.
  int quick_deaths = 0;
  Duration delay{};
  friend bool operator==(const BackOff&, const BackOff&) = default;
};
// All workers of the attempt succeeded and nothing of them is left; whether the job is over, others
// say: JobEnded, or Regroup for another round. Only of a coordinated group.
struct Succeeded {
  int attempt = 0;
  friend bool operator==(const Succeeded&, const Succeeded&) = default;
};
// An event that led to nothing now, and why. For the debug log.
struct Note {
  std::string text;
  friend bool operator==(const Note&, const Note&) = default;
};
// The last effect. A round or spawn that is still under way is to be abandoned.
struct Finish {
  JobOutcome outcome;
  friend bool operator==(const Finish&, const Finish&) = default;
};

using Effect = std::variant<RequestRound, Spawn, WorkerFailed, Stop, Kill, ReportStopping,
                            WatchLeftovers, ReportLeftovers, SuspendWorkers, ResumeWorkers,
                            ForwardSignal, BackOff, Succeeded, Note, Finish>;

}  // namespace muster::group
