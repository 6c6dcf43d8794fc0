#include "worker_lib/joining/foreign_launcher.h"

#include <array>
#include <string>

#include <fmt/format.h>
#include <unistd.h>

#include "rendezvous/base/contract.h"
#include "rendezvous/base/slurm_counts.h"
#include "worker_lib/watch/process_life.h"

namespace muster::worker {
namespace {

constexpr std::array<LauncherNames, 3> kLaunchers{{
    {Launcher::open_mpi, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "",
     "mpirun -x MASTER_ADDR=HOST -x MASTER_PORT=29500"},
    {Launcher::slurm, "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "", "SLURM_NODEID",
     "export MASTER_ADDR=HOST MASTER_PORT=29500 before srun"},
    {Launcher::hydra, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "",
     "mpiexec -genv MASTER_ADDR HOST -genv MASTER_PORT 29500"},
}};

// sbatch runs its script with the variables of task 0 of all tasks. What srun starts has a step.
bool is_batch_script(const EnvReader& env) {
  return env.text("ENVIRONMENT") == "BATCH" && !env.has("SLURM_STEP_ID") &&
         !env.has("SLURM_STEPID");
}

// An id that all ranks of one launch have in common, and no other launch on this node has.
std::string job_id_of(const EnvReader& env, Launcher launcher) {
  const auto join = [&](std::string id, const char* next) {
    if (const auto value = env.text(next); value && !value->empty())
      id += (id.empty() ? "" : "-") + value->substr(value->find_last_of('/') + 1);
    return id;
  };
  std::string id;
  if (launcher == Launcher::slurm) {
    id = join(join("", "SLURM_JOB_ID"), "SLURM_STEP_ID");
  } else if (launcher == Launcher::open_mpi) {
    id = join("", env.has("PMIX_NAMESPACE") ? "PMIX_NAMESPACE" : "OMPI_MCA_ess_base_jobid");
    if (!id.empty()) id = join(id, "PMIX_SERVER_TMPDIR");
  }
  // With any launcher, the ranks of a node are children of one process.
  if (id.empty()) id = fmt::format("parent-{}", life_of_process(getppid()).to_string());
  for (char& c : id) {
    if (c == '/' || c == ' ') c = '_';
  }
  return id;
}

}  // namespace

const LauncherNames* find_launcher(const EnvReader& env) {
  if (env.has(env::kRank) || env.has(env::kWorldSize)) return nullptr;
  for (const LauncherNames& names : kLaunchers) {
    if (!env.has(names.rank)) continue;
    if (names.launcher == Launcher::slurm && is_batch_script(env)) continue;
    return &names;
  }
  return nullptr;
}

std::optional<int> slurm_local_size(const EnvReader& env, int node) {
  for (const char* name : {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}) {
    if (const auto list = env.text(name)) return slurm_tasks_on_node(*list, node);
  }
  return std::nullopt;
}

bool is_on_one_node(EnvReader& env, const LauncherNames& names, const Identity& self) {
  if (names.launcher != Launcher::slurm) return self.local_world_size == self.world_size;
  for (const char* name : {"SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"}) {
    if (const auto nodes = env.number(name, 1)) return *nodes == 1;
  }
  return self.node_rank == 0;
}

MeetingPoint meeting_file_of(const EnvReader& env, Launcher launcher) {
  const char* name = launcher == Launcher::slurm      ? "slurm"
                     : launcher == Launcher::open_mpi ? "openmpi"
                                                      : "hydra";
  return MeetAtFile{
      fmt::format("/tmp/muster-ranks-{}/{}-{}", geteuid(), name, job_id_of(env, launcher)), true};
}

}  // namespace muster::worker
