// The own address that reaches the other nodes, for the choice of an interface.
#include <string>

#include "tests/unit/rendezvous/backends/rendezvous_harness.h"

namespace muster {
namespace {

TEST(MeetingAddress, IsTheLocalEndOfTheConnectionInARound) {
  boost::asio::io_context loop;
  const RendezvousOptions options = endpoint_options(free_port(), 2, 2);
  Agents agents;
  for (int i = 0; i < 2; ++i)
    agents.push_back(std::make_unique<TestAgent>(loop, options));
  for (const auto& agent : agents) {
    EXPECT_EQ(agent->meeting().address_towards_peers(), "");
    agent->meeting().tell(member::ReadyForRound{});
  }
  ASSERT_TRUE(all_have_rounds(loop, agents, 1));
  for (const auto& agent : agents)
    EXPECT_EQ(agent->meeting().address_towards_peers(), "127.0.0.1");
}

// --local-addr may be a name or a translated address, which no interface has.
TEST(MeetingAddress, IsNotTheAdvertisedAddress) {
  boost::asio::io_context loop;
  RendezvousOptions options = endpoint_options(free_port(), 2, 2);
  Agents agents;
  for (const char* advertised : {"203.0.113.7", "a-name"}) {
    options.local_addr = advertised;
    agents.push_back(std::make_unique<TestAgent>(loop, options));
    agents.back()->meeting().tell(member::ReadyForRound{});
  }
  ASSERT_TRUE(all_have_rounds(loop, agents, 1));
  for (const auto& agent : agents)
    EXPECT_EQ(agent->meeting().address_towards_peers(), "127.0.0.1");
}

TEST(MeetingAddress, IsEmptyForASingleNode) {
  boost::asio::io_context loop;
  RendezvousOptions options;
  options.job_id = "job";
  TestAgent agent(loop, options);
  agent.meeting().tell(member::ReadyForRound{});
  ASSERT_TRUE(agent.wait_rounds(1));
  EXPECT_EQ(agent.meeting().address_towards_peers(), "");
}

}  // namespace
}  // namespace muster
