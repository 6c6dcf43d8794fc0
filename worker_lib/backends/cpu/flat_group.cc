#include "worker_lib/backends/cpu/flat_group.h"

#include <algorithm>
#include <utility>

#include "rendezvous/base/error.h"
#include "worker_lib/backends/stepped_average.h"

namespace muster::worker {

Slice slice_of(size_t count, int n, int which) {
  const auto parts = static_cast<size_t>(n);
  const auto index = static_cast<size_t>(which);
  const size_t more = std::min(index, count % parts);
  return {index * (count / parts) + more, count / parts + (index < count % parts ? 1 : 0)};
}

Blocks::Blocks(std::span<const size_t> counts, size_t element)
    : n_(static_cast<int>(counts.size())), uniform_(false) {
  size_t offset = 0;
  for (const size_t count : counts) {
    extents_.push_back({offset, count * element});
    offset += count * element;
  }
}

Blocks Blocks::split(size_t count, size_t element, int n) {
  std::vector<size_t> counts;
  counts.reserve(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i)
    counts.push_back(slice_of(count, n, i).count);
  return Blocks(counts, element);
}

Blocks Blocks::of(const Operation& operation, const std::vector<size_t>& counts, int n) {
  const size_t element = size_of(operation.dtype);
  Blocks blocks = counts.empty() ? Blocks(n, operation.count * element) : Blocks(counts, element);
  blocks.uniform_ = !operation.is_v;
  return blocks;
}

Blocks Blocks::pick(std::span<const int> which) const {
  Blocks picked(static_cast<int>(which.size()), 0);
  picked.uniform_ = uniform_;
  for (const int block : which)
    picked.extents_.push_back({offset(block), bytes(block)});
  return picked;
}

size_t Blocks::offset(int block) const {
  const auto index = static_cast<size_t>(block);
  return extents_.empty() ? index * each_ : extents_[index].offset;
}

size_t Blocks::bytes(int block) const {
  return extents_.empty() ? each_ : extents_[static_cast<size_t>(block)].bytes;
}

size_t Blocks::total() const {
  size_t bytes = static_cast<size_t>(n_) * each_;
  for (const Extent& place : extents_)
    bytes += place.bytes;
  return bytes;
}

std::byte* Scratch::at_least(size_t bytes) {
  if (bytes > bytes_) {
    memory_.reset();
    memory_.reset(new std::byte[bytes]);
    bytes_ = bytes;
  }
  return memory_.get();
}

FlatGroup::FlatGroup(Exchange& exchange, std::vector<int> ranks, int me)
    : exchange_(exchange), ranks_(std::move(ranks)), me_(me) {
  CHECK(size() > 1 && me >= 0 && me < size());
}

// In round k every rank sends to the rank 2^k to its right and receives from the rank 2^k to its
// left; after log2(n) rounds it depends, directly or not, on the arrival of all.
Outcome<> FlatGroup::barrier() {
  Ticket heard;
  for (int distance = 1; distance < size(); distance *= 2) {
    exchange_.send(peer(around(me_, distance)), nullptr, 0, heard);
    heard = exchange_.receive(peer(around(me_, -distance)), nullptr, 0, heard);
  }
  return exchange_.finish();
}

Reduction reduction_of(const Operation& operation, int n) {
  const bool averages = operation.reduce == ReduceOp::average;
  return {.dtype = operation.dtype,
          .op = averages ? ReduceOp::sum : operation.reduce,
          .divisor = averages ? n / SteppedAverage::early_divisor(operation.dtype, n) : 1};
}

Outcome<> run_flat(FlatGroup& group, const Operation& op) {
  const int n = group.size();
  const size_t bytes = op.count * size_of(op.dtype);
  switch (op.kind) {
    case OpKind::barrier:
      return group.barrier();
    case OpKind::broadcast:
      return group.broadcast(op.out, bytes, op.root);
    case OpKind::reduce:
      return group.reduce(op.in, op.out, op.count, reduction_of(op, n), op.root);
    case OpKind::all_reduce:
      return group.all_reduce(op.in, op.out, op.count, reduction_of(op, n));
    case OpKind::gather:
      return group.gather(op.in, op.out, Blocks::of(op, op.recv_counts, n), op.root);
    case OpKind::scatter:
      return group.scatter(op.in, op.out, Blocks::of(op, op.send_counts, n), op.root);
    case OpKind::all_gather:
      return group.all_gather(op.in, op.out, Blocks::of(op, op.recv_counts, n));
    case OpKind::reduce_scatter:
      return group.reduce_scatter(op.in, op.out, Blocks::of(op, op.send_counts, n),
                                  reduction_of(op, n));
    case OpKind::all_to_all:
      return group.all_to_all(op.in, Blocks::of(op, op.send_counts, n), op.out,
                              Blocks::of(op, op.recv_counts, n));
    default:
      break;
  }
  CHECK(false && "no collective");
  return Done{};
}

}  // namespace muster::worker
