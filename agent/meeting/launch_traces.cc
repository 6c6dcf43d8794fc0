#include "agent/meeting/launch_traces.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

#include "rendezvous/base/text.h"

namespace muster {
namespace {

bool is_of_launch(std::string_view name) {
  return starts_with_any(name, {"OMPI_COMM_WORLD_", "OMPI_MCA_ess", "OMPI_MCA_orte_",
                                "OMPI_MCA_pmix", "OMPI_MCA_rmaps", "ORTE_", "PRTE_", "PMIX_",
                                "PMI_", "HYDI_", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"}) ||
         is_one_of(name,
                   {"OMPI_MCA_initial_wdir", "OMPI_MCA_shmem_RUNTIME_QUERY_hint",
                    "OMPI_UNIVERSE_SIZE", "OMPI_FILE_LOCATION", "OMPI_FIRST_RANKS",
                    "OMPI_NUM_APP_CTX", "OMPI_APP_CTX_NUM_PROCS", "OMPI_ARGV", "OMPI_COMMAND"});
}

}  // namespace

Environment without_launch(Environment environment) {
  std::erase_if(environment, [](const auto& variable) { return is_of_launch(variable.first); });
  return environment;
}

std::optional<TaskNode> place_on_nodes(const std::vector<membership::NodeLine>& lines, int rank,
                                       int tasks) {
  std::map<int, std::string> hosts;  // Keyed by rank.
  for (const membership::NodeLine& line : lines) {
    if (line.node_rank >= 0) hosts.emplace(line.node_rank, line.host);
  }
  if (static_cast<int>(hosts.size()) != tasks || !hosts.contains(rank)) return std::nullopt;
  std::vector<std::string> nodes;
  for (const auto& [one, host] : hosts) {
    if (std::ranges::count(nodes, host) == 0) nodes.push_back(host);
  }
  const auto own = std::ranges::find(nodes, hosts.at(rank));
  const auto sharing = std::ranges::count_if(
      hosts, [&hosts, rank](const auto& one) { return one.second == hosts.at(rank); });
  return TaskNode{static_cast<int>(own - nodes.begin()), static_cast<int>(nodes.size()),
                  static_cast<int>(sharing)};
}

}  // namespace muster
