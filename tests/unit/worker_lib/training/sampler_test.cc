#include "muster/sampler.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "muster/error.h"

namespace muster {
namespace {

using Samples = std::vector<size_t>;

Samples samples_of(const DistributedSampler& sampler) {
  return {sampler.begin(), sampler.end()};
}

Samples drawn(size_t size, SamplerOptions options, uint64_t epoch = 0) {
  DistributedSampler sampler(size, options);
  sampler.set_epoch(epoch);
  return samples_of(sampler);
}

SamplerOptions part(int rank, int ranks, bool shuffle = true, bool drop_last = false) {
  return {.rank = rank, .ranks = ranks, .shuffle = shuffle, .seed = 7, .drop_last = drop_last};
}

// The documented rule, step by step on whole lists.
Samples by_the_rule(Samples order, size_t rank, size_t ranks, bool drop_last) {
  const size_t size = order.size();
  if (drop_last) {
    order.resize(size / ranks * ranks);
  } else if (size > 0) {
    for (size_t i = 0; order.size() % ranks != 0; ++i)
      order.push_back(order[i]);
  }
  Samples mine;
  for (size_t i = rank; i < order.size(); i += ranks)
    mine.push_back(order[i]);
  return mine;
}

Samples counting(size_t size) {
  Samples all(size);
  std::iota(all.begin(), all.end(), size_t{0});
  return all;
}

TEST(Sampler, GivesEachRankEveryNthSample) {
  EXPECT_EQ(drawn(8, part(0, 2, false)), (Samples{0, 2, 4, 6}));
  EXPECT_EQ(drawn(8, part(1, 2, false)), (Samples{1, 3, 5, 7}));
}

TEST(Sampler, WrapsAroundAtTheEndOfTheSamples) {
  EXPECT_EQ(drawn(5, part(0, 3, false)), (Samples{0, 3}));
  EXPECT_EQ(drawn(5, part(1, 3, false)), (Samples{1, 4}));
  EXPECT_EQ(drawn(5, part(2, 3, false)), (Samples{2, 0}));
}

TEST(Sampler, RepeatsAFewSamplesForManyRanks) {
  EXPECT_EQ(drawn(2, part(0, 5, false)), (Samples{0}));
  EXPECT_EQ(drawn(2, part(3, 5, false)), (Samples{1}));
  EXPECT_EQ(drawn(2, part(4, 5, false)), (Samples{0}));
}

TEST(Sampler, DropsTheRestIfAsked) {
  EXPECT_EQ(drawn(5, part(0, 3, false, true)), (Samples{0}));
  EXPECT_EQ(drawn(5, part(2, 3, false, true)), (Samples{2}));
  EXPECT_EQ(drawn(2, part(0, 3, false, true)), (Samples{}));
  EXPECT_EQ(drawn(6, part(1, 3, false, true)), (Samples{1, 4}));
}

TEST(Sampler, GivesNothingForAnEmptySet) {
  EXPECT_EQ(drawn(0, part(0, 3)), (Samples{}));
  EXPECT_EQ(drawn(0, part(1, 3, false, true)), (Samples{}));
}

// What PyTorch 2.15 gave for torch.utils.data.DistributedSampler(range(size), ...).
TEST(Sampler, ShufflesAsPyTorchDoes) {
  EXPECT_EQ(drawn(10, {.rank = 0, .ranks = 1, .seed = 5}), (Samples{1, 4, 9, 6, 3, 5, 0, 2, 8, 7}));
  EXPECT_EQ(drawn(10, part(1, 4), 2), (Samples{5, 2, 3}));
  EXPECT_EQ(drawn(10, part(1, 4, true, true), 2), (Samples{5, 2}));
  EXPECT_EQ(drawn(3, {.rank = 4, .ranks = 7}, 1), (Samples{2}));
}

uint64_t digest_of(const Samples& samples) {
  uint64_t digest = 0xcbf29ce484222325u;
  for (const size_t sample : samples)
    digest = (digest ^ sample) * 0x100000001b3u;
  return digest;
}

// FNV-1a over torch.randperm(size) with the same seed.
TEST(Sampler, ShufflesLongListsAsPyTorchDoes) {
  const SamplerOptions all{.rank = 0, .ranks = 1, .seed = 11};
  EXPECT_EQ(digest_of(drawn(1000, all, 3)), 0x4f81bfc4306d904bu);
  EXPECT_EQ(digest_of(drawn(50000, all, 3)), 0x3c293861acff7415u);
}

TEST(Sampler, SeedsWithTheLow32BitsAsPyTorchDoes) {
  const SamplerOptions large{.rank = 0, .ranks = 1, .seed = 0xffffffffu};
  EXPECT_EQ(drawn(6, large), (Samples{3, 4, 2, 0, 1, 5}));
  EXPECT_EQ(drawn(6, large, 1), drawn(6, {.rank = 0, .ranks = 1, .seed = 0}));
}

TEST(Sampler, DrawsOneOrderForEachEpoch) {
  DistributedSampler sampler(100, part(0, 4));
  EXPECT_EQ(sampler.epoch(), 0u);
  const Samples first = samples_of(sampler);
  sampler.set_epoch(1);
  EXPECT_EQ(sampler.epoch(), 1u);
  EXPECT_NE(samples_of(sampler), first);
  sampler.set_epoch(0);
  EXPECT_EQ(samples_of(sampler), first);
}

TEST(Sampler, KeepsItsOrderWithoutShuffle) {
  DistributedSampler sampler(10, part(1, 3, false));
  const Samples first = samples_of(sampler);
  sampler.set_epoch(9);
  EXPECT_EQ(samples_of(sampler), first);
}

TEST(Sampler, SeedAndEpochAreAddedUp) {
  EXPECT_EQ(drawn(50, {.rank = 0, .ranks = 2, .seed = 3}, 4),
            drawn(50, {.rank = 0, .ranks = 2, .seed = 7}, 0));
}

TEST(Sampler, CutsItsPartIntoBatches) {
  const DistributedSampler sampler(10, part(0, 1, false));
  const auto batch = [&](size_t i, size_t size) {
    const auto found = sampler.batch(i, size);
    return Samples(found.begin(), found.end());
  };
  EXPECT_EQ(batch(0, 4), (Samples{0, 1, 2, 3}));
  EXPECT_EQ(batch(1, 4), (Samples{4, 5, 6, 7}));
  EXPECT_EQ(batch(2, 4), (Samples{8, 9}));
  EXPECT_EQ(batch(3, 4), (Samples{}));
  EXPECT_EQ(batch(0, 100), counting(10));
  EXPECT_EQ(batch(1, 10), (Samples{}));
  EXPECT_EQ(batch(SIZE_MAX, 4), (Samples{}));
  EXPECT_EQ(batch(SIZE_MAX / 4 + 1, 4), (Samples{}));
}

void expect_refused(int rank, int ranks, const std::string& message) {
  try {
    DistributedSampler(5, part(rank, ranks));
    FAIL() << "taken: " << rank << " of " << ranks;
  } catch (const DistributedError& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_EQ(error.what(), message);
    EXPECT_EQ(error.operation(), "DistributedSampler");
  }
}

TEST(Sampler, RefusesARankThatDoesNotExist) {
  expect_refused(3, 3, "DistributedSampler: rank 3 of 3; give 0 <= rank < ranks");
  expect_refused(-1, 3, "DistributedSampler: rank -1 of 3; give 0 <= rank < ranks");
  expect_refused(0, 0, "DistributedSampler: rank 0 of 0; give 0 <= rank < ranks");
  expect_refused(0, -2, "DistributedSampler: rank 0 of -2; give 0 <= rank < ranks");
}

TEST(Sampler, RefusesToTakeItsRankFromAMissingJob) {
  try {
    DistributedSampler(5);
    FAIL() << "there is a job";
  } catch (const DistributedError& error) {
    EXPECT_EQ(error.code(), ErrorCode::not_initialized);
  }
}

struct Case {
  size_t size, ranks;
  bool shuffle, drop_last;
  uint64_t seed, epoch;
};

Case any_case() {
  return {*rc::gen::inRange<size_t>(0, 200), *rc::gen::inRange<size_t>(1, 40),
          *rc::gen::arbitrary<bool>(),       *rc::gen::arbitrary<bool>(),
          *rc::gen::arbitrary<uint64_t>(),   *rc::gen::inRange<uint64_t>(0, 1000)};
}

Samples part_of(const Case& c, size_t rank, size_t ranks) {
  return drawn(c.size,
               {.rank = static_cast<int>(rank),
                .ranks = static_cast<int>(ranks),
                .shuffle = c.shuffle,
                .seed = c.seed,
                .drop_last = c.drop_last},
               c.epoch);
}

RC_GTEST_PROP(SamplerProperty, FollowsTheRuleForEveryRank, ()) {
  const Case c = any_case();
  const Samples order = part_of(c, 0, 1);  // One rank gets the whole order.
  Samples sorted = order;
  std::sort(sorted.begin(), sorted.end());
  RC_ASSERT(sorted == counting(c.size));
  if (!c.shuffle) RC_ASSERT(order == sorted);
  for (size_t rank = 0; rank < c.ranks; ++rank) {
    RC_ASSERT(part_of(c, rank, c.ranks) == by_the_rule(order, rank, c.ranks, c.drop_last));
  }
}

RC_GTEST_PROP(SamplerProperty, GivesAllRanksTheSameNumberOfSamples, ()) {
  const Case c = any_case();
  Samples all;
  for (size_t rank = 0; rank < c.ranks; ++rank) {
    const Samples mine = part_of(c, rank, c.ranks);
    RC_ASSERT(mine.size() == part_of(c, 0, c.ranks).size());
    all.insert(all.end(), mine.begin(), mine.end());
  }
  std::sort(all.begin(), all.end());
  const auto twice = std::unique(all.begin(), all.end());
  if (c.drop_last) {  // Nothing twice, and less than one for each rank is left out.
    RC_ASSERT(twice == all.end());
    RC_ASSERT(c.size - all.size() < c.ranks);
  } else {  // Nothing left out.
    RC_ASSERT(Samples(all.begin(), twice) == counting(c.size));
  }
}

RC_GTEST_PROP(SamplerProperty, BatchesConcatenateToThePart, ()) {
  const Case c = any_case();
  const size_t batch = *rc::gen::inRange<size_t>(1, 50);
  DistributedSampler sampler(c.size, part(0, static_cast<int>(c.ranks)));
  Samples together;
  for (size_t i = 0; !sampler.batch(i, batch).empty(); ++i) {
    const auto some = sampler.batch(i, batch);
    RC_ASSERT(some.size() == batch || sampler.batch(i + 1, batch).empty());
    together.insert(together.end(), some.begin(), some.end());
  }
  RC_ASSERT(together == samples_of(sampler));
  RC_ASSERT(sampler.size() == together.size());
}

}  // namespace
}  // namespace muster
