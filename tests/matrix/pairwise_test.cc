#include "tests/matrix/pairwise.h"

#include <cstdio>
#include <set>
#include <tuple>

#include <gtest/gtest.h>

#include "tests/matrix/case.h"

namespace muster::matrix {
namespace {

using Pair = std::tuple<size_t, int, size_t, int>;

void add_pairs(const Row& row, std::set<Pair>& pairs) {
  for (size_t a = 0; a < row.size(); ++a) {
    for (size_t b = a + 1; b < row.size(); ++b)
      pairs.insert({a, row[a], b, row[b]});
  }
}

std::set<Pair> pairs_of(const std::vector<Row>& rows) {
  std::set<Pair> pairs;
  for (const Row& row : rows)
    add_pairs(row, pairs);
  return pairs;
}

// Finds all pairs by enumerating all rows, unlike the generator.
std::set<Pair> pairs_possible(const std::vector<int>& sizes, const Allows& allows) {
  std::set<Pair> pairs;
  for_each_row(sizes, allows, [&](const Row& row) { add_pairs(row, pairs); });
  return pairs;
}

bool all_allowed(const Row&) {
  return true;
}

// Two values of different dimensions exclude each other; a third follows from both.
bool tangled(const Row& row) {
  if (row[0] == 0 && row[1] > 0) return false;
  if (row[1] == 0 && row[2] > 1) return false;
  return !(row[2] == 2 && row[3] == 0);
}

const std::vector<int> kSmall{4, 3, 3, 2, 2};

TEST(Pairwise, EveryPairIsInSomeRow) {
  const Cover cover = cover_pairs(kSmall, all_allowed, 1);
  EXPECT_EQ(pairs_of(cover.rows), pairs_possible(kSmall, all_allowed));
  EXPECT_EQ(cover.pairs, pairs_of(cover.rows).size());
}

TEST(Pairwise, EveryRowObeysTheRulesAndForbiddenPairsAreNotRequired) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const Cover cover = cover_pairs(kSmall, tangled, seed);
    for (const Row& row : cover.rows)
      EXPECT_TRUE(tangled(row));
    EXPECT_EQ(pairs_of(cover.rows), pairs_possible(kSmall, tangled)) << "seed " << seed;
    EXPECT_EQ(cover.pairs, pairs_of(cover.rows).size());
  }
}

TEST(Pairwise, CoversAllPairsWithFarFewerRowsThanCombinations) {
  const std::vector<int> sizes(10, 4);
  const Cover cover = cover_pairs(sizes, all_allowed, 7);
  std::printf("10 dimensions of 4 values: %zu rows of %d\n", cover.rows.size(), 1 << 20);
  EXPECT_GE(cover.rows.size(), 16u);
  EXPECT_LE(cover.rows.size(), 48u);
}

TEST(Pairwise, TheSeedDecidesTheRows) {
  const auto rows = [](uint64_t seed) { return cover_pairs(kSmall, tangled, seed).rows; };
  EXPECT_EQ(rows(3), rows(3));
  EXPECT_NE(rows(3), rows(4));
}

TEST(Pairwise, OneDimensionOrNoneHasNoPairs) {
  EXPECT_TRUE(cover_pairs({5}, all_allowed, 1).rows.empty());
  EXPECT_TRUE(cover_pairs({}, all_allowed, 1).rows.empty());
}

TEST(Matrix, EveryAllowedPairOfParametersIsCovered) {
  const Setting setting{.backend = Backend::cpu, .worlds = {1, 2, 3, 4, 5}};
  const Allows rules = rules_of(setting);
  const std::vector<int> sizes = sizes_of(setting);
  const Cover cover = cover_pairs(sizes, rules, 1);
  const std::set<Pair> covered = pairs_of(cover.rows);
  for (const Row& row : cover.rows)
    EXPECT_TRUE(rules(row));
  EXPECT_EQ(covered.size(), cover.pairs);
  size_t possible = 0;
  for (size_t a = 0; a < sizes.size(); ++a) {
    for (size_t b = a + 1; b < sizes.size(); ++b) {
      for (int i = 0; i < sizes[a]; ++i) {
        for (int j = 0; j < sizes[b]; ++j) {
          Row row(sizes.size(), kUnset);
          row[a] = i;
          row[b] = j;
          if (!can_be_completed(sizes, rules, row)) continue;
          ++possible;
          EXPECT_TRUE(covered.contains({a, i, b, j}));
        }
      }
    }
  }
  std::printf("%zu rows cover %zu pairs\n", cover.rows.size(), possible);
  EXPECT_EQ(possible, cover.pairs);
}

TEST(Matrix, CoversEveryBackendWithinItsLimits) {
  for (const Backend backend : {Backend::cpu, Backend::gloo, Backend::nccl}) {
    const Setting setting{.backend = backend, .worlds = {1, 2, 3, 4}};
    const Cases chosen = cases_of(setting, 1, false);
    EXPECT_GT(chosen.pairs, 1000u);
    for (const Case& what : chosen.cases) {
      if (backend != Backend::nccl) continue;
      EXPECT_NE(what.op, Op::recv_any);
      EXPECT_LE(what.memory, MemoryKind::unaligned);
      EXPECT_LE(what.reduce, ReduceOp::max);
      if (what.reduce == ReduceOp::average && what.is_float()) {
        EXPECT_EQ(what.values, Values::reals) << describe(what);
      }
    }
    std::printf("%s: %zu cases, %zu pairs\n", muster::name_of(backend), chosen.cases.size(),
                chosen.pairs);
  }
}

// A rule that forbids too much must not shrink the run with --all.
TEST(Matrix, EverythingCoversEveryCombinationOfAnOperationsParameters) {
  const Setting setting{.backend = Backend::cpu, .worlds = {1, 2}};
  const Cases all = cases_of(setting, 1, true);
  std::set<std::tuple<Op, DType, ReduceOp, int, size_t, int, CallKind, Place>> seen;
  size_t all_reduces = 0;
  for (const Case& each : all.cases) {
    seen.insert({each.op, each.dtype, each.reduce, each.members, each.size, each.root_rank(),
                 each.call, each.place});
    all_reduces += each.op == Op::all_reduce ? 1 : 0;
  }
  EXPECT_EQ(seen.size(), all.cases.size());
  // 5 integer types with 8 reductions, 4 floats with 5; 2 worlds, 6 sizes, 3 calls, 2 places.
  EXPECT_EQ(all_reduces, (5u * 8 + 4 * 5) * 2 * 6 * 3 * 2);
  std::printf("%zu cases in worlds of 1 and 2\n", all.cases.size());
}

}  // namespace
}  // namespace muster::matrix
