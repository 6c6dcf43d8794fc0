// The state machine that manages one node's workers over all attempts of a job: which to start and
// when, when to stop and kill, whether to restart. Pure: the time is passed in; the machine emits
// effects and receives their results as events. The agent's shell performs the effects; the
// simulator runs the same code in a simulated world. One thread; the owner only calls step(), above
// which (worker_group.cc) is the table of every (phase, event) pair.
//
//   idle ─Begin─▶ preparing ─RoundReady─▶ starting ─last Spawned─▶ running ─all exited 0─▶ draining
//                     ▲                       │ failure, Regroup,      │                      │
//                     │                       ▼ SpawnFailed, stop      ▼                      ▼
//                  waiting ◀──restart──── stopping ◀───────────────────┴────── grace over ────┤
//                                             └──────────────────────▶ finished ◀─GroupEmpty──┘
//
// A coordinated group is one of several in a job, and the rendezvous decides for all of them: the
// group has no budget of its own, requests a round after every failure, and once all its workers
// have succeeded stays `succeeded` until JobEnded finishes it or Regroup makes it request a round.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/job/worker_group_events.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"

namespace muster {

class WorkerGroup {
 public:
  using Event = group::Event;
  using Effect = group::Effect;

  struct Options {
    int workers = 1;
    int max_restarts = 0;
    bool coordinated = false;  // See above; max_restarts is then ignored.
    // Stop signal to KILL; also how long leftovers of successful workers may keep running.
    Duration grace = std::chrono::seconds{30};
    // KILL to giving up: only a process in uninterruptible sleep survives a KILL.
    Duration kill_wait = std::chrono::seconds{30};
    // TERM to KILL for leftovers of successful workers (never more than `grace`).
    Duration leftovers_grace = std::chrono::seconds{2};
    // Descendants that outlive the last worker by less than this are not reported.
    Duration leftovers_quiet = std::chrono::milliseconds{300};
    // An attempt that fails within this time of its last worker's start is a quick death. The first
    // in a row restarts at once, the next after backoff_first, then doubling up to backoff_cap.
    Duration quick_death = std::chrono::seconds{1};
    Duration backoff_first = std::chrono::milliseconds{500};
    Duration backoff_cap = std::chrono::seconds{10};
    // How long a death by a stop signal may turn out to be the effect of a stop: an engine that
    // signals every process of the job may signal us after the worker.
    Duration stop_may_follow{0};
    // Interval between two countdown lines.
    Duration report_every = std::chrono::seconds{5};
    // A Tick that arrives later than this after its deadline means that this process did not run
    // (VM suspended, SIGSTOP), and perhaps the workers did not either: before KILL, or before
    // giving up, they get `second_look` more time. At most once for each step of the ladder.
    Duration jump = std::chrono::seconds{1};
    Duration second_look = std::chrono::seconds{2};
  };

  // REQUIRES: workers >= 1, max_restarts >= 0, no negative duration.
  explicit WorkerGroup(const Options& options);

  // Appends the effects in the order in which to perform them. Nothing follows a Finish.
  void step(Instant now, const Event& event, std::vector<Effect>& out);

  // When the next Tick takes effect; an earlier Tick does nothing.
  Instant next_deadline() const;

  // One line for people: the phase, which workers, what it waits for.
  std::string status(Instant now) const;

  bool finished() const { return phase_ == Phase::finished; }

 private:
  enum class Phase {
    idle,
    preparing,
    starting,
    running,
    draining,
    stopping,
    waiting,
    succeeded,
    finished
  };

  struct Worker {
    int pid = 0;
    bool spawned = false;
    std::optional<ExitStatus> status;
  };

  void on(Instant now, const group::Begin& event);
  void on(Instant now, const group::RoundReady& event);
  void on(Instant now, const group::RoundFailed& event);
  void on(Instant now, const group::Spawned& event);
  void on(Instant now, const group::SpawnFailed& event);
  void on(Instant now, const group::Exited& event);
  void on(Instant now, const group::FailWorker& event);
  void on(Instant now, const group::GroupEmpty& event);
  void on(Instant now, const group::Regroup& event);
  void on(Instant now, const group::JobEnded& event);
  void on(Instant now, const group::StopRequested& event);
  void on(Instant now, const group::StopRepeated& event);
  void on(Instant now, const group::KillRequested& event);
  void on(Instant now, const group::KillRefused& event);
  void on(Instant now, const group::Suspend& event);
  void on(Instant now, const group::Resume& event);
  void on(Instant now, const group::Forward& event);
  void on(Instant now, const group::Tick& event);

  void request_round();
  void spawn_next();
  void on_failed_exit(Instant now, group::FirstFailure first);
  void drain_if_all_exited(Instant now);
  void fail_attempt(Instant now, group::FirstFailure first);
  void note_lifetime(Instant now, bool failed);
  void begin_stop(Instant now, group::StopReason reason, int signal);
  void begin_grace(Instant now, Duration grace);
  void begin_kill(Instant now);
  void report_stopping(Instant now);
  void tick_draining(Instant now);
  void tick_stopping(Instant now, bool stood_still);
  void conclude_stop_if_gone(Instant now);
  bool is_out_of_restarts() const;
  bool end_is_known() const;
  void restart_after_failure(Instant now);
  void restart();
  void succeed();
  void finish(std::optional<JobEnd> end);

  bool is_old(int attempt);
  void ignore(std::string_view what, std::string_view why);
  Worker& worker(int local_rank);
  bool is_up() const;
  bool has_live_workers() const;
  bool all_exited() const;
  bool group_is_gone() const;
  bool frozen() const;
  std::vector<int> live_ranks() const;
  std::string phase_text(Instant now) const;

  // Invariants. (1) At most one Spawn is unanswered: spawning_. (2) Workers are started in rank
  // order, so the started ones are 0 .. n-1 of workers_. (3) failed_ is set only by fail_attempt,
  // so only in starting or running, and never after our stop signal. (4) RequestRound is emitted
  // only when group_is_gone(). (5) restarts_ <= max_restarts.
  Options options_;
  Phase phase_ = Phase::idle;
  int attempt_ = -1;  // The attempt of the newest RequestRound.
  int restarts_ = 0;
  int quick_deaths_ = 0;  // Number of them in a row.

  std::vector<Worker> workers_;  // This attempt's, indexed by local rank.
  std::optional<int> spawning_;  // The local rank whose Spawn is unanswered.
  Instant started_at_{};         // When the newest worker was started.
  bool failed_ = false;          // A worker of this attempt failed.
  // A worker that died of a stop signal; the stop may still be requested until suspect_until_.
  std::optional<group::FirstFailure> suspect_;
  Instant suspect_until_ = kNever;

  // The stop in progress.
  group::StopReason reason_ = group::StopReason::failure;
  int sent_signal_ = 0;  // The signal that the group was sent; 0: only KILL.
  bool killing_ = false;
  bool looked_twice_ = false;
  bool empty_ = false;  // GroupEmpty arrived and no worker was started after it.

  int requested_signal_ = 0;    // Not 0: the job was asked to end.
  std::optional<Error> error_;  // Why the job ends, if no worker is the cause.

  bool suspended_ = false;
  Instant suspended_at_{};
  Instant drain_began_{};

  Instant deadline_ = kNever;   // When this phase ends without an event.
  Instant rest_at_ = kNever;    // When all that is left gets TERM, in a stop.
  Instant report_at_ = kNever;  // When the next status line is due.

  std::vector<Effect>* out_ = nullptr;  // Only within step().
};

}  // namespace muster
