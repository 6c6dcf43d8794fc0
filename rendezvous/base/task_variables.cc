#include "rendezvous/base/task_variables.h"

#include <array>

#include "rendezvous/base/text.h"

namespace muster {
namespace {

constexpr std::array<TaskVariables, 3> kStarters{{
    {TaskStarter::open_mpi, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", ""},
    {TaskStarter::slurm, "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "", "SLURM_NODEID"},
    {TaskStarter::hydra, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", ""},
}};

// The lowest number of a step without tasks: SLURM_INTERACTIVE_STEP, the shell of salloc; above are
// the script, the external step and the pending one (slurm.h).
constexpr int64_t kSlurmOtherSteps = 0xfffffffa;

// mpiexec starts its daemons by srun, whose variables the ranks inherit.
bool is_nearest(const EnvReader& env, const TaskVariables& names) {
  if (names.starter == TaskStarter::slurm) return is_slurm_task(env) && !env.has("MPI_LOCALRANKID");
  return true;
}

}  // namespace

bool is_slurm_task(const EnvReader& env) {
  if (!env.has("SLURM_PROCID")) return false;
  for (const char* name : {"SLURM_STEP_ID", "SLURM_STEPID"}) {
    if (const auto step = env.text(name))
      return whole_number<int64_t>(*step).value_or(0) < kSlurmOtherSteps;
  }
  return env.text("ENVIRONMENT") != "BATCH";
}

const TaskVariables* find_task_variables(const EnvReader& env) {
  for (const TaskVariables& names : kStarters) {
    if (env.has(names.rank) && is_nearest(env, names)) return &names;
  }
  return nullptr;
}

std::string_view size_variable(const EnvReader& env, const TaskVariables& names) {
  constexpr std::string_view kStepTasks = "SLURM_STEP_NUM_TASKS";
  return names.starter == TaskStarter::slurm && env.has(kStepTasks) ? kStepTasks : names.size;
}

std::optional<int> slurm_tasks_on_node(std::string_view counts, int node) {
  for (std::string_view item : split(counts, ',')) {
    int nodes = 1;
    if (const size_t times = item.find("(x"); times != std::string_view::npos) {
      if (!item.ends_with(')')) return std::nullopt;
      nodes = whole_number<int>(item.substr(times + 2, item.size() - times - 3)).value_or(0);
      item = item.substr(0, times);
    }
    const std::optional<int> tasks = whole_number<int>(item);
    if (tasks.value_or(-1) < 0 || nodes < 1 || node < 0) return std::nullopt;
    if (node < nodes) return tasks;
    node -= nodes;
  }
  return std::nullopt;
}

std::optional<int> slurm_local_size(const EnvReader& env, int node) {
  for (const char* name : {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}) {
    if (const auto list = env.text(name)) return slurm_tasks_on_node(*list, node);
  }
  return std::nullopt;
}

}  // namespace muster
