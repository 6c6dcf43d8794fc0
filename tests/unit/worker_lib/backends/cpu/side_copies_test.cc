// Copies beside the messages of a collective: complete whichever thread makes them, and over when
// they are reported to be.
#include "worker_lib/backends/cpu/side_copies.h"

#include <chrono>
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "tests/wait_for.h"

namespace muster::worker {
namespace {

constexpr size_t kLarge = (size_t{8} << 20) + 77;

std::vector<std::byte> random_vector(size_t count) {
  std::mt19937 random(3);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes)
    byte = static_cast<std::byte>(random());
  return bytes;
}

TEST(SideCopies, AreCompleteWithAndWithoutHelp) {
  const std::vector<std::byte> large = random_vector(kLarge);
  const std::vector<std::byte> small = random_vector(1000);
  SideCopies copies;
  for (int round = 0; round < 6; ++round) {
    std::vector<std::byte> one(kLarge), two(small.size()), three(kLarge);
    copies.add(one.data(), large.data(), kLarge);
    copies.add(two.data(), small.data(), small.size());
    copies.add(three.data(), large.data(), kLarge);
    copies.begin(round % 2 == 1);
    if (round % 3 == 0) copies.copy_some();
    copies.finish();
    EXPECT_FALSE(copies.copy_some());
    EXPECT_EQ(one, large);
    EXPECT_EQ(two, small);
    EXPECT_EQ(three, large);
  }
}

TEST(SideCopies, IgnoreEmptyCopiesAndCopiesToThemselves) {
  SideCopies copies;
  std::byte byte{1};
  copies.add(&byte, &byte, 1);
  copies.add(nullptr, nullptr, 0);
  copies.begin(true);
  EXPECT_FALSE(copies.copy_some());
  copies.finish();
}

// Returns how many pieces the caller copies if it copies at most one per millisecond.
int pieces_of_a_slow_caller(bool may_have_help) {
  const std::vector<std::byte> from = random_vector(kLarge);
  std::vector<std::byte> to(kLarge);
  SideCopies copies;
  copies.add(to.data(), from.data(), kLarge);
  copies.begin(may_have_help);
  int pieces = 0;
  do {
    test::pause_for(std::chrono::milliseconds{1}, "the caller is slow");
    ++pieces;
  } while (copies.copy_some());
  copies.finish();
  EXPECT_EQ(to, from);
  return pieces;
}

TEST(SideCopies, AreMadeByAHelperThreadWhileTheCallerIsBusy) {
  EXPECT_LT(pieces_of_a_slow_caller(true), pieces_of_a_slow_caller(false));
}

TEST(SideCopies, TouchNothingOnceTheyAreDropped) {
  const std::vector<std::byte> from = random_vector(kLarge);
  for (int round = 0; round < 20; ++round) {
    std::vector<std::byte> to(kLarge);
    SideCopies copies;
    copies.add(to.data(), from.data(), kLarge);
    copies.begin(true);
    if (round % 2 == 0)
      test::pause_for(std::chrono::microseconds{50 * round}, "the moment is what is tried out");
    copies.drop();
    const std::vector<std::byte> then = to;
    test::pause_for(std::chrono::microseconds{200}, "a copy that goes on would show");
    EXPECT_EQ(to, then);
  }
}

}  // namespace
}  // namespace muster::worker
