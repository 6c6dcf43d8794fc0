// The promises of the worker-group machine, checked against the truth of the simulated world. It
// receives the machine's events and effects in order and keeps the first broken promise.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "agent/job/worker_group.h"
#include "tests/sim/process_world.h"

namespace muster::sim {

class Promises {
 public:
  Promises(const Plan& plan, const ProcessWorld& world) : plan_(plan), world_(world) {}

  void heard(Instant now, const group::Event& event);
  void asked(Instant now, const group::Effect& effect);
  // The agent was frozen for this long, so that events reach it late.
  void froze(Duration length) { frozen_ += length; }

  const std::optional<std::string>& broken() const { return broken_; }

 private:
  void check(bool holds, const std::string& promise) {
    if (!holds && !broken_) broken_ = promise;
  }
  void on(Instant now, const group::RequestRound& effect);
  void on(Instant now, const group::Spawn& effect);
  void on(Instant now, const group::WorkerFailed& effect);
  void on(Instant now, const group::Stop& effect);
  void on(Instant now, const group::StopRest& effect);
  void on(Instant now, const group::Kill& effect);
  void on(Instant now, const group::ForwardSignal& effect);
  void on(Instant now, const group::Finish& effect);
  void on(Instant, const group::ReportStopping&) {}
  void on(Instant now, const group::WatchLeftovers& effect);
  void on(Instant, const group::ReportLeftovers&) {}
  void on(Instant now, const group::SuspendWorkers& effect);
  void on(Instant now, const group::ResumeWorkers& effect);
  void on(Instant, const group::BackOff&) {}
  void on(Instant, const group::Succeeded&) {
    check(false, "a group that stands alone finishes when it has succeeded");
  }
  void on(Instant, const group::Note& effect);

  void check_first(const group::FirstFailure& first);
  void check_outcome(const group::JobOutcome& outcome);
  void check_left_behind(Instant now, const group::JobOutcome& outcome);

  const Plan& plan_;
  const ProcessWorld& world_;
  std::optional<std::string> broken_;

  int attempt_ = -1;
  bool round_ready_ = false;
  std::optional<int> spawning_;
  std::set<std::pair<int, int>> asked_;                // (attempt, local rank)
  std::map<std::pair<int, int>, ExitStatus> exits_;    // Reported to the machine.
  std::map<int, group::FirstFailure> first_failures_;  // By attempt.
  std::set<std::pair<int, int>> fail_worker_;
  std::map<int, Instant> stopped_at_;  // By attempt: time of the first Stop or Kill.
  std::set<int> rest_stopped_;         // Attempts with a StopRest.
  int paid_restarts_ = 0;
  bool end_requested_ = false;
  bool kill_requested_ = false;
  bool spawn_failed_ = false;
  bool suspended_ = false;
  bool finished_ = false;
  Duration frozen_{};
};

}  // namespace muster::sim
