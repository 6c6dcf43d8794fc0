// The one-line status of the worker-group machine.
#include <algorithm>

#include <fmt/format.h>

#include "agent/job/worker_group.h"
#include "rendezvous/base/enum_name.h"
#include "rendezvous/membership/membership_text.h"

namespace muster {

namespace {

const char* stop_reason_text(group::StopReason reason) {
  return name_in<group::StopReason::ended>(
      {"a worker failed", "the membership changed", "a worker could not be started",
       "the workers succeeded and left processes running", "the end was requested",
       "the job has ended"},
      reason);
}

std::string awaited_text(const std::vector<int>& live) {
  if (live.empty()) return "descendants of the workers";
  return fmt::format("local {} {}", live.size() == 1 ? "rank" : "ranks", fmt::join(live, ","));
}

}  // namespace

void WorkerGroup::ignore(std::string_view what, std::string_view why) {
  out_->push_back(group::Note{fmt::format("{}: {}", what, why)});
}

WorkerGroup::Worker& WorkerGroup::worker(int local_rank) {
  CHECK(local_rank >= 0 && local_rank < options_.workers);
  return workers_[static_cast<size_t>(local_rank)];
}

// Workers are started or being started, and the group is not being stopped.
bool WorkerGroup::is_up() const {
  return phase_ == Phase::starting || phase_ == Phase::running || phase_ == Phase::draining;
}

bool WorkerGroup::has_live_workers() const {
  return std::ranges::any_of(workers_, [](const Worker& w) { return w.spawned && !w.status; });
}

bool WorkerGroup::all_exited() const {
  return std::ranges::all_of(workers_, [](const Worker& w) { return w.status.has_value(); });
}

std::vector<int> WorkerGroup::live_ranks() const {
  std::vector<int> live;
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (workers_[i].spawned && !workers_[i].status) live.push_back(static_cast<int>(i));
  }
  return live;
}

std::string WorkerGroup::phase_text(Instant now) const {
  const auto until = [&](Instant when) {
    return when == kNever ? std::string("no time limit")
                          : membership::precise_seconds(std::max(Duration::zero(), when - now));
  };
  const auto live = live_ranks();
  const auto started = std::ranges::count(workers_, true, &Worker::spawned);
  switch (phase_) {
    case Phase::idle:
      return "has not begun";
    case Phase::preparing:
      return "waiting for the round (log folder, port, ranks)";
    case Phase::starting:
      return fmt::format("starting workers, {} of {} are started", started, options_.workers);
    case Phase::running:
      return fmt::format("running, {} of {} alive", live.size(),
                         counted(options_.workers, "worker"));
    case Phase::draining:
      return fmt::format("all workers succeeded; waiting for what they left running, TERM in {}",
                         until(deadline_));
    case Phase::stopping:
      return fmt::format("stopping, since {}; waiting for {}; {} in {}", stop_reason_text(reason_),
                         awaited_text(live), killing_ ? "giving up" : "KILL", until(deadline_));
    case Phase::waiting:
      return fmt::format("{} attempts in a row died at once; the next starts in {}", quick_deaths_,
                         until(deadline_));
    case Phase::succeeded:
      return "all workers succeeded; waiting for the other nodes";
    case Phase::finished:
      return "finished";
  }
  return "";
}

std::string WorkerGroup::status(Instant now) const {
  const std::string budget =
      options_.coordinated ? std::string() : fmt::format(" of {}", options_.max_restarts);
  return fmt::format("attempt {}, restart {}{}: {}{}", std::max(attempt_, 0), restarts_, budget,
                     phase_text(now), suspended_ ? "; suspended" : "");
}

}  // namespace muster
