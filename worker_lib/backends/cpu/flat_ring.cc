// The operations that have a ring for large data, and all_to_all.
#include "worker_lib/backends/cpu/flat_ring.h"

#include <array>

#include "worker_lib/reduction/reduce_kernels.h"

namespace muster::worker {
namespace {

constexpr int kDirectRanksMax = 8;
constexpr size_t kLittleBytes = 64 * 1024;  // All blocks of an all_gather together.
// Up to this size an all_reduce ring's 2 (n-1) steps cost more than the bytes that it saves.
constexpr size_t kDoublingBytes = 32 * 1024;
constexpr size_t kPairwiseBytes = 64 * 1024;
// Concurrent partners: enough to hide latency, too few for a thousand ranks to flood one of them.
constexpr int kPartners = 32;

}  // namespace

// all_gather. Large: a ring; small: direct between few ranks, else Bruck (log2 n messages).
Outcome<> FlatGroup::all_gather(const std::byte* in, std::byte* out, const Blocks& blocks) {
  if (size() <= kDirectRanksMax && blocks.total() <= kLittleBytes)
    return direct_all_gather(in, out, blocks);
  if (blocks.uniform() && blocks.total() <= kLittleBytes)
    return bruck_all_gather(in, out, blocks.bytes(0));
  return ring_all_gather(in, out, blocks);
}

Outcome<> FlatGroup::direct_all_gather(const std::byte* in, std::byte* out, const Blocks& blocks) {
  for (int i = 1; i < size(); ++i) {
    exchange_.send(peer(around(me_, i)), in, blocks.bytes(me_));
    const int from = around(me_, -i);
    exchange_.receive(peer(from), out + blocks.offset(from), blocks.bytes(from));
  }
  exchange_.copy(out + blocks.offset(me_), in, blocks.bytes(me_));
  return exchange_.finish();
}

// In each round a rank sends blocks that it holds to the left; after round k it holds its own and
// those of the 2^(k+1) - 1 ranks to its right. Finally it puts the blocks into rank order.
Outcome<> FlatGroup::bruck_all_gather(const std::byte* in, std::byte* out, size_t bytes) {
  const auto n = static_cast<size_t>(size());
  std::byte* held = scratch_.at_least(n * bytes);
  copy_block(held, in, bytes);
  Ticket heard;
  for (int distance = 1; distance < size(); distance *= 2) {
    const auto have = static_cast<size_t>(distance);
    const size_t part = std::min(have, n - have) * bytes;
    exchange_.send(peer(around(me_, -distance)), held, part, heard);
    heard = exchange_.receive(peer(around(me_, distance)), held + have * bytes, part, heard);
  }
  const Outcome<> done = exchange_.finish();
  if (!done) return done;
  for (int i = 0; i < size(); ++i)
    copy_block(out + static_cast<size_t>(around(me_, i)) * bytes,
               held + static_cast<size_t>(i) * bytes, bytes);
  return done;
}

Outcome<> FlatGroup::ring_all_gather(const std::byte* in, std::byte* out, const Blocks& blocks) {
  if (blocks.total() == 0) return barrier();
  const int left = peer(around(me_, -1));
  exchange_.copy(out + blocks.offset(me_), in, blocks.bytes(me_));
  return pass_around(blocks, size() - 1, in, out, [&](int, size_t offset, size_t bytes) {
    return exchange_.receive(left, out + offset, bytes);
  });
}

// all_reduce: recursive doubling for small data (log2 n messages of all of it), a ring for large
// data (each rank sends 2 (n-1)/n of it, the minimum possible).
Outcome<> FlatGroup::all_reduce(const std::byte* in, std::byte* out, size_t count,
                                const Reduction& reduction) {
  const size_t bytes = count * reduction.element();
  if (bytes > kDoublingBytes) return ring_all_reduce(in, out, count, reduction);
  copy_block(out, in, bytes);
  return doubling_all_reduce(out, count, reduction);
}

// Let p be the largest power of two up to n: each of the last n - p ranks first sends its data to
// one of the others and receives the result at the end. Both partners of a round compute lower rank
// op higher rank, so all ranks get the same bits.
Outcome<> FlatGroup::doubling_all_reduce(std::byte* data, size_t count,
                                         const Reduction& reduction) {
  const size_t bytes = count * reduction.element();
  int power = 1;
  while (power * 2 <= size())
    power *= 2;
  const int spare = size() - power;
  if (me_ >= power) {
    exchange_.send(peer(me_ - power), data, bytes);
    exchange_.receive(peer(me_ - power), data, bytes);
    return exchange_.finish();
  }
  if (me_ < spare) {
    exchange_.receive_combined(peer(me_ + power), reduction,
                               {.out = data, .mine = data, .count = count});
    const Outcome<> done = exchange_.finish();
    if (!done) return done;
  }
  std::byte* theirs = scratch_.at_least(bytes);
  for (int bit = 1; bit < power; bit *= 2) {
    const int partner = me_ ^ bit;
    exchange_.send(peer(partner), data, bytes);
    exchange_.receive(peer(partner), theirs, bytes);
    const Outcome<> done = exchange_.finish();
    if (!done) return done;
    combine(reduction, data, me_ < partner ? data : theirs, me_ < partner ? theirs : data, count);
  }
  if (reduction.divisor != 1) divide(reduction.dtype, data, count, reduction.divisor);
  if (me_ < spare) exchange_.send(peer(me_ + power), data, bytes);
  return exchange_.finish();
}

// In step s a rank sends block me - s to the right and adds its own block me - s - 1 to the one
// that arrives from the left; after n - 1 steps it holds the sum of block me + 1, and in n - 1 more
// steps the sums go around. Blocks are cut into segments that stay in the cache, and those into
// chunks; a chunk is sent as soon as its sum is complete, whatever the step.
Outcome<> FlatGroup::ring_all_reduce(const std::byte* in, std::byte* out, size_t count,
                                     const Reduction& reduction) {
  const int last_sum = size() - 2;
  const Blocks blocks = Blocks::split(count, reduction.element(), size());
  const int left = peer(around(me_, -1));
  return pass_around(blocks, 2 * (size() - 1), in + blocks.offset(me_), out,
                     [&](int step, size_t offset, size_t bytes) {
                       if (step > last_sum) return exchange_.receive(left, out + offset, bytes);
                       return exchange_.receive_combined(left, reduction,
                                                         {.out = out + offset,
                                                          .mine = in + offset,
                                                          .count = bytes / reduction.element(),
                                                          .mine_first = false,
                                                          .is_last = step == last_sum});
                     });
}

// reduce_scatter: a pairwise exchange for small data (one step; each rank adds in rank order), a
// ring for large data.
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

// all_to_all: always a pairwise exchange.
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
