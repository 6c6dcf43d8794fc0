#include "worker_lib/rank_runs.h"

#include <algorithm>
#include <climits>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace muster::worker {
namespace {

TEST(RankRunLists, RunsShorterThanTheMinimumAreWrittenOut) {
  const std::vector<GlobalRank> ranks{{8}, {9}, {1}, {2}, {3}, {3}};
  EXPECT_EQ(rank_runs(ranks), "8-9,1-3,3");
  EXPECT_EQ(rank_runs(ranks, 3), "8,9,1-3,3");
  EXPECT_EQ(rank_runs(ranks, 4), "8,9,1,2,3,3");
}

TEST(RankRunLists, AThousandRanksAreOneRun) {
  std::vector<GlobalRank> all(1000);
  for (size_t i = 0; i < all.size(); ++i)
    all[i].value = static_cast<int>(i);
  EXPECT_EQ(rank_runs(all), "0-999");
}

TEST(RankRunLists, ADescendingListHasNoRuns) {
  EXPECT_EQ(rank_runs(std::vector<GlobalRank>{{2}, {1}, {0}}), "2,1,0");
}

RC_GTEST_PROP(RankRunLists, ContainExactlyTheRanksTheyWereMadeFrom, ()) {
  const auto values = *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 40));
  const auto least = *rc::gen::inRange<size_t>(1, 6);
  std::vector<GlobalRank> ranks;
  for (const int value : values)
    ranks.push_back({value});
  const std::string runs = rank_runs(ranks, least);
  for (int rank = -1; rank <= 40; ++rank)
    RC_ASSERT(is_in_runs(runs, rank) == (std::ranges::count(values, rank) > 0));
}

TEST(RankRunLists, AreReadUpToTheFirstMalformedPart) {
  struct Case {
    const char* runs;
    int rank;
    bool is_there;
  };
  const std::vector<Case> cases{
      {"3-1", 2, false},        {"5-5", 5, true},           {"1,", 1, true},
      {"1,,2", 1, true},        {"1,,2", 2, false},         {"1,x,2", 1, true},
      {"1,x,2", 2, false},      {"1-2x", 1, false},         {"1-2x,3", 3, false},
      {"1 ,2", 1, false},       {",1", 1, false},           {"+1", 1, false},
      {"1--", 1, false},        {"0-2147483647", 9, true},  {"2147483647", INT_MAX, true},
      {"2147483648", 1, false}, {"0-2147483648", 1, false}, {"4,0-2147483648", 4, true},
      {"11", 1, false},         {"1", 11, false},           {"-1", 1, false},
  };
  for (const Case& one : cases)
    EXPECT_EQ(is_in_runs(one.runs, one.rank), one.is_there) << one.runs << " has " << one.rank;
  EXPECT_FALSE(is_in_runs("4-0123456789abcdef", 9)) << "a digest";
}

// The text comes from the store, and nothing past its end may be read.
RC_GTEST_PROP(RankRunLists, AnyBytesAreReadWithinTheirBounds, ()) {
  const auto bytes =
      *rc::gen::container<std::vector<char>>(rc::gen::element('0', '1', '9', '-', ',', '\0', 'x'));
  const std::string_view text(bytes.data(), bytes.size());
  const bool is_there = is_in_runs(text, 1);
  RC_ASSERT(!is_there || text.find_first_of("01-") != std::string_view::npos);
  RC_ASSERT(is_in_runs(std::string(text) + ",", 1) == is_there);
}

}  // namespace
}  // namespace muster::worker
