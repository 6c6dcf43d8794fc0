#include "rendezvous/membership/random_ids.h"

#include <array>
#include <set>

#include <gtest/gtest.h>

namespace muster {
namespace {

// These tests fail by chance with a probability far below 2^-50.
constexpr int kDraws = 64;

TEST(RandomIds, NumbersAreNeverZeroAndUseAllBits) {
  uint64_t ever_set = 0;
  uint64_t ever_clear = 0;
  for (int i = 0; i < kDraws; ++i) {
    const uint64_t number = random_u64();
    EXPECT_NE(number, 0u);
    ever_set |= number;
    ever_clear |= ~number;
  }
  EXPECT_EQ(ever_set, ~uint64_t{0});
  EXPECT_EQ(ever_clear, ~uint64_t{0});
}

TEST(RandomIds, EachByteOfANonceIsRandom) {
  std::array<std::set<uint8_t>, 16> seen;
  for (int i = 0; i < kDraws; ++i) {
    const membership::Nonce nonce = random_nonce();
    for (size_t at = 0; at < nonce.size(); ++at)
      seen[at].insert(nonce[at]);
  }
  for (const std::set<uint8_t>& values : seen)
    EXPECT_GE(values.size(), 8u);
}

TEST(RandomIds, AgentIdsShareNotEvenHalves) {
  std::set<uint64_t> halves;
  for (int i = 0; i < kDraws; ++i) {
    const membership::AgentId id = random_agent_id();
    halves.insert({id.high, id.low});
  }
  EXPECT_EQ(halves.size(), 2u * kDraws);
  EXPECT_FALSE(halves.contains(0));
}

}  // namespace
}  // namespace muster
