#include "agent/meeting/launch_traces.h"

#include <gtest/gtest.h>

#include "tests/unit/launcher/engines/engine_environments.h"

namespace muster {
namespace {

TEST(LaunchTraces, AreRemovedFromTheEnvironmentOfWorkers) {
  Environment environment = open_mpi_two_nodes();
  environment.merge(hydra());
  const Environment users{{"OMPI_MCA_btl", "tcp,self"}, {"PMIX", "x"}, {"SLURM_JOB_ID", "7"}};
  for (const auto& [name, value] : users)
    environment[name] = value;
  EXPECT_EQ(without_launch(environment), users);
}

TEST(LaunchTraces, NodesAreNumberedByTheirFirstTasks) {
  std::vector<membership::NodeLine> lines;
  const std::vector<std::string> hosts{"n2", "n1", "n2", "n3", "n1"};
  for (size_t rank = 0; rank < hosts.size(); ++rank)
    lines.push_back({static_cast<int>(rank), hosts[rank], static_cast<int>(rank), 1, "running"});
  lines.push_back({-1, "n4", 0, 0, "spare"});
  std::vector<int> nodes;
  for (int rank = 0; rank < 5; ++rank) {
    const auto place = place_on_nodes(lines, rank, 5);
    ASSERT_TRUE(place);
    EXPECT_EQ(place->nodes, 3);
    EXPECT_EQ(place->sharing, rank == 3 ? 1 : 2);
    nodes.push_back(place->node);
  }
  EXPECT_EQ(nodes, (std::vector<int>{0, 1, 0, 2, 1}));
}

TEST(LaunchTraces, NodesAreNotNumberedUntilAllTasksAreKnown) {
  EXPECT_EQ(place_on_nodes({}, 0, 1), std::nullopt);
  EXPECT_EQ(place_on_nodes({{0, "n1", 0, 1, ""}}, 0, 2), std::nullopt);
  EXPECT_EQ(place_on_nodes({{0, "n1", 0, 1, ""}}, 1, 1), std::nullopt);
}

}  // namespace
}  // namespace muster
