// all_gather. Large: a ring; small: direct between few ranks, else Bruck (log2 n messages).
#include "worker_lib/backends/cpu/flat_group.h"
#include "worker_lib/backends/cpu/flat_ring.h"

namespace muster::worker {
namespace {

constexpr int kDirectRanksMax = 8;
constexpr size_t kLittleBytes = 64 * 1024;  // All blocks together.

}  // namespace

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

}  // namespace muster::worker
