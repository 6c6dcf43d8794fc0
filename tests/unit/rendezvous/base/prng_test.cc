#include "rendezvous/base/prng.h"

#include <array>
#include <limits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace muster {
namespace {

constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();

// A printed seed must replay the same run on every machine and in later versions. The numbers come
// from the authors' C code, seeded by splitmix64.
TEST(Prng, ProducesTheAuthorsSequence) {
  const std::vector<std::pair<uint64_t, std::array<uint64_t, 4>>> expected = {
      {0, {0x99ec5f36cb75f2b4, 0xbf6e1f784956452a, 0x1a5f849d4933e6e0, 0x6aa594f1262d2d2c}},
      {1, {0xb3f2af6d0fc710c5, 0x853b559647364cea, 0x92f89756082a4514, 0x642e1c7bc266a3a7}},
      {42, {0x15780b2e0c2ec716, 0x6104d9866d113a7e, 0xae17533239e499a1, 0xecb8ad4703b360a1}},
      {kMost, {0x8f5520d52a7ead08, 0xc476a018caa1802d, 0x81de31c0d260469e, 0xbf658d7e065f3c2f}}};
  for (const auto& [seed, numbers] : expected) {
    Prng prng(seed);
    for (const uint64_t number : numbers)
      EXPECT_EQ(prng.next(), number) << seed;
  }
}

RC_GTEST_PROP(Prng, EachDrawTakesOneNumber, (uint64_t seed)) {
  const auto bound = *rc::gen::nonZero<uint64_t>();
  Prng numbers(seed);
  Prng draws(seed);
  RC_ASSERT(draws.below(bound) == numbers.next() % bound);
  RC_ASSERT(draws.chance(bound / 2, bound) == (numbers.next() % bound < bound / 2));
  RC_ASSERT(draws.next() == numbers.next());
}

TEST(Prng, BelowReachesEveryNumberUnderItsBoundAndNoOther) {
  Prng prng(7);
  std::array<int, 5> seen{};
  for (int i = 0; i < 1000; ++i)
    ++seen.at(prng.below(seen.size()));
  for (const int count : seen)
    EXPECT_GT(count, 100);
  EXPECT_EQ(prng.below(1), 0u);
  EXPECT_LT(prng.below(kMost), kMost);
}

TEST(Prng, ZeroChanceNeverHitsAndFullChanceAlwaysDoes) {
  Prng prng(7);
  int half = 0;
  for (int i = 0; i < 1000; ++i) {
    EXPECT_FALSE(prng.chance(0, 3));
    EXPECT_TRUE(prng.chance(3, 3));
    half += prng.chance(1, 2) ? 1 : 0;
  }
  EXPECT_GT(half, 400);
  EXPECT_LT(half, 600);
}

}  // namespace
}  // namespace muster
