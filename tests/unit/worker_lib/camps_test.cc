// Which of several ranks differ from most, and short lists of ranks.

#include "worker_lib/camps.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker_lib/rank_runs.h"

namespace muster::worker {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Camps, BlameTheMinority) {
  EXPECT_THAT(camps_of(std::vector<int>{5, 5, 5}).blamed, IsEmpty());
  EXPECT_THAT(camps_of(std::vector<int>{5, 7, 5}).blamed, ElementsAre(1));
  EXPECT_THAT(camps_of(std::vector<int>{7, 5, 5, 8}).blamed, ElementsAre(0, 3));
  EXPECT_EQ(camps_of(std::vector<int>{7, 5, 5, 8}).usual, 1U);
  EXPECT_THAT(camps_of(std::vector<int>{}).blamed, IsEmpty());
}

TEST(Camps, BlameAllWithoutAMajority) {
  EXPECT_THAT(camps_of(std::vector<int>{5, 7}).blamed, ElementsAre(0, 1));
  EXPECT_THAT(camps_of(std::vector<int>{5, 7, 5, 7, 9}).blamed, ElementsAre(0, 1, 2, 3, 4));
}

TEST(RankRuns, KeepTheOrderOfTheRanks) {
  const std::vector<GlobalRank> ranks{{0}, {1}, {2}, {7}, {4}, {5}};
  EXPECT_EQ(rank_runs(ranks), "0-2,7,4-5");
  EXPECT_EQ(rank_runs(ranks, 3), "0-2,7,4,5");
  EXPECT_EQ(rank_runs({}), "");
  for (int rank = 0; rank < 10; ++rank) {
    const bool is_there = std::ranges::find(ranks, GlobalRank{rank}) != ranks.end();
    EXPECT_EQ(is_in_runs("0-2,7,4-5", rank), is_there) << rank;
  }
}

TEST(RankRuns, HaveNoRanksIfMalformed) {
  for (const char* text : {"", "world", "leaving", "4-0123456789abcdef", "1-", "x1", "1x", "-1"})
    EXPECT_FALSE(is_in_runs(text, 9)) << text;
}

}  // namespace
}  // namespace muster::worker
