// Builds what each worker is started with: program, variables, streams, CPUs and devices.
// Control loop only.
#pragma once

#include "agent/hang/rings.h"
#include "agent/job/agent.h"
#include "agent/job/control_part.h"
#include "agent/job/meeting_part.h"
#include "agent/job/node_setup.h"
#include "agent/job/torch_timers.h"
#include "agent/output/output.h"
#include "agent/process/worker_environment.h"
#include "agent/process/worker_processes.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/unique_fd.h"

namespace muster {

class WorkerStart {
 public:
  // `setup` may be filled in later, before the first request.
  WorkerStart(const AgentInput& input, const AgentContext& context, const NodeSetup& setup,
              MeetingPart& meeting, ControlPart& control, TorchTimers& timers, Rings& rings);

  // Fails with ExitCode::environment if there is no /dev/null, from which workers read.
  Result<void> open_null();
  // Builds the request, with the worker's ends of `streams`, which are borrowed, and with a ring,
  // whose descriptor must be closed after the start.
  SpawnRequest request(int local_rank, const RoundView& round, const WorkerStreams& streams);
  // The variables that do not change with each attempt, as its files, its ring and its hook do.
  Environment environment(int local_rank, const RoundView& round) const;

 private:
  WorkerVariables variables(int local_rank) const;
  bool stdin_belongs_to_others() const;

  const LaunchSpec& spec_;
  const WorkerProgram& program_;
  const AgentContext& context_;
  const Environment inherited_;  // What workers inherit.
  const NodeSetup& setup_;
  MeetingPart& meeting_;
  ControlPart& control_;
  TorchTimers& timers_;
  Rings& rings_;
  UniqueFd null_fd_;
};

}  // namespace muster
