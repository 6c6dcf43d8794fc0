// Results that are written past the caches are the same bytes, whatever their alignment and length.
#include "worker_lib/backends/cpu/shm_copy.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "worker_lib/copy_bytes.h"

namespace muster::worker {
namespace {

constexpr size_t kRoom = size_t{48} * 1024;
constexpr size_t kAround = 256;
constexpr std::byte kUntouched{0xee};

std::vector<std::byte> room_of_random_bytes() {
  std::mt19937 random(7);
  std::vector<std::byte> bytes(kRoom);
  for (std::byte& byte : bytes)
    byte = static_cast<std::byte>(random());
  return bytes;
}

// Copies to `to` in a buffer and compares every byte of it, including those around.
bool copies_exactly(const std::vector<std::byte>& source, size_t from, size_t to, size_t bytes,
                    size_t whole) {
  std::vector<std::byte> target(to + bytes + kAround, kUntouched);
  copy_result(target.data() + to, source.data() + from, bytes, whole);
  for (size_t i = 0; i < target.size(); ++i) {
    const bool copied = i >= to && i < to + bytes;
    if (target[i] != (copied ? source[from + i - to] : kUntouched)) return false;
  }
  return true;
}

TEST(CopyResult, WritesTheBytesAndNoOthers) {
  const std::vector<std::byte> source = room_of_random_bytes();
  size_t copies = 0;
  for (const size_t whole : {size_t{0}, kStreamedFrom - 1, kStreamedFrom, 2 * kStreamedFrom}) {
    for (size_t bytes = 0; bytes < 300; ++bytes) {
      for (size_t to = 0; to < 130; to += 13) {
        for (const size_t from : {size_t{0}, size_t{1}, size_t{8}, size_t{64}}) {
          ASSERT_TRUE(copies_exactly(source, from, to, bytes, whole))
              << bytes << " bytes from " << from << " to " << to << " of " << whole;
          ++copies;
        }
      }
    }
  }
  std::printf("compared %zu copies\n", copies);
}

// Several pages at a time, and the rest behind them.
TEST(CopyResult, WritesManyPages) {
  const std::vector<std::byte> source = room_of_random_bytes();
  for (const size_t pages : {size_t{3}, size_t{4}, size_t{5}, size_t{8}, size_t{11}}) {
    for (const size_t more : {0UL, 1UL, 64UL, 511UL, 512UL, 513UL, 577UL, 2000UL}) {
      for (const size_t to : {0UL, 1UL, 32UL, 63UL, 64UL, 100UL}) {
        for (const size_t from : {0UL, 8UL, 64UL}) {
          ASSERT_TRUE(copies_exactly(source, from, to, pages * 4096 + more, kStreamedFrom))
              << pages << " pages and " << more << " bytes from " << from << " to " << to;
        }
      }
    }
  }
}

TEST(CopyResult, AcceptsNullPointersForZeroBytes) {
  copy_result(nullptr, nullptr, 0, 1);
  copy_result(nullptr, nullptr, 0, kStreamedFrom);
}

// A page has 4,096 offsets; its lines are alike.
TEST(CopyBytes, WritesTheBytesAndNoOthersAtEachOffsetInALine) {
  const std::vector<std::byte> source = room_of_random_bytes();
  for (const size_t bytes : {0UL, 1UL, 63UL, 64UL, 1023UL, 1024UL, 1025UL, 2048UL, 5000UL}) {
    for (size_t to = 0; to < 64; ++to) {
      for (size_t from = 0; from < 64; ++from) {
        std::vector<std::byte> target(to + bytes + kAround, kUntouched);
        copy_bytes(target.data() + to, source.data() + from, bytes);
        const auto begin = target.begin() + static_cast<std::ptrdiff_t>(to);
        const auto end = begin + static_cast<std::ptrdiff_t>(bytes);
        ASSERT_TRUE(std::equal(begin, end, source.begin() + static_cast<std::ptrdiff_t>(from)))
            << bytes << " bytes from " << from << " to " << to;
        const auto untouched = [](std::byte byte) { return byte == kUntouched; };
        ASSERT_TRUE(std::all_of(target.begin(), begin, untouched));
        ASSERT_TRUE(std::all_of(end, target.end(), untouched));
      }
    }
  }
}

double shortest_copy_us(std::byte* to, const std::byte* from, size_t bytes) {
  double shortest = 1e9;
  for (int i = 0; i < 50; ++i) {
    const auto began = std::chrono::steady_clock::now();
    copy_bytes(to, from, bytes);
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - began;
    shortest = std::min(shortest, took.count());
  }
  return shortest;
}

// With one memcpy(), a processor that has the fault takes 16 to 30 times as long.
TEST(CopyBytes, TakesNoMultipleOfTheTimeIfTheTargetLiesJustAboveTheSourceInItsPage) {
  constexpr size_t kPage = 4096;
  constexpr size_t kBytes = size_t{64} * 1024;
  std::vector<std::byte> memory(2 * kBytes + 4 * kPage);
  std::byte* const from = memory.data();
  std::byte* const to = from + kBytes + kPage;
  const double aligned = shortest_copy_us(to, from, kBytes);
  for (const size_t above : {1UL, 4UL, 8UL, 16UL, 32UL, 48UL, 63UL})
    EXPECT_LT(shortest_copy_us(to + above, from, kBytes), 11 * aligned) << above;
}

}  // namespace
}  // namespace muster::worker
