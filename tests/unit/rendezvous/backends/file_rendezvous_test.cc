// Tests of agents that meet at a file on a shared disk.
#include <string>
#include <vector>

#include "rendezvous/backends/host_record.h"
#include "tests/unit/rendezvous/backends/rendezvous_harness.h"
#include "tests/unit/rendezvous/backends/shared_folder.h"

namespace muster {
namespace {

RendezvousOptions file_options(const SharedFolder& folder, int nodes_min, int nodes_max) {
  RendezvousOptions options = endpoint_options(0, nodes_min, nodes_max);
  options.way = RendezvousOptions::Way::file;
  options.host = folder.file();
  options.local_addr = "127.0.0.1";
  return options;
}

Agents start_file_agents(boost::asio::io_context& loop, const RendezvousOptions& options,
                         int count) {
  Agents agents;
  for (int i = 0; i < count; ++i) {
    agents.push_back(std::make_unique<TestAgent>(loop, options));
    agents.back()->meeting().tell(member::ReadyForRound{});
  }
  return agents;
}

TEST(FileMeeting, AgentsThatShareAFileFormARoundAndLeaveNothingBehind) {
  const SharedFolder folder;
  boost::asio::io_context loop;
  const Agents agents = start_file_agents(loop, file_options(folder, 4, 4), 4);
  ASSERT_TRUE(all_have_rounds(loop, agents, 1));
  for (const auto& agent : agents) {
    EXPECT_EQ(agent->rounds[0].nodes, 4);
    agent->meeting().tell(member::WorkersDone{agent->rounds[0].epoch});
  }
  for (const auto& agent : agents) {
    ASSERT_TRUE(agent->wait_end());
    EXPECT_TRUE(agent->close_and_wait());
  }
  EXPECT_EQ(folder.names(), std::vector<std::string>{});
}

TEST(FileMeeting, AgentsTakeOverTheFileOfACrashedJob) {
  const SharedFolder folder;
  boost::asio::io_context loop;
  {
    Agents crashed = start_file_agents(loop, file_options(folder, 2, 2), 2);
    ASSERT_TRUE(all_have_rounds(loop, crashed, 1));
    for (const auto& agent : crashed)
      agent->kill();
  }
  EXPECT_NE(folder.names(), std::vector<std::string>{});
  const Agents agents = start_file_agents(loop, file_options(folder, 2, 2), 2);
  ASSERT_TRUE(all_have_rounds(loop, agents, 1));
  EXPECT_EQ(agents[0]->rounds[0].nodes, 2);
}

TEST(FileMeeting, AnotherAgentReplacesAKilledHost) {
  const SharedFolder folder;
  boost::asio::io_context loop;
  RendezvousOptions options = file_options(folder, 2, 3);
  options.join.last_call = std::chrono::seconds(5);
  const Agents agents = start_file_agents(loop, options, 3);
  ASSERT_TRUE(all_have_rounds(loop, agents, 1));
  for (const auto& agent : agents) {
    if (agent->rounds[0].node_rank == 0) agent->kill();
  }
  for (const auto& agent : agents) {
    if (!agent->was_made()) continue;
    ASSERT_TRUE(agent->wait_stops(1));
    agent->meeting().tell(member::ReadyForRound{});
  }
  for (const auto& agent : agents) {
    if (!agent->was_made()) continue;
    ASSERT_TRUE(agent->wait_rounds(2));
    EXPECT_GT(agent->rounds[1].epoch, agent->rounds[0].epoch);
  }
}

TEST(FileMeeting, AnAddressOfAnotherJobsHostIsNotBelieved) {
  const SharedFolder folder;
  boost::asio::io_context loop;
  // Another job's host now has the port of the dead host.
  RendezvousOptions other = endpoint_options(free_port(), 2, 2);
  other.is_host = true;
  TestAgent stranger(loop, other);
  stranger.meeting().tell(member::ReadyForRound{});
  folder.write("meet", encode(record_of(1, other.port)));
  RendezvousOptions options = file_options(folder, 2, 2);
  options.join.lease = std::chrono::seconds(2);
  const Agents agents = start_file_agents(loop, options, 2);
  ASSERT_TRUE(all_have_rounds(loop, agents, 1));
  EXPECT_EQ(agents[0]->rounds[0].nodes, 2);
  EXPECT_NE(agents[0]->rounds[0].master_port, other.port);
  EXPECT_TRUE(stranger.rounds.empty());
}

TEST(FileMeeting, APathThatIsNoRendezvousFileFailsAtOnce) {
  const SharedFolder folder;
  folder.write("meet", "my thesis");
  boost::asio::io_context loop;
  TestAgent agent(loop, file_options(folder, 2, 2));
  agent.meeting().tell(member::ReadyForRound{});
  ASSERT_TRUE(agent.wait_error());
  EXPECT_EQ(agent.errors[0].code, ExitCode::environment);
  EXPECT_NE(agent.errors[0].message.find(folder.file()), std::string::npos);
}

}  // namespace
}  // namespace muster
