// Results that are written past the caches are the same bytes, whatever their alignment and length.
#include "worker_lib/backends/cpu/shm_copy.h"

#include <cstdio>
#include <random>
#include <vector>

#include <gtest/gtest.h>

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
}

}  // namespace
}  // namespace muster::worker
