// What all nodes of a job know and one of them says, where the engine that started them brings
// their output to one console: node rank 0, or the one that the host chose for the job's end.
// Control loop only.
#pragma once

#include <optional>

#include "agent/job/job_recorder.h"
#include "agent/job/job_seam.h"
#include "agent/job/worker_group_events.h"
#include "agent/launch_spec.h"
#include "rendezvous/membership/agent_protocol.h"

namespace muster {

class Announcer {
 public:
  Announcer(JobSeam& job, const LaunchSpec& spec, JobRecorder& record)
      : job_(job), spec_(spec), record_(record) {}

  // Whether what all nodes are told appears on this console without this node. `round`: the newest.
  bool another_says_it(const membership::Round& round) const;

  // What this node knows of the job's end.
  struct HeardEnd {
    bool from_host = false;  // The job's host told all nodes.
    bool by_engine = false;  // The engine told all nodes to end.
    int teller = -1;         // The node rank that the host named; -1: none.
  };
  // Whether another node says how the job ended. Processes that remain, and workers that outlived
  // the grace or failed in it, are this node's alone.
  bool another_says_the_end(const membership::Round& round, const JobReport& report,
                            const HeardEnd& heard) const;

  // A failure of this node, whose line follows the output that it is about.
  void hold(const group::WorkerFailed& failure) { failed_ = failure; }
  bool holds_failure() const { return failed_.has_value(); }
  // Once that output is complete.
  void say_restart(Duration delay);
  // All nodes know the same line: the round came with the verdict over all of them.
  void say_job_restart(const membership::Round& round);

 private:
  bool shares_console() const;

  JobSeam& job_;
  const LaunchSpec& spec_;
  JobRecorder& record_;
  std::optional<group::WorkerFailed> failed_;
};

}  // namespace muster
