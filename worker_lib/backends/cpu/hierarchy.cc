#include "worker_lib/backends/cpu/hierarchy.h"

#include <utility>

namespace muster::worker {
namespace {

// Up to this size one rank of each node communicates: slices would take more messages.
constexpr size_t kSliceBytes = 16 * 1024;

size_t byte_count_of(const Operation& operation) {
  return operation.count * size_of(operation.dtype);
}

// Returns the member with the counts by rank of an operation of this kind.
std::vector<size_t> Operation::* counts_of(OpKind kind) {
  return kind == OpKind::scatter || kind == OpKind::reduce_scatter ? &Operation::send_counts
                                                                   : &Operation::recv_counts;
}

}  // namespace

Hierarchy::Hierarchy(ShmGroup& shm, Exchange& exchange, FlatGroup& all, const NodeLayout& layout,
                     int me)
    : shm_(shm),
      all_(all),
      layout_(layout),
      me_(me),
      node_(layout.node_at(me)),
      local_(layout.local_at(me)),
      column_(exchange, layout.column(local_), node_) {}

Outcome<> Hierarchy::check(const Operation& operation, Deadline deadline) {
  // Roots are group ranks; the shift keeps check() from describing one as a rank of this node.
  Operation asked = operation;
  asked.root += local_size();
  return shm_.check(asked, deadline);
}

Outcome<> Hierarchy::run(const Operation& operation, Deadline deadline) {
  deadline_ = deadline;
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

Outcome<> Hierarchy::in_slices(const Operation& call, OpKind kind, const std::byte* in,
                               std::byte* out) {
  Operation step{.kind = kind,
                 .in = in,
                 .out = out,
                 .count = slice_of(call.count, local_size(), local_).count,
                 .root = layout_.local_at(call.root)};
  const auto ranks = static_cast<size_t>(local_size());
  if (call.count % ranks != 0) {
    std::vector<size_t>& counts = step.*counts_of(kind);
    counts.reserve(ranks);
    for (int rank = 0; rank < local_size(); ++rank)
      counts.push_back(slice_of(call.count, local_size(), rank).count);
  }
  return in_node(call, std::move(step));
}

Outcome<> Hierarchy::in_blocks(const Operation& call, int node, const std::byte* in,
                               std::byte* out) {
  Operation step{.kind = call.kind, .in = in, .out = out, .count = call.count};
  const auto counts = counts_of(call.kind);
  if (!(call.*counts).empty()) {
    const auto first = (call.*counts).begin() + layout_.node(node).front();
    (step.*counts).assign(first, first + local_size());
    step.count = (step.*counts)[static_cast<size_t>(local_)];
  }
  return in_node(call, std::move(step));
}

// After check() a rank knows that all ranks of its node have arrived.
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
  const auto [first, count] = slice_of(operation.count, local_size(), local_);
  const size_t element = size_of(operation.dtype);
  std::byte* slice = operation.out + first * element;
  Outcome<> done = Done{};
  if (node_ == root_node) done = in_slices(operation, OpKind::scatter, operation.out, slice);
  if (done) done = column_.broadcast(slice, count * element, root_node);
  if (!done) return done;
  return in_slices(operation, OpKind::all_gather, slice, operation.out);
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
  return column_.reduce(sum, sum, operation.count, reduction_of(operation, all_.size()),
                        layout_.node_at(operation.root));
}

Outcome<> Hierarchy::large_reduce(const Operation& operation) {
  const int root_node = layout_.node_at(operation.root);
  const auto [first, count] = slice_of(operation.count, local_size(), local_);
  const size_t element = size_of(operation.dtype);
  std::byte* slice =
      me_ == operation.root ? operation.out + first * element : scratch_.at_least(count * element);
  Outcome<> done = in_slices(operation, OpKind::reduce_scatter, operation.in, slice);
  if (done)
    done = column_.reduce(slice, slice, count, reduction_of(operation, all_.size()), root_node);
  if (!done || node_ != root_node) return done;
  return in_slices(operation, OpKind::gather, slice, operation.out);
}

Outcome<> Hierarchy::all_reduce(const Operation& operation) {
  if (byte_count_of(operation) > kSliceBytes) return large_all_reduce(operation);
  Outcome<> done = in_node(
      operation,
      {.kind = OpKind::reduce, .in = operation.in, .out = operation.out, .count = operation.count});
  if (done && is_first())
    done = column_.all_reduce(operation.out, operation.out, operation.count,
                              reduction_of(operation, all_.size()));
  if (!done) return done;
  return in_node(operation, {.kind = OpKind::broadcast,
                             .in = operation.out,
                             .out = operation.out,
                             .count = operation.count});
}

Outcome<> Hierarchy::large_all_reduce(const Operation& operation) {
  const auto [first, count] = slice_of(operation.count, local_size(), local_);
  std::byte* slice = operation.out + first * size_of(operation.dtype);
  Outcome<> done = in_slices(operation, OpKind::reduce_scatter, operation.in, slice);
  if (done) done = column_.all_reduce(slice, slice, count, reduction_of(operation, all_.size()));
  if (!done) return done;
  return in_slices(operation, OpKind::all_gather, slice, operation.out);
}

// The column puts one block of every node into place. Then, for each node in turn, the ranks of
// this node, which hold one block of it each, gather the blocks in shared memory.
Outcome<> Hierarchy::all_gather(const Operation& operation) {
  const Blocks blocks = Blocks::of(operation, operation.recv_counts, all_.size());
  const std::vector<int> column = layout_.column(local_);
  Outcome<> done = column_.all_gather(operation.in, operation.out, blocks.pick(column));
  for (int node = 0; done && node < layout_.count(); ++node)
    done =
        in_blocks(operation, node, operation.out + blocks.offset(column[static_cast<size_t>(node)]),
                  operation.out + blocks.offset(layout_.node(node).front()));
  return done;
}

Outcome<> Hierarchy::reduce_scatter(const Operation& operation) {
  const size_t element = size_of(operation.dtype);
  const Blocks blocks = Blocks::of(operation, operation.send_counts, all_.size());
  const Blocks picked = blocks.pick(layout_.column(local_));
  std::vector<size_t> sums_counts;
  for (int node = 0; node < layout_.count(); ++node)
    sums_counts.push_back(picked.bytes(node) / element);
  const Blocks sums_at(sums_counts, element);
  std::byte* sums = scratch_.at_least(picked.total());
  Outcome<> done = Done{};
  for (int node = 0; done && node < layout_.count(); ++node)
    done = in_blocks(operation, node, operation.in + blocks.offset(layout_.node(node).front()),
                     sums + sums_at.offset(node));
  if (!done) return done;
  return column_.reduce_scatter(sums, operation.out, sums_at, reduction_of(operation, all_.size()));
}

}  // namespace muster::worker
