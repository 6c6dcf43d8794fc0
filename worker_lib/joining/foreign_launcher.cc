#include "worker_lib/joining/foreign_launcher.h"

#include <array>
#include <string>

#include <fmt/format.h>
#include <unistd.h>

#include "rendezvous/base/contract.h"
#include "worker_lib/watch/process_life.h"

namespace muster::worker {
namespace {

// Returns an id that all ranks of one launch share, and no other launch on this node.
std::string job_id_of(const EnvReader& env, TaskStarter starter) {
  const auto join = [&](std::string id, const char* next) {
    if (const auto value = env.text(next); value && !value->empty())
      id += (id.empty() ? "" : "-") + value->substr(value->find_last_of('/') + 1);
    return id;
  };
  std::string id;
  if (starter == TaskStarter::slurm) {
    id = join(join("", "SLURM_JOB_ID"), "SLURM_STEP_ID");
  } else if (starter == TaskStarter::open_mpi) {
    id = join("", env.has("PMIX_NAMESPACE") ? "PMIX_NAMESPACE" : "OMPI_MCA_ess_base_jobid");
    if (!id.empty()) id = join(id, "PMIX_SERVER_TMPDIR");
  }
  // All launchers start the ranks of a node as children of one process.
  if (id.empty()) id = fmt::format("parent-{}", life_of_process(getppid()).to_string());
  for (char& c : id) {
    if (c == '/' || c == ' ') c = '_';
  }
  return id;
}

}  // namespace

const TaskVariables* find_launcher(const EnvReader& env) {
  return env.has(env::kRank) || env.has(env::kWorldSize) ? nullptr : find_task_variables(env);
}

std::optional<std::string> unread_launcher(const EnvReader& env) {
  // The variables with the rank and the number of ranks of Flux, PALS, jsrun, aprun, MVAPICH,
  // PMI-1 over a port, and PMIx.
  constexpr std::array<std::array<std::string_view, 2>, 7> kUnread{
      {{"FLUX_TASK_RANK", "FLUX_JOB_SIZE"},
       {"PALS_RANKID", ""},
       {"JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"},
       {"ALPS_APP_PE", ""},
       {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"},
       {"PMI_ID", ""},
       {"PMIX_RANK", ""}}};
  for (const auto& [rank, size] : kUnread) {
    const auto value = env.text(rank);
    const auto total = size.empty() ? std::nullopt : env.text(size);
    if (!value || total == "1") continue;
    return fmt::format(
        "{}={}{} is set, so that this process seems to be one of several, but muster cannot join "
        "them by these variables: set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, start the "
        "program with muster, or say RANK=0 WORLD_SIZE=1",
        rank, *value, total ? fmt::format(" {}={}", size, *total) : "");
  }
  return std::nullopt;
}

Launcher launcher_of(const TaskVariables& names) {
  if (names.starter == TaskStarter::open_mpi) return Launcher::open_mpi;
  return names.starter == TaskStarter::slurm ? Launcher::slurm : Launcher::hydra;
}

std::string_view how_to_set(const TaskVariables& names) {
  if (names.starter == TaskStarter::open_mpi)
    return "mpirun -x MASTER_ADDR=HOST -x MASTER_PORT=29500";
  if (names.starter == TaskStarter::slurm)
    return "export MASTER_ADDR=HOST MASTER_PORT=29500 before srun";
  return "mpiexec -genv MASTER_ADDR HOST -genv MASTER_PORT 29500";
}

bool is_on_one_node(EnvReader& env, const TaskVariables& names, const Identity& self) {
  if (names.starter != TaskStarter::slurm) return self.local_world_size == self.world_size;
  for (const char* name : {"SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"}) {
    if (const auto nodes = env.number(name, 1)) return *nodes == 1;
  }
  return self.node_rank == 0;
}

MeetingPoint meeting_file_of(const EnvReader& env, TaskStarter starter) {
  const char* name = starter == TaskStarter::slurm      ? "slurm"
                     : starter == TaskStarter::open_mpi ? "openmpi"
                                                        : "hydra";
  return MeetAtFile{
      fmt::format("/tmp/muster-ranks-{}/{}-{}", geteuid(), name, job_id_of(env, starter)), true};
}

}  // namespace muster::worker
