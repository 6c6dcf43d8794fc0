// Slurm, by the variables of the step: those of the job (SLURM_NNODES, SLURM_JOB_NODELIST) are also
// in the shell of salloc and may name more nodes than the step has. A process started by srun has
// SLURM_STEP_ID; a batch script has SLURM_PROCID without it; salloc's shell has neither (or is a
// step of one task).
#include <fmt/format.h>

#include "launcher/engines/engine.h"
#include "launcher/engines/node_list.h"
#include "rendezvous/base/slurm_counts.h"

namespace muster::detail {
namespace {

EngineFacts slurm_facts(const Environment& environment, const std::string& nodes_variable,
                        const std::string& list_variable) {
  EngineFacts facts;
  facts.engine = "Slurm";
  facts.nodes = engine_number(environment, nodes_variable).value_or(0);
  facts.first_host = first_host_of(engine_text(environment, list_variable));
  facts.one_per_node = "srun --ntasks-per-node=1";
  facts.job_id = engine_text(environment, "SLURM_JOB_ID");
  return facts;
}

}  // namespace

std::optional<EngineFacts> detect_slurm(const Environment& environment) {
  if (!engine_number(environment, "SLURM_PROCID")) return std::nullopt;
  if (!environment.contains("SLURM_STEP_ID")) {
    EngineFacts batch = slurm_facts(environment, "SLURM_NNODES", "SLURM_JOB_NODELIST");
    batch.evidence = fmt::format("SLURM_NNODES={}", batch.nodes);
    return batch;
  }
  EngineFacts step = slurm_facts(environment, "SLURM_STEP_NUM_NODES", "SLURM_STEP_NODELIST");
  step.processes = engine_number(environment, "SLURM_STEP_NUM_TASKS").value_or(1);
  step.evidence = fmt::format("SLURM_STEP_NUM_TASKS={}", step.processes);
  step.here = slurm_tasks_on_node(engine_text(environment, "SLURM_STEP_TASKS_PER_NODE"),
                                  engine_number(environment, "SLURM_NODEID").value_or(0))
                  .value_or(0);
  return step;
}

}  // namespace muster::detail
