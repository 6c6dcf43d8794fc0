#include "worker_lib/group/group_plan.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace muster::worker {
namespace {

std::vector<GlobalRank> global_ranks(const std::vector<int>& values) {
  std::vector<GlobalRank> ranks;
  for (const int value : values)
    ranks.push_back({value});
  return ranks;
}

std::vector<GlobalRank> every_second_rank(int count) {
  std::vector<GlobalRank> ranks;
  for (int i = 0; i < count; ++i)
    ranks.push_back({2 * i});
  return ranks;
}

TEST(GroupPlanRules, InvalidGroupsAreRefusedInOneSentence) {
  using std::chrono::milliseconds;
  struct Case {
    std::vector<GlobalRank> ranks;
    GroupOptions options;
    const char* text;
  };
  const std::vector<Case> cases = {
      {{}, {}, "a group needs at least one rank"},
      {{{0}, {4}}, {}, "rank 4 is not in the job, whose ranks are 0 to 3"},
      {{{-1}}, {}, "rank -1 is not in the job, whose ranks are 0 to 3"},
      {{{1}, {2}, {1}}, {}, "rank 1 twice"},
      {{{1}}, {.name = std::string(65, 'x')}, "the name has 65 characters; 64 are allowed"},
      {{{1}}, {.timeout = milliseconds(0)}, "the timeout of 0 ms leaves no time"},
      {{{1}}, {.timeout = milliseconds(-1)}, "the timeout of -1 ms leaves no time"},
      {{{1}}, {.timeout = milliseconds(1)}, ""},
      {{{1}}, {.name = std::string(64, 'x')}, ""},
      {{{3}, {0}}, {}, ""},
  };
  for (const Case& one : cases)
    EXPECT_EQ(check_group(one.ranks, 4, one.options), one.text);
}

TEST(GroupPlanRules, ANameMayHaveAnyButControlCharacters) {
  const auto check = [](const std::string& name) {
    return check_group(std::vector<GlobalRank>{{0}}, 1, {.name = name});
  };
  EXPECT_EQ(check("two words, 50 %; naïve/日本"), "");
  for (const char control : {'\0', '\t', '\n', '\r', '\x1b', '\x1f', '\x7f'})
    EXPECT_EQ(check("a" + std::string(1, control)), "the name has control characters");
}

TEST(GroupPlanRules, ADefaultNameListsTheRanks) {
  EXPECT_EQ(default_group_name(global_ranks({4})), "group of rank 4");
  EXPECT_EQ(default_group_name(global_ranks({0, 1})), "group of ranks 0,1");
  EXPECT_EQ(default_group_name(global_ranks({0, 1, 2, 7, 6})), "group of ranks 0-2,7,6");
  EXPECT_EQ(default_group_name(global_ranks({0, 1}), 2), "group of ranks 0,1 (#2)");
}

TEST(GroupPlanRules, ADefaultNameIsCutAt64Characters) {
  // "group of ranks " and 49 characters: 0,2,...,18 take 24, and each further one takes three.
  const std::string longest = default_group_name(
      global_ranks({0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 100}));
  EXPECT_EQ(longest.size(), 64U);
  EXPECT_TRUE(longest.ends_with(",32,100")) << longest;
  const std::string cut = default_group_name(
      global_ranks({0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 1000}));
  EXPECT_EQ(cut.size(), 64U);
  EXPECT_TRUE(cut.ends_with(",... (18 ranks)")) << cut;
  const std::string tenth = default_group_name(
      global_ranks({0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 100}), 10);
  EXPECT_EQ(tenth.size(), 64U);
  EXPECT_TRUE(tenth.ends_with(",... (18 ranks) (#10)")) << tenth;
}

TEST(GroupPlanRules, AShortDigestIsReadable) {
  EXPECT_EQ(ranks_digest(global_ranks({0, 1, 2, 3, 7})), "0-3,7");
  EXPECT_EQ(ranks_digest({}), "");
  const std::string hashed = ranks_digest(every_second_rank(100));
  EXPECT_TRUE(hashed.starts_with("100-x")) << hashed;
  EXPECT_EQ(hashed.size(), 21U);
}

// Members find each other under the digest, so no two lists of a job may share one.
TEST(GroupPlanRules, ListsThatDifferInOneRankOrInOrderHaveOtherDigests) {
  std::set<std::string> digests{ranks_digest(every_second_rank(100))};
  for (size_t i = 0; i < 100; ++i) {
    std::vector<GlobalRank> ranks = every_second_rank(100);
    ranks[i].value += 65'536;
    digests.insert(ranks_digest(ranks));
    ranks[i].value = 1'000 + static_cast<int>(i);
    std::swap(ranks[i], ranks[(i + 1) % 100]);
    digests.insert(ranks_digest(ranks));
  }
  EXPECT_EQ(digests.size(), 201U);
}

TEST(GroupPlanRules, MembersHaveTheOrderOfTheGroup) {
  Members world;
  for (int rank = 0; rank < 4; ++rank)
    world.peers.push_back({GlobalRank{rank}, "n", "h", rank, ""});
  world.me = 1;
  const Members members = members_among(world, global_ranks({3, 1, 0}));
  EXPECT_EQ(members.peers, (std::vector<Peer>{world[3], world[1], world[0]}));
  EXPECT_EQ(members.me, 1);
  EXPECT_EQ(members_among(world, global_ranks({1, 3})).me, 0);
  EXPECT_EQ(members_among(world, global_ranks({0, 2})).me, -1);
}

RC_GTEST_PROP(GroupPlanRules, ASplitPutsEachRankIntoItsColorInOrder, ()) {
  const auto values = *rc::gen::container<std::vector<int>>(rc::gen::inRange(-2, 3));
  std::vector<SplitChoice> choices;
  for (size_t i = 0; i < values.size(); ++i)
    choices.push_back({values[i], *rc::gen::inRange<int64_t>(-2, 3)});
  // The group's own ranks descend, so that theirs and the job's are not mistaken.
  const auto count = static_cast<int>(values.size());
  std::vector<GlobalRank> ranks;
  for (int i = 0; i < count; ++i)
    ranks.push_back({count - 1 - i});
  size_t placed = 0;
  for (int64_t color = -2; color < 3; ++color) {
    std::vector<std::pair<int64_t, int>> places;  // Key, group rank.
    for (const GlobalRank rank : ranks_of_color(choices, ranks, color)) {
      const int group_rank = count - 1 - rank.value;
      const SplitChoice& choice = choices[static_cast<size_t>(group_rank)];
      RC_ASSERT(choice.color == color);
      places.emplace_back(choice.key, group_rank);
    }
    RC_ASSERT(std::ranges::is_sorted(places));
    placed += places.size();
  }
  RC_ASSERT(placed == choices.size());
}

}  // namespace
}  // namespace muster::worker
