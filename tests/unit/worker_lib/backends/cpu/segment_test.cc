// The shared memory of a group on one node: its layout, what it refuses, and aborts.
#include "worker_lib/backends/cpu/segment.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

namespace muster::worker {
namespace {

constexpr SegmentShape kOddShape{
    .ranks = 3, .small_bytes = 192, .chunk_bytes = 320, .extra_bytes = 5000};

struct Extent {
  uintptr_t start;
  uintptr_t end;
  friend auto operator<=>(const Extent&, const Extent&) = default;
};

template <typename T>
Extent extent(const T* data, size_t bytes = sizeof(T)) {
  const auto start = reinterpret_cast<uintptr_t>(data);
  return {start, start + bytes};
}

// Every part that a rank writes.
std::vector<Extent> extents_of(Segment& segment) {
  const SegmentShape& shape = segment.shape();
  std::vector<Extent> extents;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    extents.push_back(extent(&segment.doorbell(rank)));
    extents.push_back(extent(&segment.progress(rank)));
    for (uint64_t turn = 0; turn < 2; ++turn) {
      extents.push_back(extent(&segment.call_line(rank, turn)));
      extents.push_back(extent(segment.small_data(rank, turn), shape.small_bytes));
      extents.push_back(
          extent(segment.counts(rank, turn), static_cast<size_t>(shape.ranks) * sizeof(uint64_t)));
    }
    for (uint64_t turn = 0; turn < kChunkSlots; ++turn) {
      extents.push_back(extent(segment.chunk(rank, turn), shape.chunk_bytes));
    }
  }
  extents.push_back(extent(&segment.abort_word()));
  extents.push_back(extent(&segment.collective_bell()));
  extents.push_back(extent(segment.extra().data(), segment.extra().size()));
  std::sort(extents.begin(), extents.end());
  return extents;
}

TEST(Segment, NoTwoPartsOverlapAndNoTwoRanksShareACacheLine) {
  for (const SegmentShape& shape : {SegmentShape{}, kOddShape, SegmentShape{.ranks = 70}}) {
    const std::shared_ptr<Segment> segment = *Segment::create(shape);
    const std::vector<Extent> extents = extents_of(*segment);
    for (size_t i = 1; i < extents.size(); ++i) {
      EXPECT_LE(extents[i - 1].end, extents[i].start) << i;
    }
    for (int rank = 0; rank < shape.ranks; ++rank) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(&segment->call_line(rank, 1)) % kCacheLine, 0U);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(segment->chunk(rank, 2)) % kCacheLine, 0U);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(&segment->progress(rank)) % kCacheLine, 0U);
    }
    EXPECT_EQ(reinterpret_cast<uintptr_t>(segment->extra().data()) % 4096, 0U);
  }
}

TEST(Segment, StartsZeroedAndIsSharedByAllThatOpenIt) {
  const std::shared_ptr<Segment> made = *Segment::create(kOddShape);
  const std::shared_ptr<Segment> opened = *Segment::open(made->fd(), kOddShape);
  const std::span<std::byte> extra = opened->extra();
  EXPECT_EQ(std::count(extra.begin(), extra.end(), std::byte{0}), 5000);
  made->extra()[4999] = std::byte{7};
  made->progress(2).produced.store(11);
  made->close_fd();
  EXPECT_EQ(extra[4999], std::byte{7});
  EXPECT_EQ(opened->progress(2).produced.load(), 11U);
  EXPECT_NE(made->extra().data(), extra.data());
}

TEST(Segment, IsSealedAgainstChangesOfItsSize) {
  const std::shared_ptr<Segment> made = *Segment::create(kOddShape);
  EXPECT_NE(ftruncate(made->fd(), 4096), 0);
  EXPECT_NE(ftruncate(made->fd(), 1 << 24), 0);
}

TEST(Segment, RefusesMemoryOfAnotherShape) {
  const std::shared_ptr<Segment> made = *Segment::create(kOddShape);
  SegmentShape larger = kOddShape;
  larger.extra_bytes = 1 << 20;  // More than a page, which may have 64 KiB.
  const auto wrong_size = Segment::open(made->fd(), larger);
  ASSERT_FALSE(wrong_size.has_value());
  EXPECT_EQ(wrong_size.error().code, ErrorCode::system);
  EXPECT_THAT(wrong_size.error().message, testing::HasSubstr("is not the group's shared memory"));
  // The same size in pages, but another layout.
  SegmentShape moved = kOddShape;
  moved.extra_bytes = 5'064;
  const auto wrong_layout = Segment::open(made->fd(), moved);
  ASSERT_FALSE(wrong_layout.has_value());
  EXPECT_THAT(wrong_layout.error().message, testing::HasSubstr("has a different layout"));
}

