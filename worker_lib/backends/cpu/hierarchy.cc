#include "worker_lib/backends/cpu/hierarchy.h"

#include <cstring>
#include <numeric>

namespace muster::worker {
namespace {

// Below it one rank of each node communicates: fewer messages than slices would take.
constexpr size_t kSliceBytes = 16 * 1024;

size_t byte_count_of(const Operation& operation) {
  return operation.count * size_of(operation.dtype);
}

std::vector<int> all_ranks(const NodeLayout& layout) {
  std::vector<int> ranks(layout.node_of.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// `count` elements in `n` counts that differ by one at most; empty if all are equal.
std::vector<size_t> slice_counts(size_t count, int n) {
  const auto parts = static_cast<size_t>(n);
  if (count % parts == 0) return {};
  std::vector<size_t> counts(parts, count / parts);
  for (size_t i = 0; i < count % parts; ++i)
    ++counts[i];
  return counts;
}

// Where a rank's slice of `count` elements begins, and its size.
struct Slice {
  size_t first;
  size_t count;
};

Slice slice_of(size_t count, int n, int which) {
  const auto parts = static_cast<size_t>(n);
  const auto index = static_cast<size_t>(which);
  const size_t more = std::min(index, count % parts);
  return {index * (count / parts) + more, count / parts + (index < count % parts ? 1 : 0)};
}

}  // namespace

Hierarchy::Hierarchy(ShmGroup& shm, Exchange& exchange, const NodeLayout& layout, int me)
    : shm_(shm),
      exchange_(exchange),
      layout_(layout),
      me_(me),
      node_(layout.node_at(me)),
      local_(layout.local_at(me)),
      column_(exchange, layout.column(local_), node_),
      all_(exchange, all_ranks(layout), me) {}

Outcome<> Hierarchy::run(const Operation& operation, Deadline deadline) {
  deadline_ = deadline;
  exchange_.begin(operation, deadline);
  // Roots are group ranks: shifted beyond those of the node, so that none is taken for a local one.
  Operation asked = operation;
  asked.root += local_size();
  const Outcome<> same = shm_.check(asked, deadline_);
  if (!same) return same;
  switch (operation.kind) {
    case OpKind::barrier:
      return barrier(operation);
    case OpKind::broadcast:
      return broadcast(operation);
    case OpKind::reduce:
      return reduce(operation);
    case OpKind::all_reduce:
      return all_reduce(operation);
    case OpKind::all_gather:
      return layout_.is_contiguous() ? all_gather(operation) : run_flat(all_, operation);
    case OpKind::reduce_scatter:
      return layout_.is_contiguous() ? reduce_scatter(operation) : run_flat(all_, operation);
    default:
      return run_flat(all_, operation);
  }
}

Outcome<> Hierarchy::in_node(const Operation& call, Operation step) {
  step.dtype = call.dtype;
  step.reduce = call.reduce == ReduceOp::average ? ReduceOp::sum : call.reduce;
  step.is_v = !step.send_counts.empty() || !step.recv_counts.empty();
  return shm_.run(step, deadline_);
}

// A rank that has passed check() knows that all ranks of its node have arrived.
Outcome<> Hierarchy::barrier(const Operation& operation) {
  if (is_first()) {
    const Outcome<> done = column_.barrier();
    if (!done) return done;
  }
  return in_node(operation, {.kind = OpKind::barrier});
}

Outcome<> Hierarchy::broadcast(const Operation& operation) {
  const size_t bytes = byte_count_of(operation);
  if (bytes > kSliceBytes) return large_broadcast(operation);
  const int root_local = layout_.local_at(operation.root);
  if (local_ == root_local) {
    const Outcome<> done = column_.broadcast(operation.out, bytes, layout_.node_at(operation.root));
    if (!done) return done;
  }
  return in_node(operation, {.kind = OpKind::broadcast,
                             .in = operation.out,
                             .out = operation.out,
                             .count = operation.count,
                             .root = root_local});
}

Outcome<> Hierarchy::large_broadcast(const Operation& operation) {
  const int root_node = layout_.node_at(operation.root);
  const int n = local_size();
  const std::vector<size_t> counts = slice_counts(operation.count, n);
  const auto [first, count] = slice_of(operation.count, n, local_);
  const size_t element = size_of(operation.dtype);
  std::byte* slice = operation.out + first * element;
  if (node_ == root_node) {
    const Outcome<> done = in_node(operation, {.kind = OpKind::scatter,
                                               .in = operation.out,
                                               .out = slice,
                                               .count = count,
                                               .root = layout_.local_at(operation.root),
                                               .send_counts = counts});
    if (!done) return done;
  }
  const Outcome<> done = column_.broadcast(slice, count * element, root_node);
  if (!done) return done;
  return in_node(operation, {.kind = OpKind::all_gather,
                             .in = slice,
                             .out = operation.out,
                             .count = count,
                             .recv_counts = counts});
}

Outcome<> Hierarchy::reduce(const Operation& operation) {
  if (byte_count_of(operation) > kSliceBytes) return large_reduce(operation);
  const int root_local = layout_.local_at(operation.root);
  std::byte* sum =
      me_ == operation.root ? operation.out : scratch_.at_least(byte_count_of(operation));
  const Outcome<> done = in_node(operation, {.kind = OpKind::reduce,
                                             .in = operation.in,
                                             .out = sum,
                                             .count = operation.count,
                                             .root = root_local});
  if (!done || local_ != root_local) return done;
  return column_.reduce(sum, sum, operation.count,
                        reduction_of(operation, static_cast<int>(layout_.node_of.size())),
                        layout_.node_at(operation.root));
}

Outcome<> Hierarchy::large_reduce(const Operation& operation) {
  const int root_node = layout_.node_at(operation.root);
  const int n = local_size();
  const std::vector<size_t> counts = slice_counts(operation.count, n);
  const auto [first, count] = slice_of(operation.count, n, local_);
  const size_t element = size_of(operation.dtype);
  std::byte* slice =
      me_ == operation.root ? operation.out + first * element : scratch_.at_least(count * element);
  Outcome<> done = in_node(operation, {.kind = OpKind::reduce_scatter,
                                       .in = operation.in,
                                       .out = slice,
                                       .count = count,
                                       .send_counts = counts});
  if (!done) return done;
  done =
      column_.reduce(slice, slice, count,
                     reduction_of(operation, static_cast<int>(layout_.node_of.size())), root_node);
  if (!done || node_ != root_node) return done;
  return in_node(operation, {.kind = OpKind::gather,
                             .in = slice,
                             .out = operation.out,
                             .count = count,
                             .root = layout_.local_at(operation.root),
                             .recv_counts = counts});
}

Outcome<> Hierarchy::all_reduce(const Operation& operation) {
  if (byte_count_of(operation) > kSliceBytes) return large_all_reduce(operation);
  Outcome<> done = in_node(
      operation,
      {.kind = OpKind::reduce, .in = operation.in, .out = operation.out, .count = operation.count});
  if (done && is_first())
    done = column_.all_reduce(operation.out, operation.out, operation.count,
                              reduction_of(operation, static_cast<int>(layout_.node_of.size())));
  if (!done) return done;
  return in_node(operation, {.kind = OpKind::broadcast,
                             .in = operation.out,
                             .out = operation.out,
                             .count = operation.count});
}

Outcome<> Hierarchy::large_all_reduce(const Operation& operation) {
  const int n = local_size();
  const std::vector<size_t> counts = slice_counts(operation.count, n);
  const auto [first, count] = slice_of(operation.count, n, local_);
  std::byte* slice = operation.out + first * size_of(operation.dtype);
  Outcome<> done = in_node(operation, {.kind = OpKind::reduce_scatter,
                                       .in = operation.in,
                                       .out = slice,
                                       .count = count,
                                       .send_counts = counts});
  if (done)
    done = column_.all_reduce(slice, slice, count,
                              reduction_of(operation, static_cast<int>(layout_.node_of.size())));
  if (!done) return done;
  return in_node(operation, {.kind = OpKind::all_gather,
                             .in = slice,
                             .out = operation.out,
                             .count = count,
                             .recv_counts = counts});
}

// The column puts one block of every node into its place. Then, node by node, those blocks are
// gathered within this node, each rank of which holds one of them.
Outcome<> Hierarchy::all_gather(const Operation& operation) {
  const auto n = static_cast<int>(layout_.node_of.size());
  const Blocks blocks = Blocks::of(operation, operation.recv_counts, n);
  const std::vector<int> column = layout_.column(local_);
  Outcome<> done = column_.all_gather(operation.in, operation.out, blocks.pick(column));
  for (int node = 0; done && node < layout_.count(); ++node) {
    const std::vector<int>& ranks = layout_.node(node);
    const int mine = ranks[static_cast<size_t>(local_)];
    Operation step{.kind = OpKind::all_gather,
                   .in = operation.out + blocks.offset(mine),
                   .out = operation.out + blocks.offset(ranks.front()),
                   .count = operation.count};
    if (!operation.recv_counts.empty()) {
      const auto first = operation.recv_counts.begin() + ranks.front();
      step.recv_counts.assign(first, first + local_size());
      step.count = step.recv_counts[static_cast<size_t>(local_)];
    }
    done = in_node(operation, std::move(step));
  }
  return done;
}

Outcome<> Hierarchy::reduce_scatter(const Operation& operation) {
  const auto n = static_cast<int>(layout_.node_of.size());
  const size_t element = size_of(operation.dtype);
  const Blocks blocks = Blocks::of(operation, operation.send_counts, n);
  const Blocks picked = blocks.pick(layout_.column(local_));
  std::vector<size_t> sums_counts;
  for (int node = 0; node < layout_.count(); ++node)
    sums_counts.push_back(picked.bytes(node) / element);
  const Blocks sums_at(sums_counts, element);
  std::byte* sums = scratch_.at_least(picked.total());
  for (int node = 0; node < layout_.count(); ++node) {
    const int first_rank = layout_.node(node).front();
    Operation step{.kind = OpKind::reduce_scatter,
                   .in = operation.in + blocks.offset(first_rank),
                   .out = sums + sums_at.offset(node),
                   .count = operation.count};
    if (!operation.send_counts.empty()) {
      const auto first = operation.send_counts.begin() + first_rank;
      step.send_counts.assign(first, first + local_size());
      step.count = step.send_counts[static_cast<size_t>(local_)];
    }
    const Outcome<> done = in_node(operation, std::move(step));
    if (!done) return done;
  }
  return column_.reduce_scatter(sums, operation.out, sums_at, reduction_of(operation, n));
}

}  // namespace muster::worker
