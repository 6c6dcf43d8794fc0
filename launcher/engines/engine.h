// What the batch system, the MPI launcher or the cluster that started this process tells it of the
// others that it started: environment → facts, one function for each family. So far the facts serve
// one purpose, to tell N processes that would become N jobs of one node each (lone_world.h); they
// are what a launch without any flags for nodes needs. Sources: the environments that the real
// engines gave, kept in tests/unit/launcher/engines/engine_environments.h, and their manuals. Pure.
//
// Whoever started this process last is believed: mpirun within a Slurm job stands before Slurm. In
// a worker of muster or torchrun the variables are those of its launcher's surroundings, and mean
// nothing.
#pragma once

#include <optional>
#include <string>

#include "agent/process/worker_environment.h"

namespace muster {

struct EngineFacts {
  std::string engine;     // "Slurm", "Open MPI's mpirun"
  std::string evidence;   // "SLURM_STEP_NUM_TASKS=4": what shows how many there are.
  int processes = 1;      // That it started, this one included.
  bool at_least = false;  // There may be more: nothing says how many.
  int nodes = 0;          // That they run on, or that are reserved; 0: not known.
  int here = 0;           // Of the processes, on this node; 0: not known.

  std::string one_per_node;  // What starts one process on each node; empty: not known.
  std::string node_rank;     // The variable that holds it: "$RANK". Empty: there is none.
  std::string first_host;    // Of the first node; empty: not known.
  int port = 0;              // Chosen by the engine; 0: none.
  std::string job_id;        // Empty: not known.

  friend bool operator==(const EngineFacts&, const EngineFacts&) = default;
};

// Nothing where no engine is seen, or where it started this process alone on one node.
std::optional<EngineFacts> detect_engine(const Environment& environment);

namespace detail {

std::optional<EngineFacts> detect_mpi(const Environment& environment);
std::optional<EngineFacts> detect_slurm(const Environment& environment);
std::optional<EngineFacts> detect_process_manager(const Environment& environment);
std::optional<EngineFacts> detect_kubernetes(const Environment& environment);

// The variable's value, or nothing.
std::string engine_text(const Environment& environment, const std::string& name);
// The variable as a whole number of 0 or more; nothing where it is none.
std::optional<int> engine_number(const Environment& environment, const std::string& name);

}  // namespace detail

}  // namespace muster
