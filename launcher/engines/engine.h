// Derives facts about the job from the environment that an engine (batch system, MPI launcher or
// cluster) gives its processes; one file for each family. The facts suffice for a launch without
// flags about nodes: engine_settings.h makes them the last source of the flags' values. Sources:
// environments of real engines (tests/unit/launcher/engines/engine_environments.h) and their
// manuals. Pure.
//
// The engine that started this process last counts: mpirun before the Slurm job in which it runs;
// facts of two engines are never mixed. In a worker of muster or torchrun the variables describe
// the worker's launcher, and are ignored.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include <tl/expected.hpp>

#include "agent/launch_spec.h"
#include "agent/process/worker_environment.h"
#include "rendezvous/base/env_reader.h"

namespace muster {

// A number and the variable that it comes from.
struct EngineNumber {
  int value = 0;
  std::string from;

  std::string shown() const { return from + "=" + std::to_string(value); }
  friend bool operator==(const EngineNumber&, const EngineNumber&) = default;
};

// Reserved nodes of which one or none runs this process: muster starts itself on all, by srun.
struct ReservedNodes {
  EngineNumber nodes;
  int parts = 1;        // Parts of a heterogeneous job; each has its own nodes.
  bool on_one = false;  // True if this process is on the first of them.

  friend bool operator==(const ReservedNodes&, const ReservedNodes&) = default;
};

// A step that starts muster on these nodes, in place of a job here.
struct StepToStart {
  ReservedNodes on;
  bool elastic = false;     // True if the job may go on with fewer nodes.
  bool token_file = false;  // True if the user gives the job a token file.

  friend bool operator==(const StepToStart&, const StepToStart&) = default;
};

struct EngineFacts {
  std::string name;  // "Slurm 4711.0", "mpirun of Open MPI"

  // The processes that the engine started, which all run muster and meet as nodes of one job: one
  // on each machine, or, with `task`, several.
  EngineNumber nodes{1, ""};  // 0: unknown; the user must give it.
  EngineNumber node_rank{0, ""};
  std::optional<TaskPlace> task;
  std::string host;         // Rank 0's host; empty: unknown.
  bool ask_pmi = false;     // True if PMI must be asked for rank 0's host and the job's id.
  std::optional<int> port;  // Chosen by the engine for this job, which has its own network.
  std::string job_id;       // Unique to this start of this job; empty: unknown.

  std::optional<EngineNumber> workers;  // Number of workers on this machine.
  EngineSpec engine;                    // Facts that hold whether or not the processes meet.
  bool kills_after_30_s = false;        // True if SIGKILL follows its stop signal after 30 s.
  std::optional<ReservedNodes> reserved;

  // Why these processes cannot be one job without flags, and which flags help; no full stop.
  std::string unserved;

  friend bool operator==(const EngineFacts&, const EngineFacts&) = default;
};

// nullopt: no engine. An error is one line that names the variable and the remedy.
using EngineOutcome = tl::expected<std::optional<EngineFacts>, std::string>;

// Returns the text of a file; empty if it cannot be read.
using TextOfFile = std::function<std::string(std::string_view path)>;

// `family`: "auto", "none", "slurm", "mpi" or "kubernetes".
EngineOutcome find_engine(const Environment& environment, const TextOfFile& text_of,
                          std::string_view family);

}  // namespace muster
