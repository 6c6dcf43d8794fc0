// Two ranks' views of the same regions, in one process.
#include "worker_lib/backends/cpu/shm_regions.h"

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "worker_lib/backends/cpu/memory_file.h"

namespace muster::worker {
namespace {

constexpr size_t kBlockBytes = 5'000;

bool is_still_mapped(const std::byte* data) {
  const auto page = reinterpret_cast<uintptr_t>(data) / page_bytes() * page_bytes();
  return msync(reinterpret_cast<void*>(page), 1, MS_ASYNC) == 0 || errno != ENOMEM;
}

class RegionsOfTwo : public testing::Test {
 protected:
  // Returns the blocks of both ranks, each as its own rank sees it.
  std::array<std::byte*, 2> map(uint64_t number, size_t bytes = kBlockBytes) {
    const Outcome<UniqueFd> file =
        make_memory_file("muster-test", SharedRegions::file_bytes(2, bytes));
    EXPECT_TRUE(file.has_value());
    return {zero_.map(number, file->get(), bytes).value(),
            one_.map(number, file->get(), bytes).value()};
  }

  SharedRegions zero_{2, 0};
  SharedRegions one_{2, 1};
};

TEST_F(RegionsOfTwo, APlaceOfOneRankNamesTheSameMemoryOnTheOther) {
  const auto [first, second] = map(1);
  const auto [third, fourth] = map(2);
  for (const size_t offset : {size_t{0}, size_t{1}, kBlockBytes - 1}) {
    std::byte* const seen = one_.at(zero_.place_of(first + offset, 1), 0, 1);
    ASSERT_NE(seen, nullptr) << offset;
    EXPECT_NE(seen, first + offset) << "the other rank maps it elsewhere";
    first[offset] = std::byte{7};
    EXPECT_EQ(*seen, std::byte{7}) << offset;
  }
  fourth[3] = std::byte{9};
  EXPECT_EQ(*zero_.at(one_.place_of(fourth + 3, 1), 1, 1), std::byte{9});
  EXPECT_EQ(third[3], std::byte{0}) << "each rank has a block of its own";
  EXPECT_EQ(second[0], std::byte{0});
}

TEST_F(RegionsOfTwo, OnlyMemoryWithinTheOwnBlockHasAPlace) {
  EXPECT_EQ(zero_.place_of(nullptr, 0), 0U) << "nothing is mapped yet";
  const auto [first, second] = map(1);
  EXPECT_NE(zero_.place_of(first, kBlockBytes), 0U);
  EXPECT_NE(zero_.place_of(first + kBlockBytes, 0), 0U);
  EXPECT_EQ(zero_.place_of(first, kBlockBytes + 1), 0U);
  EXPECT_EQ(zero_.place_of(first + 1, kBlockBytes), 0U);
  EXPECT_EQ(zero_.place_of(first - 1, 1), 0U);
  EXPECT_EQ(zero_.place_of(first + SharedRegions::stride(kBlockBytes), 1), 0U)
      << "the block of the other rank";
  std::array<std::byte, 8> elsewhere{};
  EXPECT_EQ(zero_.place_of(elsewhere.data(), elsewhere.size()), 0U);
}

// Places come from another process and are not trusted.
TEST_F(RegionsOfTwo, NoPlaceLeadsOutOfItsBlock) {
  const auto [first, second] = map(1);
  const RegionOffset start = zero_.place_of(first, 1);
  EXPECT_NE(one_.at(start, 0, kBlockBytes), nullptr);
  EXPECT_NE(one_.at(start + kBlockBytes, 0, 0), nullptr);
  EXPECT_EQ(one_.at(start, 0, kBlockBytes + 1), nullptr);
  EXPECT_EQ(one_.at(start + kBlockBytes, 0, 1), nullptr);
  EXPECT_EQ(one_.at(start + kBlockBytes + 1, 0, 0), nullptr);
  EXPECT_EQ(one_.at(start + 1, 0, SIZE_MAX), nullptr) << "the sum wraps around";
  EXPECT_EQ(one_.at(0, 0, 0), nullptr);
  EXPECT_EQ(one_.at(2 * start, 0, 0), nullptr) << "there is no region 2";
  EXPECT_EQ(one_.at(UINT64_MAX, 0, 1), nullptr);
}

TEST_F(RegionsOfTwo, ARegionNumberTooLargeForAPlaceHasNone) {
  const auto [last, second] = map((uint64_t{1} << 20) - 1);
  EXPECT_NE(zero_.place_of(last, 1), 0U);
  const auto [first, fourth] = map(uint64_t{1} << 20);
  EXPECT_EQ(zero_.place_of(first, 1), 0U);
}

TEST_F(RegionsOfTwo, ABlockStaysMappedUntilAllRanksReleaseTheirs) {
  const auto [first, second] = map(1);
  const RegionOffset place = zero_.place_of(first, 1);
  zero_.release(1);
  EXPECT_TRUE(is_still_mapped(first));
  EXPECT_NE(one_.at(place, 0, 1), nullptr) << "the other rank may still read it";
  one_.release(1);
  EXPECT_FALSE(is_still_mapped(second));
  EXPECT_EQ(one_.at(place, 0, 1), nullptr);
  EXPECT_TRUE(is_still_mapped(first)) << "until this rank does something";
  map(2);
  EXPECT_EQ(zero_.place_of(first, 1), 0U);
  EXPECT_EQ(zero_.at(place, 1, 1), nullptr);
}

TEST_F(RegionsOfTwo, ReleasingAKnownOrUnknownRegionKeepsTheOthers) {
  const auto [first, second] = map(1);
  const auto [third, fourth] = map(2);
  for (SharedRegions* regions : {&zero_, &one_, &zero_}) {
    regions->release(1);
    regions->release(99);
  }
  EXPECT_FALSE(is_still_mapped(first));
  EXPECT_FALSE(is_still_mapped(second));
  EXPECT_TRUE(is_still_mapped(third));
  EXPECT_NE(zero_.at(one_.place_of(fourth, 1), 1, 1), nullptr);
}

TEST(SharedRegions, AFileHoldsPagesForEachRankAndForTheReleases) {
  const size_t page = page_bytes();
  EXPECT_EQ(SharedRegions::stride(0), page);
  EXPECT_EQ(SharedRegions::stride(page), page);
  EXPECT_EQ(SharedRegions::stride(page + 1), 2 * page);
  EXPECT_EQ(SharedRegions::file_bytes(3, 1), 4 * page);
  const int full = static_cast<int>(page / sizeof(uint32_t));
  EXPECT_EQ(SharedRegions::file_bytes(full, page), (page / sizeof(uint32_t) + 1) * page);
  EXPECT_EQ(SharedRegions::file_bytes(full + 1, page), (page / sizeof(uint32_t) + 3) * page);
}

TEST(SharedRegions, AFailureToMapNamesTheSize) {
  SharedRegions regions(2, 0);
  const size_t bytes = SharedRegions::file_bytes(2, 1);
  const Outcome<std::byte*> block = regions.map(1, -1, 1);
  ASSERT_FALSE(block.has_value());
  EXPECT_EQ(block.error(), (Failure{ErrorCode::system, "cannot map " + std::to_string(bytes) +
                                                           " bytes of shared memory: Bad file "
                                                           "descriptor"}));
}

}  // namespace
}  // namespace muster::worker
