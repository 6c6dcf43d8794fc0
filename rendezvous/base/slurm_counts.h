// Slurm's short form for the numbers of tasks on its nodes, as in SLURM_STEP_TASKS_PER_NODE: the
// launcher reads it when srun started several of them, the worker library when srun started the
// ranks themselves. Pure.
#pragma once

#include <optional>
#include <string_view>

#include "rendezvous/base/text.h"

namespace muster {

// The count for the node with this number in "2(x3),1": 2 for nodes 0 to 2, 1 for node 3. nullopt
// if the list has no such node or is malformed up to it.
inline std::optional<int> slurm_tasks_on_node(std::string_view counts, int node) {
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

}  // namespace muster
