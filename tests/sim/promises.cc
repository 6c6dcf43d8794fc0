#include "tests/sim/promises.h"

#include <fmt/format.h>

namespace muster::sim {

using group::JobOutcome;

void Promises::heard(Instant, const group::Event& event) {
  if (std::get_if<group::StopRequested>(&event)) end_requested_ = true;
  if (std::get_if<group::KillRequested>(&event)) end_requested_ = kill_requested_ = true;
  if (std::get_if<group::Suspend>(&event)) suspended_ = true;
  if (std::get_if<group::Resume>(&event)) suspended_ = false;
  if (const auto* e = std::get_if<group::RoundReady>(&event)) {
    if (e->attempt == attempt_) round_ready_ = true;
  }
  if (const auto* e = std::get_if<group::Spawned>(&event)) {
    if (e->attempt == attempt_ && spawning_ == e->local_rank) spawning_.reset();
  }
  if (const auto* e = std::get_if<group::SpawnFailed>(&event)) {
    if (e->attempt == attempt_ && spawning_ == e->local_rank) {
      spawning_.reset();
      spawn_failed_ = true;
    }
  }
  if (const auto* e = std::get_if<group::Exited>(&event)) {
    exits_.emplace(std::pair{e->attempt, e->local_rank}, e->status);
  }
  if (const auto* e = std::get_if<group::FailWorker>(&event)) {
    fail_worker_.emplace(e->attempt, e->local_rank);
  }
}

void Promises::asked(Instant now, const group::Effect& effect) {
  check(!finished_, "nothing follows a Finish");
  std::visit([&](const auto& e) { on(now, e); }, effect);
}

void Promises::on(Instant, const group::RequestRound& effect) {
  check(effect.attempt == attempt_ + 1, "attempts are numbered in order");
  check(world_.alive_in_all() == 0, "no round before every process of the old group is gone");
  check(!spawning_, "no round while a worker is being started");
  check(!end_requested_, "no round after a request to end");
  check(!spawn_failed_, "no round after a worker could not be started");
  if (first_failures_.contains(attempt_)) ++paid_restarts_;
  check(paid_restarts_ <= plan_.group.max_restarts, "restarts stay within the budget");
  check(effect.restart_count == paid_restarts_, "the restart count is what failures paid for");
  attempt_ = effect.attempt;
  round_ready_ = false;
}

void Promises::on(Instant, const group::Spawn& effect) {
  check(effect.attempt == attempt_ && round_ready_, "no start before its round is ready");
  check(!spawning_, "one start at a time");
  check(asked_.emplace(effect.attempt, effect.local_rank).second, "no worker is started twice");
  check(effect.local_rank >= 0 && effect.local_rank < plan_.group.workers, "ranks are in range");
  check(world_.alive_in_all() == world_.alive(attempt_), "no start beside an old attempt");
  check(!end_requested_, "no start after a request to end");
  check(!stopped_at_.contains(attempt_), "no start in a group that is being stopped");
  check(!suspended_, "no start while suspended");
  spawning_ = effect.local_rank;
}

void Promises::on(Instant, const group::WorkerFailed& effect) {
  check(!first_failures_.contains(effect.first.attempt), "an attempt has one first failure");
  check(!stopped_at_.contains(effect.first.attempt), "nothing fails first after our stop signal");
  const int left = plan_.group.max_restarts - paid_restarts_;
  check(effect.will_restart == (left > 0), "a restart is announced exactly if the budget allows");
  first_failures_.emplace(effect.first.attempt, effect.first);
  check_first(effect.first);
}

void Promises::check_first(const group::FirstFailure& first) {
  const auto key = std::pair{first.attempt, first.local_rank};
  if (!first.status) {
    check(fail_worker_.contains(key), "the first failure without a status was named by FailWorker");
    return;
  }
  const Process* process = world_.worker(first.attempt, first.local_rank);
  check(process != nullptr && !process->alive, "the first failure has ended");
  if (process == nullptr) return;
  check(!process->signaled_by_us, "a worker that our signal ended is never the first failure");
  check(!first.status->success(), "success is no failure");
  check(process->ending == *first.status && process->pid == first.pid, "its facts");
}

void Promises::on(Instant now, const group::Stop& effect) {
  check(effect.attempt == attempt_, "only the newest attempt is stopped");
  stopped_at_.emplace(effect.attempt, now);
}

void Promises::on(Instant now, const group::StopRest& effect) {
  const auto stopped = stopped_at_.find(effect.attempt);
  check(stopped != stopped_at_.end() && now - stopped->second >= plan_.group.grace / 3 * 2,
        "the rest gets no TERM within two thirds of the grace");
  rest_stopped_.insert(effect.attempt);
}

void Promises::on(Instant now, const group::Kill& effect) {
  const auto stopped = stopped_at_.emplace(effect.attempt, now).first;
  const Duration grace = std::min(plan_.group.grace, plan_.group.leftovers_grace);
  check(kill_requested_ || now - stopped->second >= grace, "no KILL within the grace");
  if (first_failures_.contains(effect.attempt) && !kill_requested_) {
    check(now - stopped->second >= plan_.group.grace, "no KILL within the grace of a failed group");
    check(rest_stopped_.contains(effect.attempt) || plan_.group.grace <= plan_.group.jump * 3,
          "the rest gets TERM before KILL");
  }
}

void Promises::on(Instant, const group::WatchLeftovers& effect) {
  check(world_.workers_alive(effect.attempt) == 0, "draining begins after the last worker");
  for (int rank = 0; rank < plan_.group.workers; ++rank) {
    const auto exit = exits_.find({effect.attempt, rank});
    check(exit != exits_.end() && exit->second.success(), "draining is for success only");
  }
}

void Promises::on(Instant, const group::SuspendWorkers&) {
  check(suspended_, "workers are suspended only on request");
}

void Promises::on(Instant, const group::ResumeWorkers&) {
  check(!suspended_, "workers are resumed only on request");
}

void Promises::on(Instant, const group::ForwardSignal& effect) {
  check(!stopped_at_.contains(effect.attempt), "nothing is forwarded to a group being stopped");
}

void Promises::on(Instant, const group::Note& effect) {
  check(!effect.text.empty() && effect.text.find('\n') == std::string::npos, "a note is one line");
}

void Promises::on(Instant now, const group::Finish& effect) {
  finished_ = true;
  check_left_behind(now, effect.outcome);
  check_outcome(effect.outcome);
}

void Promises::check_left_behind(Instant now, const JobOutcome& outcome) {
  const bool some_left = world_.alive_in_all() > 0 || spawning_.has_value();
  if (outcome.end != JobEnd::unkillable) {
    return check(!some_left, "the end leaves nothing behind, or says that it could not");
  }
  // The report of the last death may still be in flight, but not for long.
  const Duration news = plan_.group.jump + std::chrono::milliseconds{500} + frozen_;
  check(some_left || now - world_.last_death() <= news, "no dead process is called unkillable");
}

void Promises::check_outcome(const JobOutcome& outcome) {
  check(outcome.attempts == attempt_ + 1, "the outcome counts the attempts");
  check(outcome.restarts == paid_restarts_, "the outcome counts the restarts");
  const bool failed = first_failures_.contains(attempt_);
  if (!outcome.end) return check(false, "a group that stands alone ends only by itself");
  switch (*outcome.end) {
    case JobEnd::success:
      check(!failed && !end_requested_, "success is whole");
      break;
    case JobEnd::failed:
      check(failed, "a worker of the last attempt has failed");
      check(paid_restarts_ == plan_.group.max_restarts, "the whole budget is used before failing");
      check(!spawn_failed_, "a program that cannot be started has an end of its own");
      break;
    case JobEnd::stopped:
      check(end_requested_ && outcome.signal > 0, "stopped only on request, by a signal");
      check(!failed || paid_restarts_ < plan_.group.max_restarts,
            "a stop does not hide the failure that ends the job");
      break;
    case JobEnd::spawn_failed:
      check(spawn_failed_ && !end_requested_ && outcome.error, "spawn_failed has its reason");
      break;
    case JobEnd::round_failed:
      check(!round_ready_ && !end_requested_ && outcome.error, "round_failed has its reason");
      break;
    case JobEnd::unkillable:
      check(outcome.stopped_for.has_value(), "unkillable says what the stop was for");
      break;
  }
}

}  // namespace muster::sim
