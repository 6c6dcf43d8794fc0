// Traces of the MPI or Slurm launch that started this agent: variables, which are kept from the
// workers, and its tasks on nodes, which are numbered here. Pure.
#pragma once

#include <optional>
#include <vector>

#include "agent/process/worker_environment.h"
#include "rendezvous/membership/agent_protocol.h"

namespace muster {

// Removes the variables by which mpirun and mpiexec identify their processes: an MPI worker that
// finds them joins that launch, which does not expect it, and aborts. The user's own settings of
// Open MPI (OMPI_MCA_*) stay; those that mpirun adds do not.
Environment without_launch(Environment environment);

// Places the task with this rank among the nodes, which are numbered in the order of their first
// tasks and told apart by host name. nullopt: `lines` lacks one of the tasks.
struct TaskNode {
  int node = 0;
  int nodes = 1;
  int sharing = 1;  // Tasks on that node.
};
std::optional<TaskNode> place_on_nodes(const std::vector<membership::NodeLine>& lines, int rank,
                                       int tasks);

}  // namespace muster
