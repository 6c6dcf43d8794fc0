// Which buffers are reduced together: the plan behind GradientBuckets. Pure, and the same on all
// ranks for the same counts and types, wherever each rank's memory lies (except for the pieces).
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
  std::vector<size_t> buffers = {};  // Ascending indices of the list: the order in the memory.
  std::vector<size_t> offsets = {};  // Of each buffer in bytes, as if all were contiguous.
  size_t count = 0;                  // Elements of all.
  // The buffers as pieces of memory without gaps. One piece (or none, if all are empty): the bucket
  // can be reduced where it is.
  std::vector<Buffer> pieces = {};

  size_t bytes() const { return count * size_of(dtype); }
};

struct BucketLimits {
  size_t bytes = 0;
  size_t first_bytes = 0;  // Of the first bucket of each dtype and device.
};

// Walks the list from its end: a buffer joins the open bucket of its dtype and device unless that
// would then exceed the limit; one that exceeds it alone is a bucket of its own. Buckets are
// ordered by when the reverse order completes them. Every buffer is in one.
std::vector<BucketPlan> plan_buckets(std::span<const Buffer> buffers, const BucketLimits& limits);

}  // namespace muster::worker
