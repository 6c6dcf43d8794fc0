// The algorithms between ranks, on links that cut every message into random pieces: numbers of
// ranks up to beyond two trees, and sizes on both sides of each switch between algorithms.
#include <atomic>
#include <cstdio>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/sanitized.h"
#include "tests/unit/worker_lib/backends/backend_reference.h"
#include "tests/unit/worker_lib/backends/cpu/memory_links.h"
#include "worker_lib/backends/cpu/flat_group.h"

namespace muster::worker {
namespace {

std::vector<int> all_of(int size) {
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// Runs the cases on `size` ranks.
void run_flat_cases(int size, const std::vector<BackendCase>& cases, unsigned seed,
                    size_t capacity) {
  MemoryNetwork network;
  network.capacity = capacity;
  on_each_rank(size, [&](int rank) {
    MemoryLinks links(network, rank, seed);
    const Members members = memory_members(size, rank);
    const AbortSwitch abort;
    Exchange exchange(links, members, abort, nullptr);
    FlatGroup group(exchange, all_of(size), rank);
    run_cases(cases, rank, [&](CaseRank& mine, uint64_t sequence) {
      const Operation operation = mine.operation(sequence);
      exchange.begin(operation, soon());
      return run_flat(group, operation);
    });
  });
}

std::vector<BackendCase> every_kind(int size, const std::vector<size_t>& counts) {
  std::vector<BackendCase> cases;
  for (const size_t count : counts) {
    for (const OpKind kind : ring::kCollectives) {
      for (const bool is_v : {false, true}) {
        if (is_v && (kind < OpKind::gather || count > 100)) continue;
        cases.push_back({.kind = kind,
                         .dtype = DType::int32,
                         .reduce = count % 2 == 0 ? ReduceOp::sum : ReduceOp::max,
                         .ranks = size,
                         .root = static_cast<int>(count + static_cast<size_t>(kind)) % size,
                         .count = count,
                         .in_place = static_cast<int>(kind) % 2 == 0 && kind != OpKind::all_to_all,
                         .is_v = is_v});
      }
    }
  }
  return cases;
}

TEST(FlatGroup, EveryNumberOfRanksGivesTheReferenceResult) {
  const unsigned seed = std::random_device{}();
  size_t calls = 0;
  for (int size = 2; size <= 18; ++size) {
    const std::vector<BackendCase> cases = every_kind(size, {0, 1, 3, 40, 1024});
    run_flat_cases(size, cases, seed, 4096);
    calls += cases.size();
  }
  std::printf("%zu calls, seed %u\n", calls, seed);
}

TEST(FlatGroup, RingsAndChainsGiveTheReferenceResult) {
  const unsigned seed = std::random_device{}();
  size_t calls = 0;
  for (int size = kSanitized ? 4 : 2; size <= 5; ++size) {
    const std::vector<BackendCase> cases = every_kind(size, {8200, 16'500, 140'001});
    run_flat_cases(size, cases, seed, 1 << 20);
    calls += cases.size();
  }
  std::printf("%zu calls, seed %u\n", calls, seed);
}

TEST(FlatGroup, CallsWithOnlyEmptyBlocksStillWaitForAllRanks) {
  const int size = 11;
  MemoryNetwork network;
  std::atomic<int> came{0};
  on_each_rank(size, [&](int rank) {
    MemoryLinks links(network, rank, 1);
    const Members members = memory_members(size, rank);
    const AbortSwitch abort;
    Exchange exchange(links, members, abort, nullptr);
    FlatGroup group(exchange, all_of(size), rank);
    const Operation operation{.kind = OpKind::all_gather,
                              .is_v = true,
                              .recv_counts = std::vector<size_t>(static_cast<size_t>(size), 0)};
    exchange.begin(operation, soon());
    ++came;
    EXPECT_TRUE(run_flat(group, operation));
    EXPECT_EQ(came.load(), size);
  });
}

// Sums of floats depend on the order, which must be the same on all ranks and in every run.
TEST(FlatGroup, FloatSumsAreBitwiseEqualOnAllRanksAndInAllRuns) {
  for (const int size : {2, 3, 4, 5, 7}) {
    for (const size_t count : {size_t{5}, size_t{30'001}, size_t{200'003}}) {
      std::vector<std::vector<float>> results;
      for (unsigned run = 0; run < 2; ++run) {
        MemoryNetwork network;
        network.capacity = 1 << 20;
        std::vector<std::vector<float>> out(static_cast<size_t>(size));
        on_each_rank(size, [&](int rank) {
          std::mt19937 random(static_cast<unsigned>(rank));
          std::uniform_real_distribution<float> any(-1.0f, 1.0f);
          std::vector<float>& mine = out[static_cast<size_t>(rank)];
          for (size_t i = 0; i < count; ++i)
            mine.push_back(any(random));
          MemoryLinks links(network, rank, run * 1000 + std::random_device{}() % 1000);
          const Members members = memory_members(size, rank);
          const AbortSwitch abort;
          Exchange exchange(links, members, abort, nullptr);
          FlatGroup group(exchange, all_of(size), rank);
          auto* data = reinterpret_cast<std::byte*>(mine.data());
          const Operation operation{.kind = OpKind::all_reduce,
                                    .in = data,
                                    .out = data,
                                    .count = count,
                                    .dtype = DType::float32,
                                    .reduce = ReduceOp::average};
          exchange.begin(operation, soon());
          EXPECT_TRUE(run_flat(group, operation));
        });
        results.insert(results.end(), out.begin(), out.end());
      }
      for (const std::vector<float>& one : results)
        EXPECT_EQ(one, results.front()) << size << " ranks, " << count;
    }
  }
}

// A group of some of the members, such as a column of a hierarchy.
TEST(FlatGroup, PositionsFollowItsOwnListOfRanks) {
  MemoryNetwork network;
  const std::vector<int> ranks{4, 1, 3};
  on_each_rank(3, [&](int position) {
    const int rank = ranks[static_cast<size_t>(position)];
    MemoryLinks links(network, rank, 7);
    const Members members = memory_members(5, rank);
    const AbortSwitch abort;
    Exchange exchange(links, members, abort, nullptr);
    FlatGroup group(exchange, ranks, position);
    int32_t mine = rank;
    std::vector<int32_t> all(3);
    const Operation operation{.kind = OpKind::all_gather,
                              .in = reinterpret_cast<std::byte*>(&mine),
                              .out = reinterpret_cast<std::byte*>(all.data()),
                              .count = 1,
                              .dtype = DType::int32};
    exchange.begin(operation, soon());
    ASSERT_TRUE(run_flat(group, operation));
    EXPECT_EQ(all, (std::vector<int32_t>{4, 1, 3}));
  });
}

// ---- blocks

TEST(Blocks, AreContiguous) {
  const Blocks equal(3, 10);
  EXPECT_EQ(equal.offset(2), 20U);
  EXPECT_EQ(equal.total(), 30U);
  EXPECT_TRUE(equal.uniform());
  const std::vector<size_t> counts{2, 0, 5};
  const Blocks unequal(counts, 4);
  EXPECT_EQ(unequal.offset(2), 8U);
  EXPECT_EQ(unequal.bytes(1), 0U);
  EXPECT_EQ(unequal.total(), 28U);
  EXPECT_FALSE(unequal.uniform());
}

TEST(Blocks, SplitEvenly) {
  const Blocks split = Blocks::split(11, 2, 4);
  std::vector<size_t> bytes;
  for (int i = 0; i < 4; ++i)
    bytes.push_back(split.bytes(i));
  EXPECT_EQ(bytes, (std::vector<size_t>{6, 6, 6, 4}));
  EXPECT_EQ(split.total(), 22U);
}

TEST(Blocks, KeepTheirOffsetsWhenPicked) {
  const std::vector<int> which{3, 1};
  const Blocks picked = Blocks(4, 8).pick(which);
  EXPECT_EQ(picked.offset(0), 24U);
  EXPECT_EQ(picked.offset(1), 8U);
  EXPECT_EQ(picked.total(), 16U);
}

}  // namespace
}  // namespace muster::worker
