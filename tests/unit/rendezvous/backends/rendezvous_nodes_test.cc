// The table of all nodes, queried at any agent over real sockets; and the host that stays for the
// others after its own agent leaves.
#include <algorithm>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/membership/random_ids.h"
#include "tests/unit/rendezvous/backends/rendezvous_harness.h"
#include "tests/unit/rendezvous/membership/member_client_harness.h"
#include "tests/unit/rendezvous/membership/raw_agent.h"

namespace muster {
namespace {

using membership::AgentMessage;
using membership::HostMessage;
using membership::NodeLine;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Lines = std::vector<NodeLine>;

// Starts agents "node0", "node1", ... that are ready for a round. The first one hosts.
Agents start_named(boost::asio::io_context& loop, RendezvousOptions options, int count) {
  Agents agents;
  for (int i = 0; i < count; ++i) {
    options.is_host = i == 0;
    options.join.host_name = "node" + std::to_string(i);
    options.join.slots = 1 + i;
    agents.push_back(std::make_unique<TestAgent>(loop, options));
    EXPECT_TRUE(agents.back()->was_made());
    agents.back()->meeting().tell(member::ReadyForRound{});
  }
  return agents;
}

// Returns the answer; without one, fails the test and returns no lines.
Lines ask(boost::asio::io_context& loop, TestAgent& agent) {
  std::optional<Lines> answer;
  agent.meeting().nodes([&answer](Lines lines) { answer = std::move(lines); });
  EXPECT_TRUE(run_until(loop, [&] { return answer.has_value(); }));
  return answer.value_or(Lines{});
}

// Asks until the answer is `expected`.
bool answers(boost::asio::io_context& loop, TestAgent& agent, const Lines& expected) {
  const auto give_up = std::chrono::steady_clock::now() + kTestPatience;
  Lines answer;
  do {
    answer = ask(loop, agent);
  } while (answer != expected && std::chrono::steady_clock::now() < give_up);
  EXPECT_EQ(answer, expected);
  return answer == expected;
}

TEST(MeetingNodes, AreTheSameAtEveryAgent) {
  boost::asio::io_context loop;
  RendezvousOptions options = endpoint_options(free_port(), 2, 2);
  Agents agents = start_named(loop, options, 2);
  ASSERT_TRUE(all_have_rounds(loop, agents, 1));
  options.is_host = false;
  options.join.host_name = "node9";
  agents.push_back(std::make_unique<TestAgent>(loop, options));
  agents.back()->meeting().tell(member::ReadyForRound{});
  const Lines expected = {
      {0, "node0", 0, 1, "running"}, {1, "node1", 1, 2, "running"}, {-1, "node9", 0, 1, "spare"}};
  for (const auto& agent : agents)
    ASSERT_TRUE(answers(loop, *agent, expected));
}

TEST(MeetingNodes, AreAnsweredWhileNodesAreMissing) {
  boost::asio::io_context loop;
  const Agents agents = start_named(loop, endpoint_options(free_port(), 3, 3), 2);
  const Lines expected = {{-1, "node0", 0, 1, "ready"}, {-1, "node1", 0, 2, "ready"}};
  for (const auto& agent : agents)
    ASSERT_TRUE(answers(loop, *agent, expected));
}

TEST(MeetingNodes, ArriveWholeInSeveralParts) {
  boost::asio::io_context loop;
  constexpr int kCount = membership::kLinesInPart + 44;
  const auto host = host_with(loop, "");
  const int port = host->port();
  std::vector<std::unique_ptr<RawAgent>> crowd;
  membership::Join join = endpoint_options(port, kCount + 1, kCount + 1).join;
  for (int i = 0; i < kCount; ++i) {
    crowd.push_back(std::make_unique<RawAgent>(loop, port));
    join.agent = random_agent_id();
    ASSERT_TRUE(crowd.back()->join(join));
  }
  EXPECT_EQ(host->nodes().size(), static_cast<size_t>(kCount));
  RendezvousOptions options = endpoint_options(port, kCount + 1, kCount + 1);
  options.is_host = false;
  TestAgent agent(loop, options);
  agent.meeting().tell(member::ReadyForRound{});
  Lines answer;
  ASSERT_TRUE(run_until(loop, [&] {
    answer = ask(loop, agent);
    return !answer.empty();
  }));
  EXPECT_EQ(answer.size(), static_cast<size_t>(kCount + 1));
}

TEST(MeetingNodes, AreAnsweredToManyQueriesAtOnce) {
  boost::asio::io_context loop;
  const Agents agents = start_named(loop, endpoint_options(free_port(), 2, 2), 2);
  ASSERT_TRUE(all_have_rounds(loop, agents, 1));
  size_t answered = 0;
  size_t lines = 0;
  for (int i = 0; i < 1000; ++i) {
    agents[1]->meeting().nodes([&](const Lines& nodes) {
      ++answered;
      lines += nodes.size();
    });
  }
  ASSERT_TRUE(run_until(loop, [&] { return answered == 1000; }));
  EXPECT_GE(lines, 2u);
}

TEST(MeetingNodes, AreEmptyAtOnceIfThereIsNoHost) {
  boost::asio::io_context loop;
  RendezvousOptions options = endpoint_options(free_port(), 2, 2);
  options.is_host = false;
  TestAgent agent(loop, options);
  EXPECT_EQ(ask(loop, agent), Lines{});  // Also before it has begun.
  agent.meeting().tell(member::ReadyForRound{});
  EXPECT_EQ(ask(loop, agent), Lines{});
}

TEST(MeetingNodes, AreEmptySoonIfTheHostIsStuck) {
  boost::asio::io_context loop;
  boost::asio::io_context stuck;  // The host's loop, run by hand.
  const auto host = host_with(stuck, "");
  RendezvousOptions options = endpoint_options(host->port(), 2, 2);
  options.is_host = false;
  TestAgent agent(loop, options);
  agent.meeting().tell(member::ReadyForRound{});
  ASSERT_TRUE(run_until(loop, [&] {
    stuck.restart();
    stuck.run_for(milliseconds(1));
    return host->counters().joined == 1 && host->nodes().at(0).state == "ready";
  }));
  EXPECT_EQ(ask(loop, agent), Lines{});
}

TEST(MeetingNodes, AreEmptyWithoutAHostAndBackWithTheNext) {
  boost::asio::io_context loop;
  RendezvousOptions options = endpoint_options(free_port(), 2, 2);
  Agents agents = start_named(loop, options, 2);
  ASSERT_TRUE(all_have_rounds(loop, agents, 1));
  agents[0]->kill();
  ASSERT_TRUE(agents[1]->wait_stops(1));
  EXPECT_EQ(ask(loop, *agents[1]), Lines{});
  agents[1]->meeting().tell(member::ReadyForRound{});
  options.is_host = true;
  options.join.host_name = "again";
  agents[0] = std::make_unique<TestAgent>(loop, options);
  agents[0]->meeting().tell(member::ReadyForRound{});
  ASSERT_TRUE(agents[0]->wait_rounds(1));
  ASSERT_TRUE(agents[1]->wait_rounds(2));
  const Lines expected = {{0, "again", 0, 1, "running"}, {1, "node1", 1, 2, "running"}};
  EXPECT_TRUE(answers(loop, *agents[1], expected));
}

TEST(MeetingNodes, AreThatNodeIfItIsAlone) {
  boost::asio::io_context loop;
  RendezvousOptions options;
  options.join.host_name = "here";
  options.join.slots = 4;
  TestAgent agent(loop, options);
  ASSERT_TRUE(agent.was_made());
  EXPECT_EQ(ask(loop, agent), (Lines{{-1, "here", 0, 4, "between two rounds"}}));
  agent.meeting().tell(member::ReadyForRound{});
  ASSERT_TRUE(agent.wait_rounds(1));
  EXPECT_EQ(ask(loop, agent), (Lines{{0, "here", 0, 4, "running"}}));
  agent.meeting().tell(member::Leaving{15, false});
  EXPECT_EQ(ask(loop, agent), (Lines{{0, "here", 0, 4, "leaving"}}));
}

// ---- Limits of queries.

TEST(MeetingNodes, AreEmptyForAnAgentThatAsksTooOften) {
  boost::asio::io_context loop;
  const auto host = host_with(loop, "");
  RawAgent agent(loop, host->port());
  membership::Join join = endpoint_options(1, 2, 2).join;
  join.agent = random_agent_id();
  ASSERT_TRUE(agent.join(join));
  std::string queries;  // One write, so that the host reads all within a second.
  for (uint64_t i = 1; i <= 100; ++i)
    membership::encode(AgentMessage(membership::Query{i}), queries);
  agent.send(queries);
  ASSERT_TRUE(agent.wait_messages(102));
  size_t told = 0;
  for (uint64_t i = 1; i <= 100; ++i) {
    const auto& nodes = std::get<membership::Nodes>(agent.messages[1 + i]);
    EXPECT_EQ(nodes.query, i);
    EXPECT_TRUE(nodes.last);
    told += nodes.lines.size();
  }
  EXPECT_EQ(told, 20u);
  EXPECT_FALSE(agent.closed);
}

// ---- The host's own agent leaves.

TEST(MeetingNodes, KeepTheirHostAfterItsOwnAgentLeaves) {
  boost::asio::io_context loop;
  const Agents agents = start_named(loop, endpoint_options(free_port(), 1, 3), 3);
  ASSERT_TRUE(all_have_rounds(loop, agents, 1));
  TestAgent& host = *agents[0];
  host.meeting().tell(member::Leaving{15, false});
  ASSERT_TRUE(run_until(loop, [&] { return host.leaves_announced == 1; }));
  host.meeting().tell(member::Leaving{15, true});
  bool closed = false;
  host.meeting().close([&closed] { closed = true; });
  for (const size_t i : {1u, 2u}) {
    ASSERT_TRUE(agents[i]->wait_stops(1));
    EXPECT_EQ(agents[i]->stops[0].why, membership::StopWhy::left);
    agents[i]->meeting().tell(member::ReadyForRound{});
  }
  for (const size_t i : {1u, 2u}) {
    ASSERT_TRUE(agents[i]->wait_rounds(2));
    EXPECT_EQ(agents[i]->rounds[1].nodes, 2);
  }
  ASSERT_TRUE(run_until(loop, [&] { return host.has_said("this node is the host"); }));
  EXPECT_FALSE(closed);
  const auto line = [&](size_t i) {
    const membership::Round& round = agents[i]->rounds[1];
    return NodeLine{round.node_rank, "node" + std::to_string(i), round.base_rank,
                    static_cast<int>(i) + 1, "running"};
  };
  Lines expected = {line(1), line(2)};
  std::ranges::sort(expected, {}, &NodeLine::node_rank);
  EXPECT_TRUE(answers(loop, *agents[1], expected));
  agents[1]->meeting().tell(member::WorkersDone{agents[1]->rounds[1].epoch});
  expected[static_cast<size_t>(agents[1]->rounds[1].node_rank)].state = "done";
  EXPECT_TRUE(answers(loop, *agents[2], expected));
  EXPECT_FALSE(closed);
  agents[2]->meeting().tell(member::WorkersDone{agents[2]->rounds[1].epoch});
  for (const size_t i : {1u, 2u}) {
    ASSERT_TRUE(agents[i]->wait_end());
    EXPECT_EQ(agents[i]->ends[0].exit_code, 0);
    EXPECT_TRUE(agents[i]->close_and_wait());
  }
  EXPECT_TRUE(run_until(loop, [&] { return closed; }));
}

}  // namespace
}  // namespace muster
