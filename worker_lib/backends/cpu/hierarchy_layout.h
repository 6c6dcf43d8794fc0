// The distribution of a group's members over nodes. Pure. If it is even (equally many members on
// every node), each local rank can have a column of its own.
#pragma once

#include <vector>

#include "worker_lib/members.h"

namespace muster::worker {

struct NodeLayout {
  // Group ranks by node (nodes in the order of their first member), ascending within each.
  std::vector<std::vector<int>> nodes;
  std::vector<int> node_of;   // Index into `nodes`, by group rank.
  std::vector<int> local_of;  // Index into the rank's node, by group rank.

  int count() const { return static_cast<int>(nodes.size()); }
  const std::vector<int>& node(int index) const { return nodes[static_cast<size_t>(index)]; }
  int node_at(int rank) const { return node_of[static_cast<size_t>(rank)]; }
  int local_at(int rank) const { return local_of[static_cast<size_t>(rank)]; }
  // True if all nodes have equally many members, and more than one.
  bool is_even() const;
  // True if each node has consecutive ranks: node k has k * L to (k + 1) * L - 1.
  bool is_contiguous() const;
  // The member with this local index on every node.
  std::vector<int> column(int local) const;
  // The members of one node; `me` is -1 if this rank is on another node.
  Members members_of(const Members& all, int node) const;

  static NodeLayout of(const Members& members);
};

}  // namespace muster::worker
