// reduce_scatter: a pairwise exchange for small data (one step; each rank adds in rank order), a
// ring for large data. all_to_all: always a pairwise exchange.
#include <algorithm>
#include <array>

#include "worker_lib/backends/cpu/flat_group.h"
#include "worker_lib/backends/cpu/flat_ring.h"
#include "worker_lib/reduction/reduce_kernels.h"

namespace muster::worker {
namespace {

constexpr size_t kPairwiseBytes = 64 * 1024;
// Concurrent partners: enough to hide latency, too few for a thousand ranks to flood one of them.
constexpr int kPartners = 32;

}  // namespace

Outcome<> FlatGroup::reduce_scatter(const std::byte* in, std::byte* out, const Blocks& blocks,
                                    const Reduction& reduction) {
  return blocks.total() <= kPairwiseBytes ? pairwise_reduce_scatter(in, out, blocks, reduction)
                                          : ring_reduce_scatter(in, out, blocks, reduction);
}

Outcome<> FlatGroup::pairwise_reduce_scatter(const std::byte* in, std::byte* out,
                                             const Blocks& blocks, const Reduction& reduction) {
  const size_t bytes = blocks.bytes(me_);
  std::byte* theirs = scratch_.at_least(bytes * static_cast<size_t>(size()));
  std::vector<const std::byte*> inputs(static_cast<size_t>(size()));
  inputs[static_cast<size_t>(me_)] = in + blocks.offset(me_);
  for (int i = 1; i < size(); ++i) {
    const int to = around(me_, i);
    exchange_.send(peer(to), in + blocks.offset(to), blocks.bytes(to));
    const int from = around(me_, -i);
    std::byte* block = theirs + static_cast<size_t>(from) * bytes;
    inputs[static_cast<size_t>(from)] = block;
    exchange_.receive(peer(from), block, bytes);
  }
  const Outcome<> done = exchange_.finish();
  if (!done) return done;
  const size_t count = bytes / reduction.element();
  reduce_buffers(reduction.dtype, reduction.op, out, inputs.data(), inputs.size(), count);
  if (reduction.divisor != 1) divide(reduction.dtype, out, count, reduction.divisor);
  return done;
}

// Runs the first half of the all_reduce ring, shifted so that rank r ends with block r. Each of the
// two segments in progress has two slots for partial sums: one fills while the other is sent.
Outcome<> FlatGroup::ring_reduce_scatter(const std::byte* in, std::byte* out, const Blocks& blocks,
                                         const Reduction& reduction) {
  const int n = size();
  const int right = peer(around(me_, 1));
  const int left = peer(around(me_, -1));
  std::byte* memory = scratch_.at_least(4 * kSegment);
  struct Slot {
    std::byte* sums = nullptr;
    std::array<Ticket, kSegment / kChunk> emptied;  // The sends out of the slot.
    std::array<Ticket, kSegment / kChunk> filled;
  };
  std::array<Slot, 4> slots;
  for (size_t i = 0; i < slots.size(); ++i)
    slots[i].sums = memory + i * kSegment;
  each_ring_step(ring_segments(blocks), n - 1, [&](size_t segment, int step) {
    Slot& before = slots[segment % 2 * 2 + static_cast<size_t>(step + 1) % 2];
    Slot& now = slots[segment % 2 * 2 + static_cast<size_t>(step) % 2];
    each_ring_chunk(
        blocks, around(me_, -step - 1), segment, [&](size_t index, size_t offset, size_t bytes) {
          if (step == 0) {
            exchange_.send(right, in + offset, bytes);
          } else {
            before.emptied[index] =
                exchange_.send(right, before.sums + index * kChunk, bytes, before.filled[index]);
          }
        });
    const bool ends = step == n - 2;
    each_ring_chunk(
        blocks, around(me_, -step - 2), segment, [&](size_t index, size_t offset, size_t bytes) {
          std::byte* to = ends ? out + (offset - blocks.offset(me_)) : now.sums + index * kChunk;
          now.filled[index] = exchange_.receive_combined(left, reduction,
                                                         {.out = to,
                                                          .mine = in + offset,
                                                          .count = bytes / reduction.element(),
                                                          .mine_first = false,
                                                          .is_last = ends},
                                                         ends ? Ticket{} : now.emptied[index]);
        });
  });
  return exchange_.finish();
}

Outcome<> FlatGroup::all_to_all(const std::byte* in, const Blocks& sends, std::byte* out,
                                const Blocks& recvs) {
  exchange_.copy(out + recvs.offset(me_), in + sends.offset(me_), recvs.bytes(me_));
  for (int i = 1; i < size(); ++i) {
    const int to = around(me_, i);
    const int from = around(me_, -i);
    exchange_.send(peer(to), in + sends.offset(to), sends.bytes(to));
    exchange_.receive(peer(from), out + recvs.offset(from), recvs.bytes(from));
    if (i % kPartners != 0) continue;
    const Outcome<> done = exchange_.finish();
    if (!done) return done;
  }
  return exchange_.finish();
}

}  // namespace muster::worker
