#include "launcher/engines/lone_world.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace muster {
namespace {

// Eight processes on two nodes, with all that an engine can tell.
EngineFacts eight_on_two() {
  EngineFacts facts;
  facts.engine = "Slurm";
  facts.evidence = "N=8";
  facts.processes = 8;
  facts.nodes = 2;
  facts.here = 4;
  facts.one_per_node = "srun -n1";
  facts.first_host = "node1";
  facts.job_id = "17";
  return facts;
}

template <typename Change>
std::string refusal_with(const Change& change, bool workers_given = false) {
  EngineFacts facts = eight_on_two();
  change(facts);
  const LoneWorld world = judge_lone_world(facts, workers_given);
  EXPECT_TRUE(world.refused);
  return world.text;
}

// The flags that the refusal advises to give.
template <typename Change>
std::string flags_with(const Change& change, bool workers_given = false) {
  const std::string text = refusal_with(change, workers_given);
  const std::string end = "; --nnodes 1 says that this is meant";
  EXPECT_TRUE(text.ends_with(end)) << text;
  const std::string own = "each of them would be a job of its own: ";
  const size_t at = text.find(own) + own.size();
  return text.substr(at, text.size() - end.size() - at);
}

constexpr auto kNoChange = [](EngineFacts&) {};

TEST(LoneWorldText, RefusesWithTheFactsAndTheFlagsToGive) {
  EXPECT_EQ(judge_lone_world(eight_on_two(), false),
            (LoneWorld{true,
                       "Slurm started 8 processes on 2 nodes (N=8), and without --nnodes each of "
                       "them would be a job of its own: start one muster a node (srun -n1) with "
                       "--nnodes 2 --rdzv-backend c10d --rdzv-endpoint node1:29400 --rdzv-id 17 "
                       "--nproc-per-node 4; --nnodes 1 says that this is meant"}));
}

TEST(LoneWorldText, NamesNoWorkersThatTheUserHasGiven) {
  EXPECT_EQ(flags_with(kNoChange, true),
            "start one muster a node (srun -n1) with --nnodes 2 --rdzv-backend c10d "
            "--rdzv-endpoint node1:29400 --rdzv-id 17");
}

TEST(LoneWorldText, CountsWorkersOnlyIfAllNodesHaveAsMany) {
  const std::string flags =
      "start one muster a node (srun -n1) with --nnodes 2 --rdzv-backend c10d --rdzv-endpoint "
      "node1:29400 --rdzv-id 17 --nproc-per-node N";
  EXPECT_EQ(flags_with([](EngineFacts& facts) { facts.here = 3; }), flags);
  EXPECT_EQ(flags_with([](EngineFacts& facts) { facts.here = 0; }), flags);
  EXPECT_EQ(flags_with([](EngineFacts& facts) { facts.processes = 7; }), flags);
}

TEST(LoneWorldText, AdvisesOnlyFlagsWhereEachNodeHasOneProcess) {
  const std::string flags =
      "give --nnodes 2 --rdzv-backend c10d --rdzv-endpoint node1:29400 --rdzv-id 17";
  const auto one_each = [](EngineFacts& facts) { facts.processes = 2, facts.here = 1; };
  EXPECT_EQ(flags_with(one_each), flags);
  EXPECT_EQ(flags_with(one_each, true), flags);
  EXPECT_EQ(flags_with([](EngineFacts& facts) { facts.here = 1, facts.nodes = 0; }),
            "give --nnodes N --rdzv-backend c10d --rdzv-endpoint node1:29400 --rdzv-id 17");
  EXPECT_EQ(flags_with([](EngineFacts& facts) { facts.here = 1; }).substr(0, 9), "start one");
}

TEST(LoneWorldText, NeedsNoRendezvousOnOneNode) {
  const auto on_one = [](EngineFacts& facts) { facts.nodes = 1, facts.here = 8; };
  EXPECT_EQ(flags_with(on_one), "start one muster a node (srun -n1) with --nproc-per-node 8");
  EXPECT_EQ(flags_with(on_one, true), "start one muster a node (srun -n1)");
}

TEST(LoneWorldText, UsesPlaceholdersForWhatIsUnknown) {
  EXPECT_EQ(refusal_with([](EngineFacts& facts) {
              facts.nodes = facts.here = 0;
              facts.at_least = true;
              facts.one_per_node = facts.first_host = facts.job_id = "";
            }),
            "Slurm started at least 8 processes (N=8), and without --nnodes each of them would be "
            "a job of its own: start one muster a node with --nnodes N --rdzv-backend c10d "
            "--rdzv-endpoint HOST:29400 --rdzv-id ID --nproc-per-node N; --nnodes 1 says that this "
            "is meant");
}

TEST(LoneWorldText, MeetsByNumberWhereEachNodeHasOne) {
  const auto numbered = [](EngineFacts& facts) {
    facts.processes = 2;
    facts.here = 1;
    facts.node_rank = "$RANK";
  };
  EXPECT_EQ(flags_with(numbered),
            "give --nnodes 2 --node-rank $RANK --master-addr node1 --master-port 29500");
  EXPECT_EQ(flags_with([&](EngineFacts& facts) {
              numbered(facts);
              facts.first_host = "";
              facts.port = 23456;
            }),
            "give --nnodes 2 --node-rank $RANK --master-addr HOST --master-port 23456");
}

TEST(LoneWorldText, UsesTheEnginesPort) {
  EXPECT_EQ(flags_with([](EngineFacts& facts) { facts.port = 1; }, true),
            "start one muster a node (srun -n1) with --nnodes 2 --rdzv-backend c10d "
            "--rdzv-endpoint node1:1 --rdzv-id 17");
}

TEST(LoneWorldText, WarnsABatchScriptOnTheFirstOfSeveralNodes) {
  EngineFacts facts = eight_on_two();
  facts.processes = 1;
  for (const bool workers_given : {false, true})
    EXPECT_EQ(judge_lone_world(facts, workers_given),
              (LoneWorld{false,
                         "Slurm runs this on the first of 2 nodes only (N=8): start it by srun -n1 "
                         "with --nnodes 2 --rdzv-backend c10d --rdzv-endpoint node1:29400 "
                         "--rdzv-id 17; --nnodes 1 says that one node is meant"}));
}

TEST(LoneWorldText, WarnsAPodThatMayHaveSiblings) {
  EngineFacts facts = eight_on_two();
  facts.processes = 1;
  facts.at_least = true;
  facts.nodes = 0;
  facts.node_rank = "$INDEX";
  EXPECT_EQ(judge_lone_world(facts, false),
            (LoneWorld{false,
                       "N=8: if Slurm has more pods than this one, each of them is a job of its "
                       "own without --nnodes: give --nnodes N --node-rank $INDEX --master-addr "
                       "node1 --master-port 29500; --nnodes 1 says that this is meant"}));
}

}  // namespace
}  // namespace muster
