#include "agent/job/worker_group.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "rendezvous/base/planted.h"

namespace muster {
namespace {

// True if the worker died of a signal that stops jobs, or exited with a shell's code for one.
bool is_end_by_stop_signal(const ExitStatus& status) {
  const int signal = status.kind == ExitStatus::Kind::signaled ? status.value : status.value - 128;
  return signal == SIGTERM || signal == SIGINT || signal == SIGHUP || signal == SIGQUIT;
}

}  // namespace

WorkerGroup::WorkerGroup(const Options& options) : options_(options) {
  CHECK(options.workers >= 1);
  CHECK(options.max_restarts >= 0);
  for (const Duration duration :
       {options.grace, options.kill_wait, options.leftovers_grace, options.leftovers_quiet,
        options.quick_death, options.backoff_first, options.backoff_cap, options.report_every,
        options.jump, options.second_look, options.stop_may_follow}) {
    CHECK(duration >= Duration::zero());
  }
  CHECK(options.report_every > Duration::zero());
}

// Every (phase, event) pair. "-" changes nothing and emits a Note; "!" is a bug in the shell and
// ends the program (CHECK). After Finish every event is dropped silently.
//
//                idle       preparing   starting     running   draining  stopping     waiting
// Begin          round      -           -            -         -         -            -
// RoundReady     !          starting    -            -         -         -            -
// RoundFailed    !          finish      -            -         -         -            -
// Spawned [1]    !          !           next         -         -         stop it too  -
// SpawnFailed[2] !          -           stop         -         -         never again  -
// Exited [3]     !          !           [4]          [4]       -         gone? [5]    -
// FailWorker     !          -           stop         stop      -         -            -
// GroupEmpty     !          -           -            -         success   gone? [5]    -
// Regroup        !          - [6]       stop         stop      - [7]     - [6]        - [6]
// JobEnded       finish     finish      stop         stop      stop      outcome [8]  finish
// StopRequested  finish     finish      stop         stop      stop      outcome [8]  finish
// StopRepeated   -          -           -            -         -         grace [11]   -
// KillRequested  finish     finish      kill         kill      kill      kill         finish
// KillRefused    !          -           -            -         -         give up [10] -
// Suspend, again flag; -    flag; -     suspend [9]  suspend   suspend   flag [9]     flag; -
// Resume, again  flag; -    flag; -     go on        resume    resume    flag; -      flag; -
// Forward        -          -           if live      if live   -         -            -
// Tick           -          -           [4]          [4]       report,   report, the   round
//                                                              stop      rest, kill
//                                                                        or give up
//
// succeeded (coordinated groups only): Regroup requests a round; JobEnded, StopRequested and
// KillRequested finish; everything else is "-".
//
// Events of a past attempt are dropped with a Note; those of a future attempt are "!". [1] For a
// worker whose start was not requested "!"; repeated "-". [2] Not requested "-". [3] For a worker
// that was not started "!"; repeated "-". [4] A failure begins the stop, one by a stop signal only
// after stop_may_follow; the last success begins draining. [5] When no Spawn is unanswered, every
// started worker is reaped and GroupEmpty has arrived, the stop ends with a new round, back-off, or
// the end. [6] The next round includes the change. [7] Workers that succeeded are not started
// again, except in a coordinated group. [8] The stop in progress keeps its signal and its deadline;
// only what follows changes. [9] Suspension holds back the start of workers and freezes the clocks
// of draining and of quick death. It never holds back a stop: a stop sends CONT. [10] Only after
// KILL; until then the remaining processes may still exit by themselves. [11] Only of a stop that
// was requested, before KILL.
void WorkerGroup::step(Instant now, const Event& event, std::vector<Effect>& out) {
  if (phase_ == Phase::finished) return;
  out_ = &out;
  std::visit(
      [&](const auto& e) {
        if constexpr (requires { e.attempt; }) {
          if (is_old(e.attempt)) return;
        }
        on(now, e);
      },
      event);
  out_ = nullptr;
}

bool WorkerGroup::is_old(int attempt) {
  CHECK(attempt <= attempt_);
  if (attempt < attempt_)
    ignore("event of attempt " + std::to_string(attempt), "that attempt is over");
  return attempt < attempt_;
}

Instant WorkerGroup::next_deadline() const {
  return frozen() ? kNever : std::min({deadline_, report_at_, rest_at_, suspect_until_});
}

// ---- Rounds and starts.

void WorkerGroup::on(Instant, const group::Begin&) {
  if (phase_ != Phase::idle) return ignore("Begin", "the job has begun already");
  request_round();
}

void WorkerGroup::request_round() {
  phase_ = Phase::preparing;
  ++attempt_;
  workers_.assign(static_cast<size_t>(options_.workers), Worker{});
  failed_ = false;
  deadline_ = report_at_ = kNever;
  CHECK(!suspect_);
  out_->push_back(group::RequestRound{attempt_, restarts_});
}

void WorkerGroup::on(Instant, const group::RoundReady& event) {
  if (phase_ != Phase::preparing) return ignore("RoundReady", "the round was made already");
  if (options_.coordinated) restarts_ = event.restarts.value_or(restarts_);
  phase_ = Phase::starting;
  spawn_next();
}

void WorkerGroup::on(Instant, const group::RoundFailed& event) {
  if (phase_ != Phase::preparing) return ignore("RoundFailed", "the round was made already");
  error_ = event.error;
  finish(JobEnd::round_failed);
}

// Requests the next worker's start, unless a suspension or an unanswered Spawn holds it back.
void WorkerGroup::spawn_next() {
  if (suspended_ || (spawning_ && !PLANTED(PlantedBug::double_start))) return;
  const auto next = std::ranges::find(workers_, false, &Worker::spawned);
  CHECK(next != workers_.end());
  spawning_ = static_cast<int>(next - workers_.begin());
  out_->push_back(group::Spawn{attempt_, *spawning_});
}

void WorkerGroup::on(Instant now, const group::Spawned& event) {
  Worker& started = worker(event.local_rank);
  if (started.spawned) return ignore("Spawned", "it was said before");
  CHECK(spawning_ == event.local_rank);
  CHECK(phase_ == Phase::starting || phase_ == Phase::stopping);
  spawning_.reset();
  started.spawned = true;
  started.pid = event.pid;
  started_at_ = now;
  if (phase_ == Phase::stopping) {
    // It was being started when the stop began: it gets the signal that the others got.
    empty_ = false;
    if (killing_) {
      out_->push_back(group::Kill{attempt_});
    } else {
      out_->push_back(group::Stop{attempt_, sent_signal_});
    }
    return;
  }
  if (suspended_) out_->push_back(group::SuspendWorkers{attempt_});
  if (!workers_.back().spawned) return spawn_next();
  phase_ = Phase::running;
  drain_if_all_exited(now);
}

void WorkerGroup::on(Instant now, const group::SpawnFailed& event) {
  if (spawning_ != event.local_rank) return ignore("SpawnFailed", "no answer was awaited");
  spawning_.reset();
  error_ = event.error;
  if (phase_ == Phase::starting) return begin_stop(now, group::StopReason::spawn_failed, SIGTERM);
  CHECK(phase_ == Phase::stopping);
  // A program that cannot be executed is never restarted, even if the stop was for a restart.
  if (reason_ != group::StopReason::requested && reason_ != group::StopReason::ended) {
    reason_ = group::StopReason::spawn_failed;
  }
  conclude_stop_if_gone(now);
}

// ---- Ends of workers.

void WorkerGroup::on(Instant now, const group::Exited& event) {
  Worker& ended = worker(event.local_rank);
  CHECK(ended.spawned);
  if (ended.status) return ignore("Exited", "it was said before");
  if (PLANTED(PlantedBug::lost_exit) && phase_ == Phase::starting && event.status.success()) return;
  ended.status = event.status;
  if (phase_ == Phase::stopping) {
    return conclude_stop_if_gone(now);
  }
  CHECK(phase_ == Phase::starting || phase_ == Phase::running);
  if (!event.status.success()) {
    return on_failed_exit(now, {attempt_, event.local_rank, ended.pid, event.status, ""});
  }
  if (phase_ == Phase::running) drain_if_all_exited(now);
}

// Other failures do not count while there is a suspect, which may have caused them.
void WorkerGroup::on_failed_exit(Instant now, group::FirstFailure first) {
  if (suspect_) return;
  if (options_.stop_may_follow == Duration::zero() || !is_end_by_stop_signal(*first.status))
    return fail_attempt(now, std::move(first));
  suspect_ = std::move(first);
  suspect_until_ = instant_after(now, options_.stop_may_follow);
}

void WorkerGroup::on(Instant now, const group::FailWorker& event) {
  const Worker& failed = worker(event.local_rank);
  if (phase_ != Phase::starting && phase_ != Phase::running) {
    return ignore("FailWorker", "the group is not running");
  }
  if (!failed.spawned || failed.status) return ignore("FailWorker", "the worker is not running");
  if (!event.restart) options_.max_restarts = restarts_;
  fail_attempt(now,
               {attempt_, event.local_rank, failed.pid, std::nullopt, event.why, !event.restart});
}

void WorkerGroup::fail_attempt(Instant now, group::FirstFailure first) {
  CHECK(!failed_);
  const int left = options_.max_restarts - restarts_;
  const bool again = left > 0 || options_.coordinated;
  failed_ = true;
  out_->push_back(group::WorkerFailed{std::move(first), again, std::max(0, left - 1)});
  begin_stop(now, group::StopReason::failure, SIGTERM);
}

void WorkerGroup::drain_if_all_exited(Instant now) {
  if (!all_exited() || suspect_) return;
  phase_ = Phase::draining;
  drain_began_ = now;
  deadline_ = instant_after(now, options_.grace);
  report_at_ = instant_after(now, options_.leftovers_quiet);
  out_->push_back(group::WatchLeftovers{attempt_});
}

// Counts the quick deaths in a row. Time spent suspended does not count as lifetime.
void WorkerGroup::note_lifetime(Instant now, bool failed) {
  Duration life = Duration::zero();
  if (phase_ == Phase::running) {
    life = (suspended_ ? std::max(suspended_at_, started_at_) : now) - started_at_;
  }
  if (life >= options_.quick_death) {
    quick_deaths_ = 0;
  } else if (failed) {
    ++quick_deaths_;
  }
}

// ---- Suspension and forwarded signals.

bool WorkerGroup::frozen() const {
  return suspended_ && phase_ == Phase::draining;
}

void WorkerGroup::on(Instant now, const group::Suspend&) {
  if (suspended_) return ignore("Suspend", "the group is suspended");
  suspended_ = true;
  suspended_at_ = now;
  if (!is_up()) return ignore("Suspend", "nothing to suspend; the next start is held");
  out_->push_back(group::SuspendWorkers{attempt_});
}

void WorkerGroup::on(Instant now, const group::Resume&) {
  if (!suspended_) return ignore("Resume", "the group is not suspended");
  suspended_ = false;
  if (!is_up()) return ignore("Resume", "nothing to resume");
  if (phase_ == Phase::draining) {
    const Duration slept = now - std::max(suspended_at_, drain_began_);
    deadline_ = instant_after(deadline_, slept);
    report_at_ = instant_after(report_at_, slept);
  } else {
    started_at_ += now - std::max(suspended_at_, started_at_);
  }
  out_->push_back(group::ResumeWorkers{attempt_});
  if (phase_ == Phase::starting) spawn_next();
}

void WorkerGroup::on(Instant, const group::Forward& event) {
  if (phase_ == Phase::stopping) return ignore("Forward", "the group is being stopped");
  if (!has_live_workers()) return ignore("Forward", "no worker is running");
  out_->push_back(group::ForwardSignal{attempt_, event.signal});
}

}  // namespace muster
