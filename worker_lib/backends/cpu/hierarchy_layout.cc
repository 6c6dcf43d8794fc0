#include "worker_lib/backends/cpu/hierarchy_layout.h"

#include <algorithm>
#include <map>

namespace muster::worker {

NodeLayout NodeLayout::of(const Members& members) {
  NodeLayout layout;
  std::map<std::string, int> index_of;
  for (int rank = 0; rank < members.size(); ++rank) {
    const auto [found, is_new] =
        index_of.try_emplace(members[rank].node, static_cast<int>(layout.nodes.size()));
    if (is_new) layout.nodes.emplace_back();
    std::vector<int>& node = layout.nodes[static_cast<size_t>(found->second)];
    layout.node_of.push_back(found->second);
    layout.local_of.push_back(static_cast<int>(node.size()));
    node.push_back(rank);
  }
  return layout;
}

bool NodeLayout::is_even() const {
  return nodes.front().size() > 1 && std::all_of(nodes.begin(), nodes.end(), [&](const auto& node) {
           return node.size() == nodes.front().size();
         });
}

bool NodeLayout::is_contiguous() const {
  return std::is_sorted(node_of.begin(), node_of.end());
}

std::vector<int> NodeLayout::column(int local) const {
  std::vector<int> ranks;
  for (const std::vector<int>& one : nodes)
    ranks.push_back(one[static_cast<size_t>(local)]);
  return ranks;
}

Members NodeLayout::members_of(const Members& all, int node_index) const {
  Members local;
  for (const int rank : node(node_index)) {
    if (rank == all.me) local.me = local.size();
    local.peers.push_back(all[rank]);
  }
  return local;
}

}  // namespace muster::worker
