// What the launch that started this agent leaves behind: variables, of which the workers are told
// none, and tasks on nodes, which are numbered here. Pure.
#pragma once

#include <optional>
#include <vector>

#include "agent/process/worker_environment.h"
#include "rendezvous/membership/agent_protocol.h"

namespace muster {

// Without the variables by which mpirun and mpiexec tell a process which of theirs it is: an MPI
// program that finds them joins that launch, where it is not expected, and aborts. The user's own
// settings of Open MPI (OMPI_MCA_*) stay, but for those that mpirun adds.
Environment without_launch(Environment environment);

// The node of the task with this rank in the order of the nodes' first tasks, and their number, by
// the host names of all tasks. nullopt: not all of them are in `lines`.
struct TaskNode {
  int node = 0;
  int nodes = 1;
  int sharing = 1;  // Tasks on that node.
};
std::optional<TaskNode> place_on_nodes(const std::vector<membership::NodeLine>& lines, int rank,
                                       int tasks);

}  // namespace muster
