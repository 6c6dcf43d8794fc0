// The agent: one process per node that turns a LaunchSpec into a running job. One control loop
// connects the pure machine (WorkerGroup) to the shells that perform its effects (WorkerProcesses,
// Output, HelperProcess, FileTimerServer), and JobRecorder records what happened. The loop never
// blocks on a disk, a terminal or a driver. The agent is a forked child of the front, which sends
// it commands over the control channel; if the front dies, it kills all its descendants and exits.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "agent/launch_spec.h"
#include "agent/process/worker_environment.h"

namespace muster {

// What the front passes to its child.
struct AgentContext {
  int control_fd = -1;  // The agent's end of the control channel (control_channel.h).
  pid_t front = -1;
  // SIGHUP was inherited as ignored (nohup) and stays ignored in the workers.
  bool hangup_ignored = false;
  int front_group = 0;  // The front's process group, which a shell puts into the foreground.
  unsigned long descriptor_limit = 0;  // The soft limit to restore in the workers.
};

// What a worker executes, resolved and checked by the launcher.
struct WorkerProgram {
  std::string executable;  // Path for execve.
  std::string name;        // Shown to people: "train.py", "-m pkg.mod".
  std::function<std::vector<std::string>(int local_rank)> argv;
};

struct AgentInput {
  LaunchSpec spec;
  WorkerProgram program;
  Environment environment;
  std::vector<std::string> warnings;  // Remarks on the command line; shown first.
};

// Runs the job to its end, and ends the process with the exit code of the whole launcher. REQUIRES:
// called in the forked child, with one thread, all signals blocked and no child processes.
int run_agent(const AgentInput& input, const AgentContext& context);

}  // namespace muster
