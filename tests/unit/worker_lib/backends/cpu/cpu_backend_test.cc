// Compares the cpu backend with the reference in every shape of a group.
#include <cstdio>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/sanitized.h"
#include "tests/unit/worker_lib/backends/backend_reference.h"
#include "tests/unit/worker_lib/backends/cpu/cpu_ranks.h"

namespace muster::worker {
namespace {

// Runs all cases one after the other, on all ranks.
void run_on(CpuRanks& ranks, const std::vector<BackendCase>& cases) {
  ranks.each([&](int rank) {
    run_cases(cases, rank, [&](CaseRank& mine, uint64_t sequence) {
      return ranks[rank].run(mine.operation(sequence), soon());
    });
  });
  std::printf("%zu calls on %d ranks (%s)\n", cases.size(), ranks.size(), ranks.describe().c_str());
}

class CpuBackendShapes : public testing::TestWithParam<std::string> {};

TEST_P(CpuBackendShapes, EveryOperationOnEveryTypeGivesTheReferenceResult) {
  CpuRanks ranks(GetParam());
  run_on(ranks, every_case(ranks.size(), kSanitized ? std::vector<size_t>{0, 67}
                                                    : std::vector<size_t>{0, 1, 5, 67}));
}

// Sizes at which the algorithms change: trees, rings, chains, slices.
TEST_P(CpuBackendShapes, LargeOperationsGiveTheReferenceResult) {
  CpuRanks ranks(GetParam());
  std::vector<BackendCase> cases;
  for (const OpKind kind : ring::kCollectives) {
    for (const size_t count : {size_t{4099}, size_t{40'001}, size_t{200'003}}) {
      for (const bool in_place : {false, true}) {
        if (in_place && kind == OpKind::all_to_all) continue;
        cases.push_back({.kind = kind,
                         .dtype = static_cast<int>(kind) % 2 == 0 ? DType::int32
                                  : in_place                      ? DType::float16
                                                                  : DType::float32,
                         .reduce = in_place ? ReduceOp::average : ReduceOp::sum,
                         .ranks = ranks.size(),
                         .root = static_cast<int>(count) % ranks.size(),
                         .count = count,
                         .in_place = in_place});
      }
    }
  }
  run_on(ranks, cases);
}

// Shared memory, sockets, two and three equal nodes; without sanitizers, more of each.
std::vector<std::string> shapes() {
  std::vector<std::string> all{"aaa", "abc", "abab", "aabbcc"};
  if (!kSanitized) {
    for (const char* shape : {"aa", "aaaaa", "ab", "abcd", "abcde", "aabb", "aabbc", "abbca"})
      all.emplace_back(shape);
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Groups, CpuBackendShapes, testing::ValuesIn(shapes()),
                         [](const auto& shape) { return shape.param; });

TEST(CpuBackend, ChoosesItsTransportByTheNodesOfItsRanks) {
  EXPECT_EQ(CpuRanks("aaa").describe(), "shared memory");
  EXPECT_EQ(CpuRanks("abab").describe(), "2 nodes of 2 ranks");
  EXPECT_EQ(CpuRanks("aab").describe(), "sockets between 3 ranks");
  EXPECT_EQ(CpuRanks("abc").describe(), "sockets between 3 ranks");
}

}  // namespace
}  // namespace muster::worker
