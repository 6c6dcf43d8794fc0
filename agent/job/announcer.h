// Decides which node prints what all nodes know, if the engine that started them merges their
// output: node rank 0, or at the job's end the node that the host chose. Control loop only.
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

  // True if another node prints on this console what all nodes are told. `round`: the newest.
  bool another_says_it(const membership::Round& round) const;

  // What this node knows of the job's end.
  struct HeardEnd {
    bool from_host = false;  // The job's host ended the job on all nodes.
    bool by_engine = false;  // The engine told all nodes to end.
    int teller = -1;         // The node rank that the host chose to print it; -1: none.
  };
  // True if another node prints how the job ended. Each prints what only it knows: processes that
  // remain, workers that failed in the grace and, unless the host ended the job, outlived it.
  bool another_says_the_end(const membership::Round& round, const JobReport& report,
                            const HeardEnd& heard) const;

  // Keeps a failure of this node, whose line must follow the output that it is about.
  void hold(const group::WorkerFailed& failure) { failed_ = failure; }
  bool holds_failure() const { return failed_.has_value(); }
  // Prints the held failure's restart line; called once that output is complete.
  void say_restart(Duration delay);
  // Prints the restart line for the verdict over all nodes, which came with the round.
  void say_job_restart(const membership::Round& round);

 private:
  bool shares_console() const;

  JobSeam& job_;
  const LaunchSpec& spec_;
  JobRecorder& record_;
  std::optional<group::WorkerFailed> failed_;
};

}  // namespace muster
