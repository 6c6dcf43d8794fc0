// gather and scatter: direct, so that every block crosses the wire once; or through a binomial tree
// for many small blocks, so that the root handles log2 n messages instead of n.
#include <algorithm>

#include "worker_lib/backends/cpu/flat_group.h"

namespace muster::worker {
namespace {

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
