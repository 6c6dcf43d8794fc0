// all_reduce: recursive doubling for small data (log2 n messages of all of it), a ring for large
// data (each rank sends 2 (n-1)/n of it, the minimum possible).
#include "worker_lib/backends/cpu/flat_group.h"
#include "worker_lib/backends/cpu/flat_ring.h"
#include "worker_lib/reduction/reduce_kernels.h"

namespace muster::worker {
namespace {

// Up to this size a ring's 2 (n-1) steps cost more than the bytes that it saves.
constexpr size_t kDoublingBytes = 32 * 1024;

}  // namespace

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

}  // namespace muster::worker
