#include "worker_lib/training/bucket_plan.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace muster::worker {
namespace {

using Indices = std::vector<size_t>;
using Plans = std::vector<BucketPlan>;

// Buffers of floats with gaps between them.
struct Scattered {
  explicit Scattered(const Indices& counts) {
    for (const size_t count : counts) {
      memory.emplace_back(count + 1);
      buffers.emplace_back(memory.back().data(), count, DType::float32);
    }
  }
  std::vector<std::vector<float>> memory;
  std::vector<Buffer> buffers;
};

std::vector<Indices> members_of(const Plans& plans) {
  std::vector<Indices> members;
  for (const BucketPlan& plan : plans)
    members.push_back(plan.buffers);
  return members;
}

TEST(BucketPlan, HasNoBucketsForNoBuffers) {
  EXPECT_TRUE(plan_buckets({}, {.bytes = 100, .first_bytes = 100}).empty());
}

TEST(BucketPlan, FillsBucketsFromTheEndOfTheList) {
  const Scattered list({10, 10, 10, 10, 10});  // 40 bytes each.
  const Plans plans = plan_buckets(list.buffers, {.bytes = 100, .first_bytes = 100});
  EXPECT_EQ(members_of(plans), (std::vector<Indices>{{3, 4}, {1, 2}, {0}}));
  EXPECT_EQ(plans[0].count, 20u);
  EXPECT_EQ(plans[0].bytes(), 80u);
  EXPECT_EQ(plans[0].offsets, (Indices{0, 40}));
}

TEST(BucketPlan, AllowsABucketOfExactlyTheLimit) {
  const Scattered list({10, 10, 10});
  const Plans plans = plan_buckets(list.buffers, {.bytes = 80, .first_bytes = 80});
  EXPECT_EQ(members_of(plans), (std::vector<Indices>{{1, 2}, {0}}));
}

TEST(BucketPlan, MakesTheFirstBucketSmall) {
  const Scattered list({10, 10, 10, 10, 10});
  const Plans plans = plan_buckets(list.buffers, {.bytes = 1000, .first_bytes = 40});
  EXPECT_EQ(members_of(plans), (std::vector<Indices>{{4}, {0, 1, 2, 3}}));
}

TEST(BucketPlan, GivesABufferBeyondTheLimitABucketOfItsOwn) {
  const Scattered list({1, 1000, 1, 1});
  const Plans plans = plan_buckets(list.buffers, {.bytes = 100, .first_bytes = 100});
  EXPECT_EQ(members_of(plans), (std::vector<Indices>{{2, 3}, {1}, {0}}));
}

TEST(BucketPlan, GivesEveryBufferABucketIfTheLimitIsZero) {
  const Scattered list({1, 2, 3});
  const Plans plans = plan_buckets(list.buffers, {.bytes = 0, .first_bytes = 0});
  EXPECT_EQ(members_of(plans), (std::vector<Indices>{{2}, {1}, {0}}));
}

// Layers of mixed precision alternate: each type fills buckets of its own.
TEST(BucketPlan, KeepsTypesApartWithoutClosingBuckets) {
  Scattered list({10, 10, 10, 10});
  list.buffers[1].dtype = list.buffers[3].dtype = DType::int32;
  const Plans plans = plan_buckets(list.buffers, {.bytes = 1000, .first_bytes = 1000});
  EXPECT_EQ(members_of(plans), (std::vector<Indices>{{1, 3}, {0, 2}}));
  EXPECT_EQ(plans[0].dtype, DType::int32);
  EXPECT_EQ(plans[1].dtype, DType::float32);
}

TEST(BucketPlan, KeepsDevicesApart) {
  Scattered list({10, 10, 10});
  list.buffers[0].device = Device::cuda(0);
  list.buffers[2].device = Device::cuda(1);
  const Plans plans = plan_buckets(list.buffers, {.bytes = 1000, .first_bytes = 1000});
  EXPECT_EQ(members_of(plans), (std::vector<Indices>{{2}, {1}, {0}}));
  EXPECT_EQ(plans[0].device, Device::cuda(1));
}

// A bucket can begin only when its earliest buffer is ready, so that decides the order.
TEST(BucketPlan, OrdersBucketsByWhenTheyAreComplete) {
  Scattered list({10, 10, 10, 10});
  list.buffers[0].dtype = list.buffers[3].dtype = DType::int32;
  const Plans plans = plan_buckets(list.buffers, {.bytes = 1000, .first_bytes = 1000});
  EXPECT_EQ(members_of(plans), (std::vector<Indices>{{1, 2}, {0, 3}}));
}

std::vector<size_t> piece_counts(const BucketPlan& plan) {
  std::vector<size_t> counts;
  for (const Buffer& piece : plan.pieces)
    counts.push_back(piece.count);
  return counts;
}

TEST(BucketPlan, MergesContiguousBuffers) {
  std::vector<float> all(60);
  const auto part = [&](size_t start, size_t count) {
    return Buffer(all.data() + start, count, DType::float32);
  };
  const std::vector<Buffer> flat{part(0, 10), part(10, 20), part(30, 30)};
  const BucketLimits one{.bytes = 1000, .first_bytes = 1000};
  Plans plans = plan_buckets(flat, one);
  ASSERT_EQ(plans.size(), 1u);
  EXPECT_EQ(piece_counts(plans[0]), (Indices{60}));
  EXPECT_EQ(plans[0].pieces[0].data, all.data());

  const std::vector<Buffer> with_gap{part(0, 10), part(11, 19), part(30, 30)};
  EXPECT_EQ(piece_counts(plan_buckets(with_gap, one)[0]), (Indices{10, 49}));
  const std::vector<Buffer> turned{part(30, 30), part(10, 20), part(0, 10)};
  EXPECT_EQ(piece_counts(plan_buckets(turned, one)[0]), (Indices{30, 20, 10}));
}

TEST(BucketPlan, MergesBuffersAcrossEmptyOnes) {
  std::vector<float> all(30);
  const std::vector<Buffer> flat{Buffer(all.data(), 10, DType::float32),
                                 Buffer(nullptr, 0, DType::float32),
                                 Buffer(all.data() + 10, 20, DType::float32)};
  const Plans plans = plan_buckets(flat, {.bytes = 1000, .first_bytes = 1000});
  ASSERT_EQ(plans.size(), 1u);
  EXPECT_EQ(plans[0].buffers, (Indices{0, 1, 2}));
  EXPECT_EQ(plans[0].offsets, (Indices{0, 40, 40}));
  EXPECT_EQ(piece_counts(plans[0]), (Indices{30}));
}

TEST(BucketPlan, HasNoPiecesForEmptyBuffers) {
  const std::vector<Buffer> empty(3, Buffer(nullptr, 0, DType::float32));
  const Plans plans = plan_buckets(empty, {.bytes = 1000, .first_bytes = 1000});
  ASSERT_EQ(plans.size(), 1u);
  EXPECT_TRUE(plans[0].pieces.empty());
  EXPECT_EQ(plans[0].count, 0u);
}

constexpr DType kTypes[] = {DType::float32, DType::float64, DType::uint8};

RC_GTEST_PROP(BucketPlanProperty, PutsEveryBufferIntoOneBucketOfItsKindAndLimit, ()) {
  const auto counts = *rc::gen::container<Indices>(rc::gen::inRange<size_t>(0, 300));
  const BucketLimits limits{.bytes = *rc::gen::inRange<size_t>(0, 2000),
                            .first_bytes = *rc::gen::inRange<size_t>(0, 500)};
  Scattered list(counts);
  for (Buffer& buffer : list.buffers)
    buffer.dtype = kTypes[*rc::gen::inRange<size_t>(0, 3)];
  Indices seen;
  size_t earliest = counts.size();
  for (const BucketPlan& plan : plan_buckets(list.buffers, limits)) {
    RC_ASSERT(!plan.buffers.empty());
    RC_ASSERT(std::is_sorted(plan.buffers.begin(), plan.buffers.end()));
    RC_ASSERT(plan.buffers.front() < earliest);
    earliest = plan.buffers.front();
    size_t offset = 0;
    for (size_t i = 0; i < plan.buffers.size(); ++i) {
      RC_ASSERT(list.buffers[plan.buffers[i]].dtype == plan.dtype);
      RC_ASSERT(plan.offsets[i] == offset);
      offset += list.buffers[plan.buffers[i]].bytes();
    }
    RC_ASSERT(offset == plan.bytes());
    RC_ASSERT(plan.buffers.size() == 1 ||
              plan.bytes() <= std::max(limits.bytes, limits.first_bytes));
    seen.insert(seen.end(), plan.buffers.begin(), plan.buffers.end());
  }
  std::sort(seen.begin(), seen.end());
  Indices all(counts.size());
  std::iota(all.begin(), all.end(), size_t{0});
  RC_ASSERT(seen == all);
}

RC_GTEST_PROP(BucketPlanProperty, DoesNotDependOnAddresses, ()) {
  const auto counts = *rc::gen::container<Indices>(rc::gen::inRange<size_t>(0, 100));
  const Scattered one(counts);
  const Scattered other(counts);
  const BucketLimits limits{.bytes = 600, .first_bytes = 100};
  RC_ASSERT(members_of(plan_buckets(one.buffers, limits)) ==
            members_of(plan_buckets(other.buffers, limits)));
}

}  // namespace
}  // namespace muster::worker
