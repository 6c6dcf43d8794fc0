// What the batch system, the MPI launcher or the cluster that started this process tells it of the
// job: environment → facts, a file for each family. Together they are what a launch without any
// flag about nodes needs: engine_settings.h makes them the last source of the flags' values.
// Sources: environments of real engines, kept in tests/unit/launcher/engines/engine_environments.h,
// and their manuals. Pure.
//
// The engine that started this process last is the one: mpirun within a Slurm job counts before
// Slurm; facts of two engines are never mixed. In a worker of muster or torchrun the variables
// describe its launcher, not the worker, and are ignored.
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

// A number, and the variable that it is from.
struct EngineNumber {
  int value = 0;
  std::string from;

  std::string shown() const { return from + "=" + std::to_string(value); }
  friend bool operator==(const EngineNumber&, const EngineNumber&) = default;
};

// This process is not started on every node, but on one, or on none, of those that are reserved:
// muster starts itself on all of them, by srun.
struct ReservedNodes {
  EngineNumber nodes;
  int parts = 1;        // Of a heterogeneous job; each has nodes of its own.
  bool on_one = false;  // This process is on the first of them.

  friend bool operator==(const ReservedNodes&, const ReservedNodes&) = default;
};

// What muster starts instead of a job: itself, on these nodes.
struct StepToStart {
  ReservedNodes on;
  bool elastic = false;     // The job may go on with fewer nodes.
  bool token_file = false;  // The user gives the job a token by a file.

  friend bool operator==(const StepToStart&, const StepToStart&) = default;
};

struct EngineFacts {
  std::string name;  // "Slurm 4711.0", "mpirun of Open MPI"

  // The processes that the engine started, all of which are muster and meet as nodes of one job:
  // one on each machine, or, with `task`, several.
  EngineNumber nodes{1, ""};  // 0: unknown; the user has to say it.
  EngineNumber node_rank{0, ""};
  std::optional<TaskPlace> task;
  std::string host;         // Of rank 0; empty: unknown.
  bool ask_pmi = false;     // Rank 0's host and the job's id are asked for by PMI.
  std::optional<int> port;  // Chosen by the engine for this job, in a network of its own.
  std::string job_id;  // No other job has it, nor an earlier start of this one. Empty: unknown.

  std::optional<EngineNumber> workers;  // On this machine.
  EngineSpec engine;                    // What is known whether or not its processes meet.
  bool kills_after_30_s = false;        // Its processes, once it has told them to end.
  std::optional<ReservedNodes> reserved;

  // Why these processes cannot be made one job without flags, and which flags: without a full stop.
  std::string unserved;

  friend bool operator==(const EngineFacts&, const EngineFacts&) = default;
};

// nullopt: none. An error is one line, which names the variable and the remedy.
using EngineOutcome = tl::expected<std::optional<EngineFacts>, std::string>;

// The text of a file; empty: it cannot be read.
using TextOfFile = std::function<std::string(std::string_view path)>;

// `family`: "auto", or the one to look for: "slurm", "mpi" or "kubernetes".
EngineOutcome find_engine(const Environment& environment, const TextOfFile& text_of,
                          std::string_view family);

}  // namespace muster
