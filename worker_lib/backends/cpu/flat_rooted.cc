// Broadcast and reduce: a binomial tree if latency dominates (log2 n messages in sequence), a chain
// if bandwidth does: ranks forward each chunk while the next arrives, which takes one copy's time.
// gather and scatter: direct, so that every block crosses the wire once; or through a binomial tree
// for many small blocks, so that the root handles log2 n messages instead of n.
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

// Limits for gather and scatter through a tree.
constexpr int kTreeRanksMin = 9;
constexpr size_t kTreeBlockMax = 4096;

bool pays_as_tree(const Blocks& blocks, int me) {
  return blocks.uniform() && blocks.n() >= kTreeRanksMin && blocks.bytes(me) <= kTreeBlockMax;
}

// Returns the size of the subtree of v, including v: the ranks that v's lowest bit spans.
int subtree(int v, int n) {
  int span = 1;
  while (span < n && (v & span) == 0)
    span *= 2;
  return std::min(span, n - v);
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

// ---- gather and scatter

Outcome<> FlatGroup::gather(const std::byte* in, std::byte* out, const Blocks& blocks, int root) {
  if (pays_as_tree(blocks, me_)) return binomial_gather(in, out, blocks.bytes(me_), root);
  if (me_ != root) {
    exchange_.send(peer(root), in, blocks.bytes(me_));
    return exchange_.finish();
  }
  for (int i = 1; i < size(); ++i) {
    const int from = around(me_, i);
    exchange_.receive(peer(from), out + blocks.offset(from), blocks.bytes(from));
  }
  exchange_.copy(out + blocks.offset(me_), in, blocks.bytes(me_));
  return exchange_.finish();
}

Outcome<> FlatGroup::scatter(const std::byte* in, std::byte* out, const Blocks& blocks, int root) {
  if (pays_as_tree(blocks, me_)) return binomial_scatter(in, out, blocks.bytes(me_), root);
  if (me_ != root) {
    exchange_.receive(peer(root), out, blocks.bytes(me_));
    return exchange_.finish();
  }
  for (int i = 1; i < size(); ++i) {
    const int to = around(me_, i);
    exchange_.send(peer(to), in + blocks.offset(to), blocks.bytes(to));
  }
  exchange_.copy(out, in + blocks.offset(me_), blocks.bytes(me_));
  return exchange_.finish();
}

// Rank v, counted from the root, collects the blocks of its subtree; the root restores rank order.
Outcome<> FlatGroup::binomial_gather(const std::byte* in, std::byte* out, size_t bytes, int root) {
  const int v = around(me_, -root);
  const auto held = static_cast<size_t>(subtree(v, size()));
  std::byte* mine = scratch_.at_least(held * bytes);
  copy_block(mine, in, bytes);
  Ticket heard;
  int bit = 1;
  for (; bit < size() && (v & bit) == 0; bit *= 2) {
    if (v + bit >= size()) continue;
    const auto theirs = static_cast<size_t>(subtree(v + bit, size()));
    heard = exchange_.receive(peer(around(root, v + bit)), mine + static_cast<size_t>(bit) * bytes,
                              theirs * bytes, heard);
  }
  if (v != 0) exchange_.send(peer(around(root, v - bit)), mine, held * bytes, heard);
  const Outcome<> done = exchange_.finish();
  if (!done || v != 0) return done;
  for (int i = 0; i < size(); ++i)
    copy_block(out + static_cast<size_t>(around(root, i)) * bytes,
               mine + static_cast<size_t>(i) * bytes, bytes);
  return done;
}

Outcome<> FlatGroup::binomial_scatter(const std::byte* in, std::byte* out, size_t bytes, int root) {
  const int v = around(me_, -root);
  const auto held = static_cast<size_t>(subtree(v, size()));
  std::byte* mine = scratch_.at_least(held * bytes);
  Ticket heard;
  int bit = 1;
  while (bit < size() && (v & bit) == 0)
    bit *= 2;
  if (v == 0) {
    for (int i = 0; i < size(); ++i)
      copy_block(mine + static_cast<size_t>(i) * bytes,
                 in + static_cast<size_t>(around(root, i)) * bytes, bytes);
  } else {
    heard = exchange_.receive(peer(around(root, v - bit)), mine, held * bytes);
  }
  for (bit /= 2; bit >= 1; bit /= 2) {
    if (v + bit >= size()) continue;
    const auto theirs = static_cast<size_t>(subtree(v + bit, size()));
    exchange_.send(peer(around(root, v + bit)), mine + static_cast<size_t>(bit) * bytes,
                   theirs * bytes, heard);
  }
  const Outcome<> done = exchange_.finish();
  if (done) copy_block(out, mine, bytes);
  return done;
}

}  // namespace muster::worker
