// What the batch system, the MPI launcher or the cluster that started this process tells it about
// the other processes that it started: environment → facts, one function for each family. So far
// the facts serve one purpose, to detect N processes that would become N jobs of one node each
// (lone_world.h); they are what a launch without any node flags needs. Sources: environments of
// real engines, kept in tests/unit/launcher/engines/engine_environments.h, and their manuals. Pure.
//
// The engine that started this process last takes precedence: mpirun within a Slurm job is checked
// before Slurm. In a worker of muster or torchrun the variables describe its launcher, not the
// worker, and are ignored.
#pragma once

#include <optional>
#include <string>

#include "agent/process/worker_environment.h"

namespace muster {

struct EngineFacts {
  std::string engine;     // "Slurm", "Open MPI's mpirun"
  std::string evidence;   // "SLURM_STEP_NUM_TASKS=4": what shows their number.
  int processes = 1;      // The number that it started, this one included.
  bool at_least = false;  // There may be more: their number is not known.
  int nodes = 0;          // Nodes that they run on, or that are reserved; 0: unknown.
  int here = 0;           // The number of processes on this node; 0: unknown.

  std::string one_per_node;  // What starts one process on each node; empty: unknown.
  std::string node_rank;     // The variable with the node's rank: "$RANK". Empty: none.
  std::string first_host;    // Of the first node; empty: unknown.
  int port = 0;              // Chosen by the engine; 0: none.
  std::string job_id;        // Empty: unknown.

  friend bool operator==(const EngineFacts&, const EngineFacts&) = default;
};

// nullopt if no engine is found, or if it started this process alone on one node.
std::optional<EngineFacts> detect_engine(const Environment& environment);

}  // namespace muster
