// How rings cut blocks: into segments, which travel one after another so that the sums of the
// previous step are still in the cache, and segments into chunks, the messages.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "worker_lib/backends/cpu/exchange.h"
#include "worker_lib/backends/cpu/flat_group.h"

namespace muster::worker {

inline constexpr size_t kSegment = 4 * kChunk;

// Returns the number of segments of the largest block.
inline size_t ring_segments(const Blocks& blocks) {
  size_t largest = 0;
  for (int i = 0; i < blocks.n(); ++i)
    largest = std::max(largest, blocks.bytes(i));
  return (largest + kSegment - 1) / kSegment;
}

// Calls visit(segment, step) for all pairs, in the order in which every rank sends and receives.
// Two segments alternate: while one waits for a neighbour's part, the other moves.
// REQUIRES: segments >= 1.
template <typename Visit>
void each_ring_step(size_t segments, int steps, const Visit& visit) {
  const auto count = static_cast<size_t>(steps);
  const size_t lag = std::max<size_t>(1, (count + 1) / 2);
  for (size_t tick = 0; tick < (segments - 1) * lag + count; ++tick) {
    const size_t oldest = tick < count ? 0 : (tick - count) / lag + 1;
    for (size_t segment = std::min(tick / lag, segments - 1) + 1; segment-- > oldest;)
      visit(segment, static_cast<int>(tick - segment * lag));
  }
}

// Calls visit(index in the segment, offset in the buffer, bytes) for each chunk of a segment.
template <typename Visit>
void each_ring_chunk(const Blocks& blocks, int block, size_t segment, const Visit& visit) {
  const size_t end = std::min(blocks.bytes(block), (segment + 1) * kSegment);
  size_t index = 0;
  for (size_t at = segment * kSegment; at < end; at += kChunk, ++index)
    visit(index, blocks.offset(block) + at, std::min(kChunk, end - at));
}

// receive(step, offset in the buffer, bytes) adds the receive of a chunk and returns its ticket.
// `own`: this rank's block; `others`: the buffer that the other blocks are received into.
template <typename Receive>
Outcome<> FlatGroup::pass_around(const Blocks& blocks, int steps, const std::byte* own,
                                 const std::byte* others, const Receive& receive) {
  const int right = peer(around(me_, 1));
  std::vector<std::vector<Ticket>> heard(ring_segments(blocks));
  each_ring_step(heard.size(), steps, [&](size_t segment, int step) {
    std::vector<Ticket>& tickets = heard[segment];  // Receives of the previous step, then this one.
    each_ring_chunk(blocks, around(me_, -step), segment,
                    [&](size_t index, size_t offset, size_t bytes) {
                      if (step == 0)
                        exchange_.send(right, own + (offset - blocks.offset(me_)), bytes);
                      else
                        exchange_.send(right, others + offset, bytes, tickets[index]);
                    });
    tickets.clear();
    each_ring_chunk(blocks, around(me_, -step - 1), segment,
                    [&](size_t, size_t offset, size_t bytes) {
                      tickets.push_back(receive(step, offset, bytes));
                    });
  });
  return exchange_.finish();
}

}  // namespace muster::worker
