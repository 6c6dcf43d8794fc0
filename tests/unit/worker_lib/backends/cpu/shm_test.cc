// Compares every collective, dtype and reduction through shared memory with a reference, in
// segments so small that everything is cut into many pieces, and in memory that the ranks share.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sanitized.h"
#include "tests/unit/worker_lib/backends/backend_reference.h"
#include "tests/unit/worker_lib/backends/cpu/shm_world.h"
#include "tests/wait_for.h"

namespace muster::worker {
namespace {

using shm_test::said;
using shm_test::World;

size_t run_shm_cases(World& world, const std::vector<BackendCase>& cases) {
  world.each([&](int rank, ShmGroup& group) {
    run_cases(cases, rank, [&](CaseRank& mine, uint64_t sequence) {
      return group.run(mine.operation(sequence), soon());
    });
  });
  return cases.size();
}

// Pieces of one cache line: even small counts need many of them, in three alternating slots.
SegmentShape tiny(int ranks) {
  return {.ranks = ranks,
          .small_bytes = 0,
          .chunk_bytes = kCacheLine * static_cast<size_t>(ranks),
          .extra_bytes = 0};
}

TEST(ShmGroup, EveryCallGivesTheReferenceInOneMeeting) {
  size_t calls = 0;
  for (int ranks = 2; ranks <= 5; ++ranks) {
    World world(ranks);
    calls += run_shm_cases(world, every_case(ranks, {0, 1, 7, 64}));
  }
  std::printf("covered %zu calls of 2 to 5 ranks\n", calls);
}

TEST(ShmGroup, EveryCallGivesTheReferenceInPieces) {
  size_t calls = 0;
  for (int ranks = 2; ranks <= 5; ++ranks) {
    World world(tiny(ranks));
    calls += run_shm_cases(world, every_case(ranks, {1, 33, 500}));
  }
  std::printf("covered %zu calls of 2 to 5 ranks\n", calls);
}

TEST(ShmGroup, MovesLargeBuffersThroughSlotsOfTheUsualSize) {
  World world(3);
  std::vector<BackendCase> cases;
  for (const BackendCase& one : every_case(3, {300'001})) {
    const bool sums = one.reduce == ReduceOp::sum || one.reduce == ReduceOp::average;
    if (!sums || (kSanitized && one.reduce != ReduceOp::sum)) continue;
    if (one.dtype == DType::bfloat16 || (one.dtype == DType::float32 && !kSanitized))
      cases.push_back(one);
  }
  std::printf("covered %zu calls of 3 ranks\n", run_shm_cases(world, cases));
}

// So large that results are written past the caches.
TEST(ShmGroup, MovesResultsOfManyMegabytes) {
  World world(2);
  std::vector<BackendCase> cases;
  const size_t count = (size_t{17} << 20) + 3;
  cases.push_back({OpKind::all_gather, DType::uint8, ReduceOp::sum, 2, 0, count, false, false});
  if (!kSanitized)
    cases.push_back({OpKind::broadcast, DType::int16, ReduceOp::sum, 2, 1, count, false, false});
  std::printf("covered %zu calls of 2 ranks\n", run_shm_cases(world, cases));
}

// A sleeper that is not woken polls again after 50 ms; if every second meeting lost its wake-up,
// this would take 100 s.
TEST(ShmGroup, WakesSleepingRanksAtOnce) {
  constexpr int kMeetings = 4'000;
  World world(4);
  const auto start = std::chrono::steady_clock::now();
  world.each([](int, ShmGroup& group) {
    group.set_patience({.spins = 0, .yielding = std::chrono::nanoseconds{0}});
    for (int i = 0; i < kMeetings; ++i) {
      ASSERT_EQ(said(group.run({.kind = OpKind::barrier}, soon())), "done");
    }
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, test::within(std::chrono::seconds{5}));
}

// ---- memory that the ranks share

// Moves the memory of a case into shared memory.
Operation moved(Operation operation, CaseRank& mine, std::byte* to) {
  std::vector<std::byte>& memory = mine.memory();
  std::memcpy(to, memory.data(), memory.size());
  operation.in = to + (operation.in - memory.data());
  operation.out = to + (operation.out - memory.data());
  return operation;
}

size_t run_shared_cases(World& world, const std::vector<BackendCase>& cases, int without) {
  constexpr size_t kBytes = size_t{1} << 16;
  world.each([&](int rank, ShmGroup& group) {
    const Outcome<SharedBlock> block = group.allocate_shared(kBytes, soon());
    ASSERT_TRUE(block.has_value()) << block.error().message;
    auto* const shared = static_cast<std::byte*>(block->data);
    run_cases(cases, rank, [&](CaseRank& mine, uint64_t sequence) {
      if (rank == without) return group.run(mine.operation(sequence), soon());
      EXPECT_LE(mine.memory().size(), kBytes);
      const Outcome<> done = group.run(moved(mine.operation(sequence), mine, shared), soon());
      std::memcpy(mine.memory().data(), shared, mine.memory().size());
      return done;
    });
  });
  return cases.size();
}

TEST(ShmGroup, EveryCallGivesTheReferenceInSharedMemory) {
  size_t calls = 0;
  for (int ranks = 2; ranks <= 4; ++ranks) {
    World world(tiny(ranks));
    calls += run_shared_cases(world, every_case(ranks, {1, 33, 500}), -1);
  }
  std::printf("covered %zu calls of 2 to 4 ranks\n", calls);
}

TEST(ShmGroup, WorksIfOnlySomeRanksUseSharedBuffers) {
  size_t calls = 0;
  for (int without = 0; without < 3; ++without) {
    World world(tiny(3));
    calls += run_shared_cases(world, every_case(3, {33, 500}), without);
  }
  std::printf("covered %zu calls of 3 ranks\n", calls);
}

TEST(ShmGroup, GivesEachRankZeroedMemoryOfItsOwnThatOutlivesTheGroup) {
  std::vector<SharedBlock> blocks(3);
  {
    World world(3);
    world.each([&](int rank, ShmGroup& group) {
      blocks[static_cast<size_t>(rank)] = *group.allocate_shared(10'000, soon());
    });
  }
  std::set<void*> different;
  for (const SharedBlock& block : blocks) {
    auto* const data = static_cast<unsigned char*>(block.data);
    EXPECT_EQ(std::count(data, data + 10'000, 0), 10'000);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 4096, 0U);
    std::fill(data, data + 10'000, static_cast<unsigned char>(different.size() + 1));
    different.insert(data);
  }
  EXPECT_EQ(different.size(), 3U);
  EXPECT_EQ(static_cast<unsigned char*>(blocks[0].data)[9'999], 1);
}

// A rank that has released its block still reads the blocks of the others.
TEST(ShmGroup, ReleasingSharedMemoryOnOneRankKeepsThatOfOthers) {
  World world(2);
  world.each([&](int rank, ShmGroup& group) {
    std::vector<float> own(5'000, 0.0F);
    SharedBlock block = *group.allocate_shared(own.size() * sizeof(float), soon());
    void* data = own.data();
    if (rank == 0) {
      data = block.data;
      std::fill_n(static_cast<float*>(data), own.size(), 2.5F);
    } else {
      block = {};
    }
    Operation broadcast{.kind = OpKind::broadcast, .count = own.size(), .dtype = DType::float32};
    broadcast.in = broadcast.out = static_cast<std::byte*>(data);
    EXPECT_EQ(said(group.run(broadcast, soon())), "done");
    if (rank == 1) {
      EXPECT_EQ(std::count(own.begin(), own.end(), 2.5F), 5'000);
    }
  });
}

TEST(ShmGroup, AllocatesAndFreesSharedMemoryManyTimes) {
  World world(3);
  world.each([](int rank, ShmGroup& group) {
    for (int round = 0; round < 50; ++round) {
      const Outcome<SharedBlock> block = group.allocate_shared(64, soon());
      ASSERT_TRUE(block.has_value()) << rank << " " << block.error().message;
      static_cast<int*>(block->data)[0] = rank;
    }
  });
}

TEST(ShmGroup, RefusesSharedMemoryOfDifferentSizes) {
  World world(3);
  EXPECT_THAT(
      world.outcomes([](int rank, ShmGroup& group) -> Outcome<> {
        const auto block = group.allocate_shared(rank == 1 ? 4096 : 8192, soon());
        if (!block) return tl::unexpected(block.error());
        return Done{};
      }),
      testing::Each("mismatch [10]: rank 10 (host, pid 4001) called allocate_shared of 4096 "
                    "bytes, but rank 0 (host, pid 4000) called allocate_shared of 8192 "
                    "bytes; all ranks must make the same calls in the same order"));
}

}  // namespace
}  // namespace muster::worker
