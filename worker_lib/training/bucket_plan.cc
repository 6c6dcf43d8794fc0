#include "worker_lib/training/bucket_plan.h"

#include <algorithm>
#include <utility>

namespace muster::worker {
namespace {

const std::byte* end_of(const Buffer& buffer) {
  return static_cast<const std::byte*>(buffer.data) + buffer.bytes();
}

// Restores the list's order of the buffers, which joined in reverse, and sets offsets and pieces.
void lay_out(BucketPlan& bucket, std::span<const Buffer> buffers) {
  std::reverse(bucket.buffers.begin(), bucket.buffers.end());
  size_t offset = 0;
  for (const size_t index : bucket.buffers) {
    const Buffer& buffer = buffers[index];
    bucket.offsets.push_back(offset);
    offset += buffer.bytes();
    if (buffer.count == 0) continue;
    if (!bucket.pieces.empty() && end_of(bucket.pieces.back()) == buffer.data) {
      bucket.pieces.back().count += buffer.count;
    } else {
      bucket.pieces.push_back(buffer);
    }
  }
}

}  // namespace

std::vector<BucketPlan> plan_buckets(std::span<const Buffer> buffers, const BucketLimits& limits) {
  std::vector<BucketPlan> closed;
  std::vector<BucketPlan> open;  // At most one per dtype and device.
  for (size_t i = buffers.size(); i-- > 0;) {
    const Buffer& buffer = buffers[i];
    const auto same_kind = [&](const BucketPlan& bucket) {
      return bucket.dtype == buffer.dtype && bucket.device == buffer.device;
    };
    auto bucket = std::find_if(open.begin(), open.end(), same_kind);
    if (bucket == open.end()) bucket = open.insert(bucket, BucketPlan{buffer.dtype, buffer.device});
    const bool is_first = std::none_of(closed.begin(), closed.end(), same_kind);
    const size_t limit = is_first ? limits.first_bytes : limits.bytes;
    if (!bucket->buffers.empty() && bucket->bytes() + buffer.bytes() > limit) {
      closed.push_back(std::exchange(*bucket, BucketPlan{buffer.dtype, buffer.device}));
    }
    bucket->buffers.push_back(i);
    bucket->count += buffer.count;
  }
  std::move(open.begin(), open.end(), std::back_inserter(closed));
  for (BucketPlan& bucket : closed)
    lay_out(bucket, buffers);
  // The bucket whose first buffer has the largest index is complete first.
  std::sort(closed.begin(), closed.end(), [](const BucketPlan& a, const BucketPlan& b) {
    return a.buffers.front() > b.buffers.front();
  });
  return closed;
}

}  // namespace muster::worker
