#include "worker_lib/joining/identity.h"

#include <algorithm>

namespace muster::worker {

void complete_place(Identity& self, const Members& world) {
  int local_rank = 0;
  int local_size = 0;
  std::vector<std::string> nodes;  // Ordered by their lowest ranks.
  const std::string& mine = world[self.rank].node;
  for (int rank = 0; rank < world.size(); ++rank) {
    const std::string& node = world[rank].node;
    if (std::ranges::find(nodes, node) == nodes.end()) nodes.push_back(node);
    if (node != mine) continue;
    ++local_size;
    if (rank < self.rank) ++local_rank;
  }
  if (!self.place_told.local_rank) self.local_rank = local_rank;
  if (!self.place_told.local_world_size) self.local_world_size = local_size;
  if (!self.place_told.node_rank)
    self.node_rank = static_cast<int>(std::ranges::find(nodes, mine) - nodes.begin());
}

}  // namespace muster::worker
