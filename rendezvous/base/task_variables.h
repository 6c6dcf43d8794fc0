// The variables by which srun, mpirun and mpiexec tell each process that they start which one it
// is: the launcher reads them where they start it, the worker library where they start the ranks
// themselves. Pure: the environment is a parameter.
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

// Names. An empty one: the starter does not set it.
struct TaskVariables {
  TaskStarter starter;
  std::string_view rank;
  std::string_view size;
  std::string_view local_rank;
  std::string_view local_size;
  std::string_view node_rank;
};

// Those of the starter that is nearest to this process: mpirun starts its daemons by srun, and srun
// sets MPICH's variables as well. Null: there is none.
const TaskVariables* find_task_variables(const EnvReader& env);

// The variable with the number of tasks: Slurm's is that of the step, not of the job around it.
std::string_view size_variable(const EnvReader& env, const TaskVariables& names);

// Whether srun started this process as a task. Not so sbatch's script and salloc's shell.
bool is_slurm_task(const EnvReader& env);

// The count for the node with this number in "2(x3),1": 2 for nodes 0 to 2, 1 for node 3. nullopt
// if the list has no such node or is malformed up to it.
std::optional<int> slurm_tasks_on_node(std::string_view counts, int node);

// By the list of the step, else of the job.
std::optional<int> slurm_local_size(const EnvReader& env, int node);

}  // namespace muster
