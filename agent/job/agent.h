// The agent: one process per node that turns a LaunchSpec into a running job. It wires the pure
// machine (WorkerGroup) to the shells that do things (WorkerProcesses, Output, DeviceProbe,
// FileTimerServer) on one control loop, and writes down what happened (JobRecord). The loop never
// blocks on a disk, a terminal or a driver.
//
// It is started by the front, of which it is a forked child, and it is told what to do over the
// control channel. If the front goes away, it kills everything below itself and ends.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "agent/launch_spec.h"
#include "agent/process/worker_environment.h"

namespace muster {

// Where the agent stands: what the front hands to its child.
struct AgentContext {
  int control_fd = -1;   // The agent's end of the control channel (control_channel.h).
  int front_pidfd = -1;  // Readable when the front has died.
  bool hangup_ignored =
      false;            // SIGHUP was inherited as ignored (nohup), and stays so for the workers.
  int front_group = 0;  // The front's process group: the one that a shell puts into the foreground.
  unsigned long descriptor_limit = 0;  // The soft limit that workers get back.
};

// What a worker executes, resolved and checked by the launcher.
struct WorkerProgram {
  std::string executable;  // For execve.
  std::string name;        // For people: "train.py", "-m pkg.mod".
  std::function<std::vector<std::string>(int local_rank)> argv;
};

struct AgentInput {
  LaunchSpec spec;
  WorkerProgram program;
  Environment environment;
  std::vector<std::string> warnings;  // Of the command line, to be shown first.
};

// Runs the job to its end and returns the exit code of the whole launcher. REQUIRES: called in the
// forked child, which has one thread, all signals blocked and is nobody's parent.
int run_agent(const AgentInput& input, const AgentContext& context);

}  // namespace muster
