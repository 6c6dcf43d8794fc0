// The plan behind GradientBuckets: which buffers are reduced together. Pure. Equal on all ranks for
// equal counts and types, except for the pieces, which depend on each rank's addresses.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "muster/types.h"

namespace muster::worker {

// Buffers of one dtype and device.
struct BucketPlan {
  DType dtype = DType::uint8;
  Device device = {};
  std::vector<size_t> buffers = {};  // Indices into the list, ascending: the order in memory.
  std::vector<size_t> offsets = {};  // Offset of each buffer in bytes, as if all were contiguous.
  size_t count = 0;                  // Elements of all buffers.
  // The buffers merged into contiguous pieces of memory. A bucket of one piece (or none, if all
  // buffers are empty) can be reduced in place.
  std::vector<Buffer> pieces = {};

  size_t bytes() const { return count * size_of(dtype); }
};

struct BucketLimits {
  size_t bytes = 0;
  size_t first_bytes = 0;  // Limit of the first bucket of each dtype and device.
};

// Walks the list from its end: a buffer joins the open bucket of its dtype and device unless the
// bucket would then exceed the limit; a buffer that alone exceeds it gets its own bucket. Buckets
// are ordered by their completion if buffers become ready in reverse. Every buffer is in one.
std::vector<BucketPlan> plan_buckets(std::span<const Buffer> buffers, const BucketLimits& limits);

}  // namespace muster::worker
