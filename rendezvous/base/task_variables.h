// The variables by which srun, mpirun and mpiexec number the processes that they start: the
// launcher or, without one, the ranks. Pure: the environment is a parameter.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "rendezvous/base/env_reader.h"

namespace muster {

enum class TaskStarter : uint8_t {
  open_mpi,  // mpirun of Open MPI and its descendants.
  slurm,     // srun.
  hydra,     // mpiexec of MPICH and Intel MPI.
};

// The names; empty if the starter does not set that variable.
struct TaskVariables {
  TaskStarter starter;
  std::string_view rank;
  std::string_view size;
  std::string_view local_rank;
  std::string_view local_size;
  std::string_view node_rank;
};

// Returns those of the starter nearest to this process (mpirun starts its daemons by srun, and srun
// also sets MPICH's variables); null if there is none.
const TaskVariables* find_task_variables(const EnvReader& env);

// Returns the variable with the number of tasks: in Slurm that of the step, not of the job.
std::string_view size_variable(const EnvReader& env, const TaskVariables& names);

// True if srun started this process as a task; false in sbatch's script and salloc's shell.
bool is_slurm_task(const EnvReader& env);

// Returns the count for this node in a list such as "2(x3),1": 2 for nodes 0 to 2, 1 for node 3.
// nullopt if the list has no such node or is malformed up to it.
std::optional<int> slurm_tasks_on_node(std::string_view counts, int node);

// The same in the list of the step, else of the job.
std::optional<int> slurm_local_size(const EnvReader& env, int node);

}  // namespace muster
