#include "agent/job/node_answers.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace muster {
namespace {

using Ranks = std::vector<int>;
using Lines = std::vector<std::string>;

constexpr const char* kNobodysRanks = "the job's host has not said which node has them; try again";

RankStacks stacks_of(int rank, bool in_call = false) {
  RankStacks stacks;
  stacks.rank = rank;
  stacks.in_call = in_call;
  return stacks;
}

NodeAnswer answer_of(std::string node, Ranks ranks, Result<control::Reply> reply) {
  return {0, std::move(node), std::move(ranks), std::move(reply)};
}

NodeAnswer stacks_from(Ranks ranks, std::vector<RankStacks> stacks) {
  return answer_of("node-b (ranks 4-7)", std::move(ranks), control::Stacks{std::move(stacks), {}});
}

TEST(SelectedRanks, ExcludeRanksThatTheJobDoesNotHave) {
  EXPECT_EQ(selected_ranks({}, 3), (Ranks{0, 1, 2}));
  EXPECT_EQ(selected_ranks({{1, 99}}, 3), (Ranks{1, 2}));
  EXPECT_EQ(selected_ranks({{7, 7}}, 3), Ranks{});
}

TEST(Strangers, AreListedBesideTheRanksOfTheJob) {
  EXPECT_EQ(strangers_text({}, 16), "");
  EXPECT_EQ(strangers_text({{0, 15}}, 16), "");
  EXPECT_EQ(strangers_text({{99, 99}}, 16), "rank 99 is not of this job, whose ranks are 0-15");
  EXPECT_EQ(strangers_text({{14, 16}}, 16), "rank 16 is not of this job, whose ranks are 0-15");
  EXPECT_EQ(strangers_text({{3, 3}, {8, 18}, {99, 99}}, 16),
            "ranks 16-18,99 are not of this job, whose ranks are 0-15");
  EXPECT_EQ(strangers_text({{1, 1}}, 1), "rank 1 is not of this job, whose only rank is 0");
}

TEST(NodesToAsk, AreTheNodesOfTheSelectedRanks) {
  const std::vector<NodeAnswer> asked =
      nodes_to_ask({3, 4, 6, 8}, {{0, "node-a", 0, 4, "running"},
                                  {1, "node-\x1b[31mb", 4, 4, "running"},
                                  {2, "node-c", 8, 1, "running"},
                                  {3, "node-d", 9, 4, "running"},
                                  {-1, "node-e", 0, 64, "spare"}});
  ASSERT_EQ(asked.size(), 3u);
  EXPECT_EQ(asked[0].node, "node-a (ranks 0-3)");
  EXPECT_EQ(asked[0].ranks, (Ranks{3}));
  EXPECT_EQ(asked[1].node, "node-b (ranks 4-7)");
  EXPECT_EQ(asked[1].node_rank, 1);
  EXPECT_EQ(asked[1].ranks, (Ranks{4, 6}));
  EXPECT_EQ(asked[2].node, "node-c (rank 8)");
  EXPECT_EQ(asked[2].ranks, (Ranks{8}));
}

TEST(NodesToAsk, ListTheRanksWhoseNodeIsUnknown) {
  constexpr int kMost = std::numeric_limits<int>::max();
  const std::vector<NodeAnswer> asked = nodes_to_ask(
      {4, 5, 7}, {{1, "b", 5, 1, ""}, {2, "c", -kMost, kMost, ""}, {3, "d", kMost, kMost, ""}});
  ASSERT_EQ(asked.size(), 2u);
  EXPECT_EQ(asked[1].node_rank, -1);
  EXPECT_EQ(asked[1].node, "ranks 4,7");
  ASSERT_FALSE(asked[1].reply);
  EXPECT_EQ(asked[1].reply.error().message, kNobodysRanks);
}

TEST(JoinedAnswers, AreOrderedByRank) {
  RankRecords first;
  first.rank = 1;
  RankRecords second;
  second.rank = 5;
  const auto records = joined_records({answer_of("b", {5}, control::Records{{second}, {}}),
                                       answer_of("a", {1}, control::Records{{first}, {}})},
                                      "");
  EXPECT_EQ(records, Result<control::Records>(control::Records{{first, second}, {}}));
}

TEST(JoinedAnswers, PutStacksOfRanksInNoCallFirst) {
  const auto stacks = joined_stacks({stacks_from({0, 1}, {stacks_of(1), stacks_of(0, true)}),
                                     stacks_from({4, 5}, {stacks_of(4), stacks_of(5, true)})},
                                    "");
  EXPECT_EQ(stacks, Result<control::Stacks>(control::Stacks{
                        {stacks_of(1), stacks_of(4), stacks_of(0, true), stacks_of(5, true)}, {}}));
}

TEST(JoinedAnswers, DescribeEachMissingAnswerInOneLine) {
  const auto stacks = joined_stacks(
      {stacks_from({0}, {stacks_of(0)}),
       answer_of("node-b (ranks 4-7)", {4}, fail(ExitCode::environment, "no answer within 10 s")),
       answer_of("node-c (rank 8)", {8}, Error{ExitCode::usage, "not\x1b[31m\nso"}),
       answer_of("node-d (rank 9)", {9}, control::Records{})},
      "rank 99 is not of this job");
  ASSERT_TRUE(stacks);
  EXPECT_EQ(stacks->ranks, std::vector{stacks_of(0)});
  ASSERT_EQ(stacks->unanswered.size(), 4u);
  EXPECT_EQ(stacks->unanswered[0], "node-b (ranks 4-7): no answer within 10 s");
  EXPECT_EQ(
      stacks->unanswered[2],
      "node-d (rank 9): it sent an unexpected answer; does it run another version of muster?");
  EXPECT_EQ(stacks->unanswered[3], "rank 99 is not of this job");
  for (const std::string& line : stacks->unanswered)
    EXPECT_EQ(line.find_first_of("\n\x1b"), std::string::npos) << line;
}

// A node answers neither for another node's ranks nor twice; a missing rank is reported.
TEST(JoinedAnswers, HoldEachRankOnceAndOnlyFromItsNode) {
  const auto stacks = joined_stacks(
      {stacks_from({4, 5, 6}, {stacks_of(0), stacks_of(4), stacks_of(4, true), stacks_of(7)})}, "");
  EXPECT_EQ(stacks,
            Result<control::Stacks>(control::Stacks{
                {stacks_of(4)}, {"node-b (ranks 4-7): it has not answered for ranks 5-6"}}));
}

TEST(JoinedAnswers, HoldTheVariablesOfTheNodesThatAnswered) {
  const control::Variables variables{{"LANG", "C", 1}};
  NodeAnswer good = answer_of("", {0}, variables);
  good.node_rank = 3;
  std::vector<std::string> unanswered;
  const std::vector<NodeVariables> nodes =
      joined_variables({good, answer_of("node-b", {1}, control::Done{}),
                        answer_of("node-c", {2}, Error{ExitCode::environment, "no"})},
                       unanswered);
  ASSERT_EQ(nodes.size(), 1u);
  EXPECT_EQ(nodes[0].node_rank, 3);
  EXPECT_EQ(nodes[0].variables, variables);
  EXPECT_EQ(unanswered,
            (std::vector<std::string>{
                "node-b: it sent an unexpected answer; does it run another version of muster?",
                "node-c: no"}));
}

TEST(JoinedAnswers, AreAnErrorIfThereIsNothingElse) {
  EXPECT_EQ(joined_stacks({}, "rank 99 is not of this job"),
            Result<control::Stacks>(fail(ExitCode::environment, "rank 99 is not of this job")));
  EXPECT_EQ(joined_records({answer_of("", {0}, Error{ExitCode::environment, "not recorded"})}, ""),
            Result<control::Records>(fail(ExitCode::environment, "not recorded")));
}

}  // namespace
}  // namespace muster
