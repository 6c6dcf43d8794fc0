// The stop ladder of the worker group: signal, grace, KILL, and what follows once all are gone.
#include <algorithm>
#include <csignal>
#include <utility>

#include "agent/job/worker_group.h"
#include "rendezvous/base/planted.h"

namespace muster {

void WorkerGroup::begin_stop(Instant now, group::StopReason reason, int signal) {
  if (reason == group::StopReason::failure || reason == group::StopReason::regroup) {
    note_lifetime(now, reason == group::StopReason::failure);
  }
  const Duration grace = reason == group::StopReason::leftovers
                             ? std::min(options_.leftovers_grace, options_.grace)
                             : options_.grace;
  phase_ = Phase::stopping;
  suspect_.reset();
  suspect_until_ = kNever;
  reason_ = reason;
  sent_signal_ = signal;
  killing_ = looked_twice_ = empty_ = false;
  begin_grace(now, grace);
  if (group_is_gone()) return conclude_stop_if_gone(now);  // No worker was started.
  out_->push_back(group::Stop{attempt_, signal});
  report_stopping(now);
}

// StopRest is not due for leftovers, which have all had TERM.
void WorkerGroup::begin_grace(Instant now, Duration grace) {
  deadline_ = instant_after(now, grace);
  if (reason_ != group::StopReason::leftovers) rest_at_ = instant_after(now, grace / 3 * 2);
}

void WorkerGroup::begin_kill(Instant now) {
  killing_ = true;
  rest_at_ = kNever;
  looked_twice_ = false;
  deadline_ = instant_after(now, options_.kill_wait);
  out_->push_back(group::Kill{attempt_});
  report_stopping(now);
}

void WorkerGroup::report_stopping(Instant now) {
  report_at_ = instant_after(now, options_.report_every);
  out_->push_back(group::ReportStopping{attempt_, reason_, sent_signal_, killing_,
                                        std::max(Duration::zero(), deadline_ - now), live_ranks()});
}

void WorkerGroup::on(Instant now, const group::JobEnded&) {
  CHECK(options_.coordinated);
  if (requested_signal_ != 0) return ignore("JobEnded", "the end was requested before");
  if (is_up()) return begin_stop(now, group::StopReason::ended, SIGTERM);
  if (phase_ != Phase::stopping) return finish(std::nullopt);
  reason_ = group::StopReason::ended;
}

void WorkerGroup::on(Instant now, const group::StopRequested& event) {
  CHECK(event.signal > 0);
  if (requested_signal_ != 0) return ignore("StopRequested", "the end was requested before");
  requested_signal_ = event.signal;
  if (is_up()) return begin_stop(now, group::StopReason::requested, event.signal);
  if (phase_ != Phase::stopping) return finish(JobEnd::stopped);
  if (!end_is_known()) reason_ = group::StopReason::requested;
  report_stopping(now);
}

void WorkerGroup::on(Instant now, const group::StopRepeated&) {
  if (phase_ != Phase::stopping || requested_signal_ == 0 || killing_)
    return ignore("StopRepeated", "no grace is running");
  begin_grace(now, options_.grace);
  looked_twice_ = false;
  report_stopping(now);
}

void WorkerGroup::on(Instant now, const group::KillRequested&) {
  if (requested_signal_ == 0) requested_signal_ = SIGKILL;
  if (!is_up() && phase_ != Phase::stopping) return finish(JobEnd::stopped);
  if (is_up() || !end_is_known()) reason_ = group::StopReason::requested;
  if (is_up()) {
    phase_ = Phase::stopping;
    suspect_.reset();
    suspect_until_ = kNever;
    sent_signal_ = 0;
    killing_ = empty_ = false;
    if (group_is_gone()) return conclude_stop_if_gone(now);  // No worker was started.
  }
  if (killing_) return ignore("KillRequested", "KILL was sent before; the job ends with it");
  begin_kill(now);
}

void WorkerGroup::on(Instant, const group::KillRefused&) {
  if (phase_ != Phase::stopping || !killing_) return ignore("KillRefused", "no KILL is due");
  finish(JobEnd::unkillable);
}

void WorkerGroup::on(Instant now, const group::Regroup&) {
  switch (phase_) {
    case Phase::starting:
    case Phase::running:
      return begin_stop(now, group::StopReason::regroup, SIGTERM);
    case Phase::draining:
      if (options_.coordinated) return begin_stop(now, group::StopReason::regroup, SIGTERM);
      return ignore("Regroup", "the workers have succeeded");
    case Phase::stopping:
      if (reason_ == group::StopReason::leftovers && options_.coordinated) {
        reason_ = group::StopReason::regroup;
      }
      return ignore("Regroup", "the group is being stopped");
    case Phase::succeeded:
      return request_round();
    default:
      return ignore("Regroup", "the next round takes the change along");
  }
}

void WorkerGroup::on(Instant now, const group::GroupEmpty&) {
  if (phase_ == Phase::draining) return succeed();
  if (phase_ != Phase::stopping) return ignore("GroupEmpty", "nothing waits for it");
  empty_ = true;
  conclude_stop_if_gone(now);
}

// True if every started worker is reaped, none is being started and no descendant is left.
bool WorkerGroup::group_is_gone() const {
  if (spawning_ || has_live_workers()) return false;
  if (PLANTED(PlantedBug::restart_before_reaped) && restarts_ < options_.max_restarts) return true;
  return empty_ || !workers_.front().spawned;
}

void WorkerGroup::conclude_stop_if_gone(Instant now) {
  if (!group_is_gone()) return;
  rest_at_ = kNever;
  switch (reason_) {
    case group::StopReason::failure:
      return restart_after_failure(now);
    case group::StopReason::regroup:
      return request_round();
    case group::StopReason::spawn_failed:
      if (options_.coordinated) return request_round();
      return finish(JobEnd::spawn_failed);
    case group::StopReason::leftovers:
      return succeed();
    case group::StopReason::requested:
      return finish(JobEnd::stopped);
    case group::StopReason::ended:
      return finish(std::nullopt);
  }
}

bool WorkerGroup::is_out_of_restarts() const {
  const int budget = options_.max_restarts + (PLANTED(PlantedBug::budget_off_by_one) ? 1 : 0);
  return restarts_ >= budget && !options_.coordinated;
}

// The stop in progress ends the job, whatever is requested now: its cause stays what it was.
bool WorkerGroup::end_is_known() const {
  return reason_ == group::StopReason::ended ||
         (reason_ == group::StopReason::failure && is_out_of_restarts());
}

void WorkerGroup::restart_after_failure(Instant now) {
  if (is_out_of_restarts()) return finish(JobEnd::failed);
  if (quick_deaths_ < 2) return restart();
  Duration delay = options_.backoff_first;
  for (int i = 2; i < quick_deaths_ && delay < options_.backoff_cap; ++i)
    delay += delay;
  delay = std::min(delay, options_.backoff_cap);
  phase_ = Phase::waiting;
  deadline_ = instant_after(now, delay);
  report_at_ = kNever;
  out_->push_back(group::BackOff{attempt_ + 1, quick_deaths_, delay});
}

void WorkerGroup::restart() {
  if (!options_.coordinated) ++restarts_;
  request_round();
}

void WorkerGroup::succeed() {
  if (!options_.coordinated) return finish(JobEnd::success);
  phase_ = Phase::succeeded;
  deadline_ = report_at_ = kNever;
  out_->push_back(group::Succeeded{attempt_});
}

void WorkerGroup::finish(std::optional<JobEnd> end) {
  group::JobOutcome outcome;
  outcome.end = end;
  if (end == JobEnd::unkillable) outcome.stopped_for = reason_;
  outcome.signal = requested_signal_;
  if (end == JobEnd::spawn_failed || end == JobEnd::round_failed || !end) outcome.error = error_;
  outcome.attempts = attempt_ + 1;
  outcome.restarts = restarts_;
  phase_ = Phase::finished;
  deadline_ = report_at_ = kNever;
  out_->push_back(group::Finish{std::move(outcome)});
}

// ---- Time.

void WorkerGroup::on(Instant now, const group::Tick&) {
  const Instant due = next_deadline();
  if (now < due) return;
  if (suspect_ && now >= suspect_until_) return fail_attempt(now, *std::exchange(suspect_, {}));
  switch (phase_) {
    case Phase::draining:
      return tick_draining(now);
    case Phase::stopping:
      return tick_stopping(now, now - due > options_.jump);
    case Phase::waiting:
      return restart();
    default:
      return;
  }
}

void WorkerGroup::tick_draining(Instant now) {
  if (now >= deadline_) return begin_stop(now, group::StopReason::leftovers, SIGTERM);
  report_at_ = kNever;
  out_->push_back(group::ReportLeftovers{attempt_, deadline_ - now});
}

void WorkerGroup::tick_stopping(Instant now, bool stood_still) {
  if (PLANTED(PlantedBug::grace_never_ends)) deadline_ = instant_after(now, options_.report_every);
  const bool is_over = now >= deadline_;
  if (now >= rest_at_ && (!is_over || stood_still)) {
    rest_at_ = kNever;
    out_->push_back(group::StopRest{attempt_});
  }
  if (!is_over && now >= report_at_) report_stopping(now);
  if (!is_over) return;
  if (stood_still && !looked_twice_) {
    looked_twice_ = true;
    deadline_ = instant_after(now, options_.second_look);
    report_at_ = instant_after(now, options_.report_every);
    return ignore("Tick", "it came so late that we stood still; the group gets a little longer");
  }
  if (!killing_) return begin_kill(now);
  finish(JobEnd::unkillable);
}

}  // namespace muster
