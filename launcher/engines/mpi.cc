// mpirun, mpiexec, and process managers that speak PMI or PMIx. None names rank 0's host in a
// variable.
#include <fmt/format.h>

#include "launcher/engines/families.h"
#include "rendezvous/base/task_variables.h"

namespace muster {
namespace {

constexpr std::string_view kFlags =
    "give --nnodes N --node-rank I --master-addr HOST; --nnodes 1 says that one node is meant";

// Facts from a launcher that sets the ranks and sizes of `names`: each process is a task.
std::optional<EngineFacts> ranked(EnvReader& env, const TaskVariables& names, std::string name) {
  const auto size = engine_number(env, names.size, 1);
  const auto rank = engine_number(env, names.rank, 0);
  const auto local_rank = env.number(names.local_rank, 0);
  const auto local_size = env.number(names.local_size, 1);
  if (!size || !rank || !local_rank || !local_size) {
    env.complain(fmt::format("{}, {}, {} and {} are not all set", names.rank, names.size,
                             names.local_rank, names.local_size));
    return std::nullopt;
  }
  EngineFacts facts;
  facts.name = std::move(name);
  facts.nodes = *size;
  facts.node_rank = *rank;
  facts.ask_pmi = size->value > 1;
  facts.engine.one_console = true;
  if (env.has("SLURM_JOB_ID")) take_slurm_job(env, facts);
  facts.task = TaskPlace{.local_rank = *local_rank, .local_size = *local_size, .nodes = 0};
  env.demand_below(names.rank, rank->value, names.size, size->value);
  env.demand_below(names.local_rank, *local_rank, names.local_size, *local_size);
  return facts;
}

// Facts from a process manager that does not set the number of processes on this machine nor, with
// PMIx, the total.
std::optional<EngineFacts> unplaced(EnvReader& env) {
  const auto size = engine_number(env, "PMI_SIZE", 1);
  const auto rank = size ? std::nullopt : engine_number(env, "PMIX_RANK", 0);
  if ((!size || size->value == 1) && (!rank || rank->value == 0)) return std::nullopt;
  EngineFacts facts;
  facts.name = "a process manager";
  facts.nodes = size ? *size : EngineNumber{rank->value + 1, rank->from};
  facts.unserved = fmt::format("it does not say which of them share a machine: {}", kFlags);
  return facts;
}

}  // namespace

std::optional<EngineFacts> find_mpi(EnvReader& env) {
  const TaskVariables* const names = find_task_variables(env);
  if (names != nullptr && names->starter == TaskStarter::slurm) return std::nullopt;
  if (names != nullptr && env.has(names->local_size)) {
    return ranked(env, *names,
                  names->starter == TaskStarter::open_mpi ? "mpirun of Open MPI" : "mpiexec");
  }
  return unplaced(env);
}

}  // namespace muster
