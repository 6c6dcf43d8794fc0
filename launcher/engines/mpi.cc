// mpirun and mpiexec, and the process managers that speak PMI or PMIx. None of them names the host
// of rank 0.
#include <fmt/format.h>

#include "launcher/engines/engine.h"

namespace muster::detail {
namespace {

// Nodes may have different numbers of processes, so this node's says nothing about the others.
int nodes_of(int processes, int here) {
  return here == processes ? 1 : 0;
}

}  // namespace

std::optional<EngineFacts> detect_mpi(const Environment& environment) {
  EngineFacts facts;
  if (const auto size = engine_number(environment, "OMPI_COMM_WORLD_SIZE")) {
    facts.engine = "Open MPI's mpirun";
    facts.evidence = fmt::format("OMPI_COMM_WORLD_SIZE={}", *size);
    facts.processes = *size;
    facts.here = engine_number(environment, "OMPI_COMM_WORLD_LOCAL_SIZE").value_or(0);
    facts.nodes = engine_number(environment, "OMPI_MCA_orte_num_nodes")
                      .value_or(nodes_of(facts.processes, facts.here));
    facts.one_per_node = "mpirun --map-by ppr:1:node --bind-to none";
    return facts;
  }
  // Hydra, the process manager of MPICH and Intel MPI.
  const auto size = engine_number(environment, "PMI_SIZE");
  const auto here = engine_number(environment, "MPI_LOCALNRANKS");
  if (!size || !here) return std::nullopt;
  facts.engine = "mpiexec";
  facts.evidence = fmt::format("PMI_SIZE={}", *size);
  facts.processes = *size;
  facts.here = *here;
  facts.nodes = nodes_of(*size, *here);
  facts.one_per_node = "mpiexec -ppn 1";
  return facts;
}

std::optional<EngineFacts> detect_process_manager(const Environment& environment) {
  EngineFacts facts;
  if (const auto size = engine_number(environment, "PMI_SIZE")) {
    facts.engine = "a process manager";
    facts.evidence = fmt::format("PMI_SIZE={}", *size);
    facts.processes = *size;
    return facts;
  }
  // PMIx has no variable for the size: rank 2 only shows that there are at least three.
  const auto rank = engine_number(environment, "PMIX_RANK");
  if (!rank || *rank == 0) return std::nullopt;
  facts.engine = "a process manager";
  facts.evidence = fmt::format("PMIX_RANK={}", *rank);
  facts.processes = *rank + 1;
  facts.at_least = true;
  return facts;
}

}  // namespace muster::detail
