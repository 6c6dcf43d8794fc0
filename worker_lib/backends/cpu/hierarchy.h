// Collectives of a group with equally many members on each of several nodes: traffic within a node
// goes through shared memory, and every byte crosses between two nodes once. The ranks with the
// same index on their nodes form a column; the columns carry their slices over TCP concurrently.
//
//   all_reduce      reduce_scatter in the node, all_reduce in the columns, all_gather in the node;
//                   small: reduce to the first of the node, all_reduce of the firsts, broadcast
//   reduce          reduce_scatter in the node, reduce in the columns, gather on the root's node
//   broadcast       scatter on the root's node, broadcast in the columns, all_gather in the node
//   all_gather      all_gather in the columns, then in the node     (contiguous ranks only)
//   reduce_scatter  reduce_scatter in the node, then in the columns (contiguous ranks only)
//   barrier         in the node, between the first ranks of the nodes, in the node
//   the others      flat over all links: a hierarchy saves nothing
//
// One thread at a time. After a failure the owner aborts the segment, which frees waiting ranks.
#pragma once

#include "worker_lib/backends/cpu/flat_group.h"
#include "worker_lib/backends/cpu/hierarchy_layout.h"
#include "worker_lib/backends/cpu/shm_group.h"
#include "worker_lib/operation.h"

namespace muster::worker {

class Hierarchy {
 public:
  // `all` performs the operations that a hierarchy does not speed up. All arguments outlive it.
  // REQUIRES: layout.is_even().
  Hierarchy(ShmGroup& shm, Exchange& exchange, FlatGroup& all, const NodeLayout& layout, int me);

  // Compares the operation with those of the other ranks of this node.
  Outcome<> check(const Operation& operation, Deadline deadline);
  // REQUIRES: check() has found no difference; the exchange has begun the operation.
  Outcome<> run(const Operation& operation, Deadline deadline);

 private:
  Outcome<> barrier(const Operation& operation);
  Outcome<> broadcast(const Operation& operation);
  Outcome<> large_broadcast(const Operation& operation);
  Outcome<> reduce(const Operation& operation);
  Outcome<> large_reduce(const Operation& operation);
  Outcome<> all_reduce(const Operation& operation);
  Outcome<> large_all_reduce(const Operation& operation);
  Outcome<> all_gather(const Operation& operation);
  Outcome<> reduce_scatter(const Operation& operation);

  // Performs `step` in shared memory, with dtype and reduction (sum for an average) of `call`.
  Outcome<> in_node(const Operation& call, Operation step);
  // Performs a step with a slice of the elements for each rank of the node, and the root of `call`.
  Outcome<> in_slices(const Operation& call, OpKind kind, const std::byte* in, std::byte* out);
  // Performs a step of the kind of `call` with the blocks that `call` has for the ranks of `node`.
  Outcome<> in_blocks(const Operation& call, int node, const std::byte* in, std::byte* out);
  bool is_first() const { return local_ == 0; }
  int local_size() const { return shm_.local().size(); }

  ShmGroup& shm_;
  FlatGroup& all_;
  const NodeLayout& layout_;
  int me_;
  int node_;
  int local_;
  FlatGroup column_;
  Scratch scratch_;
  Deadline deadline_;
};

}  // namespace muster::worker
