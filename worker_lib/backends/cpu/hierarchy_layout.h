// How the members of a group are distributed over nodes. Pure. Even: every node has equally many
// members, so each local rank can have a column of its own.
#pragma once

#include <vector>

#include "worker_lib/members.h"

namespace muster::worker {

struct NodeLayout {
  // Group ranks by node (nodes in the order of their first member), ascending within each.
  std::vector<std::vector<int>> nodes;
  std::vector<int> node_of;   // By group rank: an index into `nodes`.
  std::vector<int> local_of;  // By group rank: an index into its node.

  int count() const { return static_cast<int>(nodes.size()); }
  const std::vector<int>& node(int index) const { return nodes[static_cast<size_t>(index)]; }
  int node_at(int rank) const { return node_of[static_cast<size_t>(rank)]; }
  int local_at(int rank) const { return local_of[static_cast<size_t>(rank)]; }
  // Whether all nodes have equally many members, and more than one.
  bool is_even() const;
  // Whether each node has consecutive ranks: node k has k * L to (k + 1) * L - 1.
  bool is_contiguous() const;
  // The member with this local index on every node.
  std::vector<int> column(int local) const;
  // The members of one node; `me` is -1 where this rank is on another.
  Members members_of(const Members& all, int node) const;

  static NodeLayout of(const Members& members);
};

}  // namespace muster::worker
