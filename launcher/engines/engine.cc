#include "launcher/engines/engine.h"

#include <fmt/format.h>

#include "launcher/engines/node_list.h"
#include "launcher/values/values.h"
#include "rendezvous/base/contract.h"
#include "rendezvous/base/slurm_counts.h"

namespace muster {
namespace {

using Found = std::optional<EngineFacts>;

// The variable's value, or the empty string.
std::string text_of(const Environment& environment, std::string_view name) {
  const auto found = environment.find(std::string(name));
  return found == environment.end() ? std::string() : found->second;
}

// The variable as a whole number of 0 or more; nullopt if it is not one.
std::optional<int> number_of(const Environment& environment, std::string_view name) {
  const Parsed<int> number = parse_int(text_of(environment, name), 0);
  return number ? std::optional(*number) : std::nullopt;
}

// An engine whose variable shows how many processes it started.
EngineFacts counted(std::string_view engine, std::string_view variable, int processes) {
  EngineFacts facts;
  facts.engine = engine;
  facts.evidence = fmt::format("{}={}", variable, processes);
  facts.processes = processes;
  return facts;
}

// A process of this rank shows only that there are as many before it.
EngineFacts ranked(std::string_view engine, std::string_view variable, int rank) {
  EngineFacts facts = counted(engine, variable, rank);
  facts.processes = rank + 1;
  facts.at_least = true;
  return facts;
}

// ---- mpirun and mpiexec, and the process managers that speak PMI or PMIx. None of them names the
// host of rank 0.

// Nodes may have different numbers of processes, so this node's says nothing about the others.
int nodes_of(int processes, int here) {
  return here == processes ? 1 : 0;
}

Found detect_mpi(const Environment& environment) {
  if (const auto size = number_of(environment, "OMPI_COMM_WORLD_SIZE")) {
    EngineFacts facts = counted("Open MPI's mpirun", "OMPI_COMM_WORLD_SIZE", *size);
    facts.here = number_of(environment, "OMPI_COMM_WORLD_LOCAL_SIZE").value_or(0);
    facts.nodes = number_of(environment, "OMPI_MCA_orte_num_nodes")
                      .value_or(nodes_of(facts.processes, facts.here));
    facts.one_per_node = "mpirun --map-by ppr:1:node --bind-to none";
    return facts;
  }
  // Hydra, the process manager of MPICH and Intel MPI.
  const auto size = number_of(environment, "PMI_SIZE");
  const auto here = number_of(environment, "MPI_LOCALNRANKS");
  if (!size || !here) return std::nullopt;
  EngineFacts facts = counted("mpiexec", "PMI_SIZE", *size);
  facts.here = *here;
  facts.nodes = nodes_of(*size, *here);
  facts.one_per_node = "mpiexec -ppn 1";
  return facts;
}

Found detect_process_manager(const Environment& environment) {
  constexpr std::string_view kEngine = "a process manager";
  if (const auto size = number_of(environment, "PMI_SIZE"))
    return counted(kEngine, "PMI_SIZE", *size);
  // PMIx has no variable for the size: rank 2 only shows that there are at least three.
  const auto rank = number_of(environment, "PMIX_RANK");
  return rank && *rank > 0 ? Found(ranked(kEngine, "PMIX_RANK", *rank)) : std::nullopt;
}

// ---- Slurm, by the variables of the step: those of the job (SLURM_NNODES, SLURM_JOB_NODELIST) are
// also in the shell of salloc and may name more nodes than the step has. A process started by srun
// has SLURM_STEP_ID; a batch script has SLURM_PROCID without it; salloc's shell has neither (or is
// a step of one task).

Found detect_slurm(const Environment& environment) {
  if (!number_of(environment, "SLURM_PROCID")) return std::nullopt;
  const bool step = environment.contains("SLURM_STEP_ID");
  EngineFacts facts;
  facts.engine = "Slurm";
  facts.nodes = number_of(environment, step ? "SLURM_STEP_NUM_NODES" : "SLURM_NNODES").value_or(0);
  facts.first_host =
      first_host_of(text_of(environment, step ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST"));
  facts.one_per_node = "srun --ntasks-per-node=1";
  facts.job_id = text_of(environment, "SLURM_JOB_ID");
  facts.evidence = fmt::format("SLURM_NNODES={}", facts.nodes);
  if (!step) return facts;
  facts.processes = number_of(environment, "SLURM_STEP_NUM_TASKS").value_or(1);
  facts.evidence = fmt::format("SLURM_STEP_NUM_TASKS={}", facts.processes);
  facts.here = slurm_tasks_on_node(text_of(environment, "SLURM_STEP_TASKS_PER_NODE"),
                                   number_of(environment, "SLURM_NODEID").value_or(0))
                   .value_or(0);
  return facts;
}

// ---- Pods on Kubernetes whose job says how many there are, or which of them this one is. The
// PET_* variables of the Kubeflow operator are read as flags before this code runs.

// PyTorchJob and similar: RANK and WORLD_SIZE count pods there. The environment of a worker, in
// contrast, also has LOCAL_RANK.
Found detect_pytorch_job(const Environment& environment) {
  const bool in_pod = environment.contains("KUBERNETES_SERVICE_HOST");
  const bool in_worker = environment.contains(std::string(env::kLocalRank));
  const auto size = number_of(environment, env::kWorldSize);
  if (!in_pod || in_worker || !size || !number_of(environment, env::kRank) ||
      text_of(environment, env::kMasterAddr).empty()) {
    return std::nullopt;
  }
  EngineFacts facts = counted("the PyTorchJob", env::kWorldSize, *size);
  facts.nodes = *size;
  facts.here = 1;
  facts.node_rank = "$RANK";
  facts.first_host = "$MASTER_ADDR";  // May be "localhost" on the master itself.
  facts.port = number_of(environment, env::kMasterPort).value_or(0);
  return facts;
}

// An Indexed Job says which pod this is but not how many there are. The pods are called JOB-0,
// JOB-1 and so on, under a service whose name is in no variable.
Found detect_indexed_job(const Environment& environment) {
  const auto index = number_of(environment, "JOB_COMPLETION_INDEX");
  if (!index) return std::nullopt;
  EngineFacts facts = ranked("the Indexed Job", "JOB_COMPLETION_INDEX", *index);
  facts.here = 1;
  facts.node_rank = "$JOB_COMPLETION_INDEX";
  const std::string pod = text_of(environment, "HOSTNAME");
  const std::string suffix = fmt::format("-{}", *index);
  if (pod.size() > suffix.size() && pod.ends_with(suffix)) {
    facts.first_host = fmt::format("{}-0.SERVICE", pod.substr(0, pod.size() - suffix.size()));
  }
  return facts;
}

}  // namespace

std::optional<EngineFacts> detect_engine(const Environment& environment) {
  if (environment.contains(std::string(env::kRunId))) return std::nullopt;
  for (const auto detect :
       {detect_mpi, detect_slurm, detect_process_manager, detect_pytorch_job, detect_indexed_job}) {
    const Found facts = detect(environment);
    if (!facts) continue;
    const bool alone = facts->processes <= 1 && !facts->at_least && facts->nodes <= 1;
    return alone ? std::nullopt : facts;
  }
  return std::nullopt;
}

}  // namespace muster