TEST(Segment, RefusesMemoryThatCouldShrink) {
  const std::shared_ptr<Segment> made = *Segment::create(kOddShape);
  const off_t size = lseek(made->fd(), 0, SEEK_END);
  const int unsealed = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(unsealed, size), 0);
  EXPECT_FALSE(Segment::open(unsealed, kOddShape).has_value());
  close(unsealed);
  EXPECT_FALSE(Segment::open(-1, kOddShape).has_value());
}

TEST(Segment, RefusesSealedMemoryThatIsNoSegment) {
  const std::shared_ptr<Segment> made = *Segment::create(kOddShape);
  const off_t size = lseek(made->fd(), 0, SEEK_END);
  const int zeroes = memfd_create("zeroes", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(zeroes, size), 0);
  ASSERT_EQ(fcntl(zeroes, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
  EXPECT_FALSE(Segment::open(zeroes, kOddShape).has_value());
  close(zeroes);
}

// ---- abort

TEST(Segment, AllRanksSeeTheFirstFailure) {
  const std::shared_ptr<Segment> made = *Segment::create(kOddShape);
  const std::shared_ptr<Segment> opened = *Segment::open(made->fd(), kOddShape);
  EXPECT_EQ(opened->failure(), std::nullopt);
  const Failure first{ErrorCode::peer_failed, "rank 2 (node7, pid 4711) died", {GlobalRank{2}}};
  made->abort(first);
  opened->abort({ErrorCode::aborted, "abort() was called"});
  EXPECT_EQ(opened->failure(), first);
  EXPECT_EQ(made->failure(), first);
  EXPECT_NE(opened->abort_word().load(), 0U);
}

TEST(Segment, CutsAReasonThatIsTooLong) {
  const std::shared_ptr<Segment> segment = *Segment::create(kOddShape);
  Failure failure{ErrorCode::timeout, std::string(100'000, 'x'), {}};
  for (int rank = 0; rank < 1'000; ++rank)
    failure.ranks.push_back(GlobalRank{rank});
  segment->abort(failure);
  const Failure seen = *segment->failure();
  EXPECT_EQ(seen.code, ErrorCode::timeout);
  EXPECT_THAT(seen.message,
              testing::AllOf(testing::SizeIs(testing::Ge(1'000U)), testing::Each('x')));
  EXPECT_EQ(seen.ranks.size(), 256U);
  EXPECT_EQ(seen.ranks.back(), GlobalRank{255});
}

TEST(Segment, AllRanksSeeOneReasonOfManyConcurrentAborts) {
  const std::shared_ptr<Segment> segment = *Segment::create(kOddShape);
  std::vector<std::thread> threads;
  std::vector<std::string> seen(8);
  for (size_t i = 0; i < seen.size(); ++i) {
    threads.emplace_back([&, i] {
      segment->abort({ErrorCode::aborted, std::string(500, static_cast<char>('a' + i))});
      seen[i] = segment->failure()->message;
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_THAT(seen, testing::Each(seen[0]));
  EXPECT_EQ(seen[0], std::string(500, seen[0][0]));
}

// A rank killed between the two stores of abort() must not make the others wait for its reason.
TEST(Segment, DoesNotWaitForAnUnfinishedReason) {
  const std::shared_ptr<Segment> segment = *Segment::create(kOddShape);
  const_cast<std::atomic<uint32_t>&>(segment->abort_word()).store(1);
  const std::optional<Failure> failure = segment->failure();
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->code, ErrorCode::aborted);
}

TEST(Segment, AbortWakesThreadsThatWaitForMessages) {
  const std::shared_ptr<Segment> segment = *Segment::create(kOddShape);
  std::thread receiver([&] {
    EXPECT_EQ(wait_until(segment->doorbell(1), segment->abort_word(), Patience{}, Deadline::max(),
                         [] { return false; }),
              Waited::aborted);
  });
  while (segment->doorbell(1).sleepers.load() == 0)
    std::this_thread::yield();
  segment->abort({ErrorCode::stopped, "the job was told to end"});
  receiver.join();
}

}  // namespace
}  // namespace muster::worker
