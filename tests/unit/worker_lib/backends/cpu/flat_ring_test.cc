#include "worker_lib/backends/cpu/flat_ring.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace muster::worker {
namespace {

using Steps = std::vector<std::pair<size_t, int>>;  // Segment, step.

Steps ring_steps(size_t segments, int steps) {
  Steps visited;
  each_ring_step(segments, steps,
                 [&](size_t segment, int step) { visited.emplace_back(segment, step); });
  return visited;
}

TEST(FlatRing, TheLargestBlockDecidesTheNumberOfSegments) {
  EXPECT_EQ(ring_segments(Blocks(3, 0)), 0U);
  EXPECT_EQ(ring_segments(Blocks(3, 1)), 1U);
  EXPECT_EQ(ring_segments(Blocks(3, kSegment)), 1U);
  EXPECT_EQ(ring_segments(Blocks(3, kSegment + 1)), 2U);
  const std::vector<size_t> counts{0, 3 * kSegment, 5};
  EXPECT_EQ(ring_segments(Blocks(counts, 1)), 3U);
  EXPECT_EQ(ring_segments(Blocks(counts, 8)), 24U);
}

TEST(FlatRing, TwoSegmentsAlternate) {
  EXPECT_EQ(ring_steps(1, 3), (Steps{{0, 0}, {0, 1}, {0, 2}}));
  EXPECT_EQ(ring_steps(3, 1), (Steps{{0, 0}, {1, 0}, {2, 0}}));
  EXPECT_EQ(ring_steps(2, 4),
            (Steps{{0, 0}, {0, 1}, {1, 0}, {0, 2}, {1, 1}, {0, 3}, {1, 2}, {1, 3}}));
  EXPECT_EQ(ring_steps(3, 0), Steps{}) << "alone in the ring";
}

RC_GTEST_PROP(FlatRing, EverySegmentMakesAllStepsInOrderWhileAtMostTwoMove, ()) {
  const auto segments = *rc::gen::inRange<size_t>(1, 20);
  const auto steps = *rc::gen::inRange(1, 20);
  std::map<size_t, int> next;  // Next steps of the segments in progress.
  size_t begun = 0;
  for (const auto& [segment, step] : ring_steps(segments, steps)) {
    if (step == 0) {
      RC_ASSERT(segment == begun++);
      next[segment] = 0;
    }
    RC_ASSERT(next.contains(segment) && next[segment]++ == step);
    RC_ASSERT(next.size() <= 2U);
    std::erase_if(next, [&](const auto& one) { return one.second == steps; });
  }
  RC_ASSERT(begun == segments && next.empty());
}

RC_GTEST_PROP(FlatRing, TheChunksOfAllSegmentsFormTheBlock, ()) {
  const auto near_a_limit =
      rc::gen::map(rc::gen::pair(rc::gen::inRange<size_t>(0, 6), rc::gen::inRange<size_t>(0, 3)),
                   [](const auto& one) { return one.first * (kSegment / 2) + one.second; });
  const auto sizes = *rc::gen::nonEmpty(rc::gen::container<std::vector<size_t>>(near_a_limit));
  const Blocks blocks(sizes, 1);
  for (int block = 0; block < blocks.n(); ++block) {
    size_t at = blocks.offset(block);
    for (size_t segment = 0; segment < ring_segments(blocks); ++segment) {
      size_t chunks = 0;
      each_ring_chunk(blocks, block, segment, [&](size_t index, size_t offset, size_t bytes) {
        RC_ASSERT(index == chunks++ && index < kSegment / kChunk);
        RC_ASSERT(offset == at && bytes > 0 && bytes <= kChunk);
        at += bytes;
      });
      RC_ASSERT(at - blocks.offset(block) ==
                std::min(blocks.bytes(block), (segment + 1) * kSegment));
    }
  }
}

}  // namespace
}  // namespace muster::worker
