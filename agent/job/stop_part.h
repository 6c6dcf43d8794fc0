// Stops the workers of an attempt: sends the signals in order, prints the lines about them, and
// records the stop first. Performs the effects of WorkerGroup that concern it. Control loop only.
//
// A rank that began to end before the stop (rendezvous/ring/departure.h) gets no signal before two
// thirds of the grace: others may have failed only because it closed its connections, and its own
// end, when it has flushed its logger, says why. Not if this muster was told to stop, nor if a
// worker of this node failed by itself. A rank that left without an error is spared only for
// victims of this node.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agent/job/engine_part.h"
#include "agent/job/hang_part.h"
#include "agent/job/job_recorder.h"
#include "agent/job/job_seam.h"
#include "agent/job/own_ranks.h"
#include "agent/job/worker_group_events.h"
#include "agent/launch_spec.h"
#include "agent/output/output.h"
#include "agent/process/worker_processes.h"

namespace muster {

class StopPart {
 public:
  struct Parts {
    WorkerProcesses& processes;
    JobRecorder& record;
    Output& output;
    EnginePart& engine;
    OwnRanks& own_ranks;
    HangPart& hang_part;
  };
  struct Callbacks {
    std::function<bool()> is_killed;        // The user wants the job to end at once.
    std::function<bool()> another_says_it;  // Another node prints what the engine told all.
  };

  StopPart(JobSeam& job, const LaunchSpec& spec, const Parts& parts, Callbacks callbacks)
      : job_(job), spec_(spec), parts_(parts), callbacks_(std::move(callbacks)) {}

  Duration grace() const { return from_seconds(spec_.shutdown_timeout_s); }
  void begin_attempt() {
    has_begun_ = false;
    has_victim_ = false;
    may_spare_ = true;
    spared_.clear();
  }
  // A worker has failed. `is_victim`: perhaps only because another one left.
  void worker_failed(bool is_victim) {
    has_victim_ = has_victim_ || is_victim;
    may_spare_ = may_spare_ && is_victim;
  }
  // The attempt's stop reaches all ranks at once.
  void spare_none() { may_spare_ = false; }
  // True once this attempt's workers got, or are about to get, a signal to stop.
  bool has_begun() const { return has_begun_; }

  void stop(int signal);
  void kill();
  void report(const group::ReportStopping& effect);
  void report_leftovers(const group::ReportLeftovers& effect);

 private:
  void begin(int signal);
  bool is_spared(const Departure& departure) const;
  std::string spared_text(const std::vector<int>& live) const;

  JobSeam& job_;
  const LaunchSpec& spec_;
  const Parts parts_;
  const Callbacks callbacks_;
  bool has_begun_ = false;
  bool has_victim_ = false;
  bool may_spare_ = true;
  std::set<int> spared_;  // Local ranks that are left to end by themselves.
};

}  // namespace muster
