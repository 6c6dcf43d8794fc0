// Broadcast and reduce: a binomial tree if latency dominates (log2 n messages in sequence), a chain
// if bandwidth does: ranks forward each chunk while the next arrives, which takes one copy's time.
#include <algorithm>

#include "worker_lib/backends/cpu/flat_group.h"
#include "worker_lib/reduction/reduce_kernels.h"

namespace muster::worker {
namespace {

// A chain of n ranks is filled after n chunks and pays with several times as many. For two ranks it
// equals the tree, except that chunks are added while they are in the cache.
constexpr size_t kChainBytesPerRank = 64 * 1024;
constexpr size_t kChainChunkMin = 16 * 1024;
// Chunks of sums that a chain keeps in flight: more than the kernel's socket buffers hold.
constexpr size_t kChainWindow = 16;

bool pays_as_chain(size_t bytes, int n) {
  return bytes >= kChainBytesPerRank * static_cast<size_t>(n);
}

size_t chain_chunk(size_t bytes, int n) {
  const size_t wanted = bytes / (4 * static_cast<size_t>(n));
  return std::clamp(wanted / kChainChunkMin * kChainChunkMin, kChainChunkMin, kChunk);
}

}  // namespace

Outcome<> FlatGroup::broadcast(std::byte* data, size_t bytes, int root) {
  return pays_as_chain(bytes, size()) ? chain_broadcast(data, bytes, root)
                                      : binomial_broadcast(data, bytes, root);
}

// Counted from the root, rank v receives from v without its lowest bit and forwards to v plus each
// lower power of two, the farthest first since it has the largest subtree.
Outcome<> FlatGroup::binomial_broadcast(std::byte* data, size_t bytes, int root) {
  const int v = around(me_, -root);
  Ticket heard;
  int bit = 1;
  while (bit < size() && (v & bit) == 0)
    bit *= 2;
  if (v != 0) heard = exchange_.receive(peer(around(root, v - bit)), data, bytes);
  for (bit /= 2; bit >= 1; bit /= 2) {
    if (v + bit < size()) exchange_.send(peer(around(root, v + bit)), data, bytes, heard);
  }
  return exchange_.finish();
}

Outcome<> FlatGroup::chain_broadcast(std::byte* data, size_t bytes, int root) {
  const int v = around(me_, -root);
  const size_t chunk = chain_chunk(bytes, size());
  for (size_t offset = 0; offset < bytes; offset += chunk) {
    const size_t part = std::min(chunk, bytes - offset);
    Ticket heard;
    if (v > 0) heard = exchange_.receive(peer(around(me_, -1)), data + offset, part);
    if (v + 1 < size()) exchange_.send(peer(around(me_, 1)), data + offset, part, heard);
  }
  return exchange_.finish();
}

Outcome<> FlatGroup::reduce(const std::byte* in, std::byte* out, size_t count,
                            const Reduction& reduction, int root) {
  return pays_as_chain(count * reduction.element(), size())
             ? chain_reduce(in, out, count, reduction, root)
             : binomial_reduce(in, out, count, reduction, root);
}

// Uses the broadcast's tree in reverse. The fixed order of children makes every run's sum the same.
Outcome<> FlatGroup::binomial_reduce(const std::byte* in, std::byte* out, size_t count,
                                     const Reduction& reduction, int root) {
  const int v = around(me_, -root);
  const size_t bytes = count * reduction.element();
  std::byte* sum = v == 0 ? out : scratch_.at_least(bytes);
  const std::byte* mine = in;
  Ticket heard;
  int bit = 1;
  for (; bit < size() && (v & bit) == 0; bit *= 2) {
    if (v + bit >= size()) continue;
    heard = exchange_.receive_combined(peer(around(root, v + bit)), reduction,
                                       {.out = sum, .mine = mine, .count = count}, heard);
    mine = sum;
  }
  if (v != 0) exchange_.send(peer(around(root, v - bit)), mine, bytes, heard);
  const Outcome<> done = exchange_.finish();
  if (done && v == 0 && reduction.divisor != 1)
    divide(reduction.dtype, out, count, reduction.divisor);
  return done;
}

Outcome<> FlatGroup::chain_reduce(const std::byte* in, std::byte* out, size_t count,
                                  const Reduction& reduction, int root) {
  const int v = around(me_, -root);
  const size_t bytes = count * reduction.element();
  const size_t chunk = chain_chunk(bytes, size());
  std::byte* window = v == 0 ? nullptr : scratch_.at_least(kChainWindow * chunk);
  std::vector<Ticket> passed_on(kChainWindow);
  for (size_t offset = 0; offset < bytes; offset += chunk) {
    const size_t part = std::min(chunk, bytes - offset);
    const size_t slot = offset / chunk % kChainWindow;
    std::byte* sum = v == 0 ? out + offset : window + slot * chunk;
    const std::byte* mine = in + offset;
    Ticket heard;
    if (v + 1 < size()) {
      heard = exchange_.receive_combined(
          peer(around(me_, 1)), reduction,
          {.out = sum, .mine = mine, .count = part / reduction.element(), .is_last = v == 0},
          passed_on[slot]);
      mine = sum;
    }
    if (v > 0) passed_on[slot] = exchange_.send(peer(around(me_, -1)), mine, part, heard);
  }
  return exchange_.finish();
}

}  // namespace muster::worker
