// The events that the worker-group machine receives and the effects that it emits. Plain values;
// effects are compared with ==, so that tests can state whole answers.
//
// Every event about a started group carries its attempt. The machine numbers attempts from 0, one
// for every start; the restart count (shown as TORCHELASTIC_RESTART_COUNT) counts only the starts
// that a failure paid for, so it falls behind after a change of membership.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "agent/process/exit_status.h"
#include "agent/report/job_report.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"

namespace muster::group {

// ---- Values that several events and effects share.

// The first failure observed in an attempt: it makes the group stop. Whether it also caused the
// others is decided elsewhere (agent/report/judge.h).
struct FirstFailure {
  int attempt = 0;
  int local_rank = 0;
  int pid = 0;
  std::optional<ExitStatus> status;  // nullopt: FailWorker named the worker, see `why`.
  std::string why;                   // Only from FailWorker; empty for a plain exit.
  bool is_final = false;             // Only from FailWorker: a restart cannot help.
  friend bool operator==(const FirstFailure&, const FirstFailure&) = default;
};

// Why a group is being stopped.
enum class StopReason {
  failure,       // a worker failed: restart if the budget allows
  regroup,       // the membership changed: start again, free of charge
  spawn_failed,  // a worker could not be started: end
  leftovers,     // all workers succeeded, but their leftovers outlived the grace period
  requested,     // muster received a stop signal
  ended,         // the rendezvous ended the job
};

struct JobOutcome {
  std::optional<JobEnd> end = JobEnd::success;  // nullopt: the rendezvous knows how the job ended.
  int signal = 0;              // Set for stopped (and for unkillable after a stop request).
  std::optional<Error> error;  // Set for spawn_failed and round_failed; for nullopt, if any.
  std::optional<StopReason> stopped_for;  // The reason for the stop; set for unkillable.
  int attempts = 0;                       // Rounds requested in total.
  int restarts = 0;                       // Restarts taken from the budget.
  friend bool operator==(const JobOutcome&, const JobOutcome&) = default;
};

// ---- Events.

struct Begin {};
// The answer to RequestRound: this attempt's log folder, port and ranks are ready.
struct RoundReady {
  int attempt = 0;
  std::optional<int> restarts = {};  // Restarts taken so far; used if coordinated.
};
struct RoundFailed {
  int attempt = 0;
  Error error;
};
// The answer to Spawn; always arrives before the same worker's Exited.
struct Spawned {
  int attempt = 0;
  int local_rank = 0;
  int pid = 0;
};
struct SpawnFailed {
  int attempt = 0;
  int local_rank = 0;
  Error error;
};
// The worker itself is reaped. Its descendants may still exist.
struct Exited {
  int attempt = 0;
  int local_rank = 0;
  ExitStatus status;
};
// Treat this live worker as failed (uninterruptible sleep, a hang verdict).
struct FailWorker {
  int attempt = 0;
  int local_rank = 0;
  std::string why;
  bool restart = true;  // false: the job ends, whatever the budget (a process stuck in the kernel).
};
// Every worker is reaped and no descendant of any is left. After Stop, Kill or WatchLeftovers the
// shell must send it as soon as it is true (at once if it is already). May be repeated. The
// shell must not send it before a Spawned that is due, since the machine would take that worker for
// gone too. It may come before an Exited.
struct GroupEmpty {
  int attempt = 0;
};
// The membership changed, so the round of `attempt` is out of date: restart, free of charge.
struct Regroup {
  int attempt = 0;
};
// The rendezvous ended the job: stop the workers and finish. Only for a coordinated group.
struct JobEnded {};
struct StopRequested {
  int signal = 0;
};
// The engine repeated its signal, as Slurm does as it counts down to KILL: restart the grace.
struct StopRepeated {};
// The front received a second TERM, INT or QUIT.
struct KillRequested {};
// All that is left of the group runs as another user and cannot be signalled, so waiting for KILL
// to take effect is useless. May be repeated.
struct KillRefused {
  int attempt = 0;
};
struct Suspend {};
struct Resume {};
struct Forward {
  int signal = 0;
};
struct Tick {};

using Event = std::variant<Begin, RoundReady, RoundFailed, Spawned, SpawnFailed, Exited, FailWorker,
                           GroupEmpty, Regroup, JobEnded, StopRequested, StopRepeated,
                           KillRequested, KillRefused, Suspend, Resume, Forward, Tick>;

// ---- Effects.

// Prepare what this attempt needs and answer with RoundReady or RoundFailed.
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
// The stop begins. A later stop request or failed spawn still prevents the restart.
struct WorkerFailed {
  FirstFailure first;
  bool will_restart = false;
  int restarts_left = 0;  // What remains after that restart.
  friend bool operator==(const WorkerFailed&, const WorkerFailed&) = default;
};
// Send `signal`, then CONT, to each live worker, or to those below it that handle the signal
// (agent/process/stop_receivers.h), and to the descendants that no live worker needs. Repeated if
// a worker was being started when the stop began, for those that have not had the signal yet.
struct Stop {
  int attempt = 0;
  int signal = 0;
  friend bool operator==(const Stop&, const Stop&) = default;
};
// Two thirds of the grace are over: send TERM, then CONT, to all without a signal of this stop.
struct StopRest {
  int attempt = 0;
  friend bool operator==(const StopRest&, const StopRest&) = default;
};
// Send KILL and CONT to all workers and descendants, repeatedly until GroupEmpty.
struct Kill {
  int attempt = 0;
  friend bool operator==(const Kill&, const Kill&) = default;
};
// Report the countdown, at the start of a stop and every few seconds during it. `live` holds the
// local ranks that are not reaped; if it is empty, only descendants are left.
struct ReportStopping {
  int attempt = 0;
  StopReason reason = StopReason::failure;
  int signal = 0;        // The first signal that the group was sent.
  bool killing = false;  // KILL was sent; `left` is the time until we give up.
  Duration left{};       // Otherwise: the time until KILL.
  std::vector<int> live;
  friend bool operator==(const ReportStopping&, const ReportStopping&) = default;
};
// All workers succeeded. Send GroupEmpty as soon as no descendant is left.
struct WatchLeftovers {
  int attempt = 0;
  friend bool operator==(const WatchLeftovers&, const WatchLeftovers&) = default;
};
// Descendants outlive the last worker by leftovers_quiet: name them in one line.
struct ReportLeftovers {
  int attempt = 0;
  Duration left{};  // Time until they get TERM.
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
// Send the signal once to every live worker.
struct ForwardSignal {
  int attempt = 0;
  int signal = 0;
  friend bool operator==(const ForwardSignal&, const ForwardSignal&) = default;
};
// The next start waits for `delay`, which the restart line shows.
struct BackOff {
  int attempt = 0;  // The one to be started.
  int quick_deaths = 0;
  Duration delay{};
  friend bool operator==(const BackOff&, const BackOff&) = default;
};
// All workers of the attempt succeeded and nothing of them is left. The rendezvous decides what
// follows: JobEnded, or Regroup for another round. Only for a coordinated group.
struct Succeeded {
  int attempt = 0;
  friend bool operator==(const Succeeded&, const Succeeded&) = default;
};
// An event that had no effect, and why. For the debug log.
struct Note {
  std::string text;
  friend bool operator==(const Note&, const Note&) = default;
};
// The last effect. Abandon a round or spawn that is still in progress.
struct Finish {
  JobOutcome outcome;
  friend bool operator==(const Finish&, const Finish&) = default;
};

using Effect = std::variant<RequestRound, Spawn, WorkerFailed, Stop, StopRest, Kill, ReportStopping,
                            WatchLeftovers, ReportLeftovers, SuspendWorkers, ResumeWorkers,
                            ForwardSignal, BackOff, Succeeded, Note, Finish>;

}  // namespace muster::group
