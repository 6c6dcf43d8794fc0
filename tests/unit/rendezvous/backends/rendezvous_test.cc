#include "rendezvous/backends/rendezvous.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "rendezvous/store/store_client.h"
#include "tests/unit/rendezvous/backends/rendezvous_harness.h"

namespace muster {
namespace {

using std::chrono::seconds;

StoreClient::Options store_at(const membership::Round& round) {
  return {round.master_addr, static_cast<uint16_t>(round.master_port), seconds(20), seconds(20)};
}

membership::NodeFailure failure_of(int rank) {
  membership::NodeFailure failure;
  failure.rank = rank;
  failure.exit_code = 7;
  failure.sentence = "exited with 7";
  return failure;
}

Agents start_agents(boost::asio::io_context& loop, const RendezvousOptions& options, int count) {
  Agents agents;
  for (int i = 0; i < count; ++i) {
    RendezvousOptions own = options;
    own.join.host_name = "node" + std::to_string(i);
    agents.push_back(std::make_unique<TestAgent>(loop, own));
    agents.back()->meeting().tell(member::ReadyForRound{});
  }
  return agents;
}

RendezvousOptions solo_options(int slots) {
  RendezvousOptions options;
  options.job_id = "job";
  options.join.slots = slots;
  return options;
}

// ---- one node alone

TEST(SoloMeeting, ARoundFormsAtOnceWithItsOwnStore) {
  boost::asio::io_context loop;
  TestAgent agent(loop, solo_options(4));
  agent.meeting().tell(member::ReadyForRound{});
  ASSERT_TRUE(agent.wait_rounds(1));
  membership::Round expected;
  expected.epoch = 1;
  expected.world_size = expected.role_world_size = 4;
  expected.master_addr = "127.0.0.1";
  expected.master_port = agent.rounds[0].master_port;
  expected.worker_secret = agent.rounds[0].worker_secret;
  EXPECT_EQ(agent.rounds[0], expected);
  EXPECT_EQ(expected.worker_secret.size(), sizeof(Mac));

  auto store = StoreClient::connect(store_at(agent.rounds[0]));
  ASSERT_TRUE(store);
  EXPECT_TRUE(store->set("key", "value"));
  EXPECT_EQ(store->get("key"), "value");
}

TEST(SoloMeeting, TheNextRoundHasANewStoreAndDropsOldClients) {
  boost::asio::io_context loop;
  TestAgent agent(loop, solo_options(1));
  agent.meeting().tell(member::ReadyForRound{});
  ASSERT_TRUE(agent.wait_rounds(1));
  auto old_store = StoreClient::connect(store_at(agent.rounds[0]));
  ASSERT_TRUE(old_store);
  ASSERT_TRUE(old_store->set("key", "old"));

  agent.meeting().tell(member::WorkerFailed{1, failure_of(0)});
  agent.meeting().tell(member::ReadyForRound{});
  ASSERT_TRUE(agent.wait_rounds(2));
  EXPECT_EQ(agent.rounds[1].epoch, 2u);
  EXPECT_EQ(agent.rounds[1].restarts, 1);
  EXPECT_FALSE(old_store->get("key"));
  auto store = StoreClient::connect(store_at(agent.rounds[1]));
  ASSERT_TRUE(store);
  EXPECT_EQ(store->check({"key"}), false);
}

TEST(SoloMeeting, SuccessEndsTheJob) {
  boost::asio::io_context loop;
  TestAgent agent(loop, solo_options(1));
  agent.meeting().tell(member::ReadyForRound{});
  ASSERT_TRUE(agent.wait_rounds(1));
  agent.meeting().tell(member::WorkersDone{1});
  ASSERT_TRUE(agent.wait_end());
  EXPECT_EQ(agent.ends[0].why, membership::EndWhy::success);
  EXPECT_EQ(agent.ends[0].exit_code, 0);
  EXPECT_TRUE(agent.close_and_wait());
}

TEST(SoloMeeting, AFailureDoesNotEndTheJob) {
  boost::asio::io_context loop;
  TestAgent agent(loop, solo_options(1));
  agent.meeting().tell(member::ReadyForRound{});
  ASSERT_TRUE(agent.wait_rounds(1));
  agent.meeting().tell(member::WorkerFailed{1, failure_of(0)});
  agent.meeting().tell(member::Leaving{15, false});
  ASSERT_TRUE(run_until(loop, [&] { return agent.leaves_announced == 1; }));
  EXPECT_TRUE(agent.ends.empty());
  EXPECT_TRUE(agent.stops.empty());
}

TEST(SoloMeeting, ARequestedPortStaysTheSame) {
  boost::asio::io_context loop;
  RendezvousOptions options = solo_options(1);
  options.port = free_port();
  TestAgent agent(loop, options);
  agent.meeting().tell(member::ReadyForRound{});
  ASSERT_TRUE(agent.wait_rounds(1));
  agent.meeting().tell(member::ReadyForRound{});
  ASSERT_TRUE(agent.wait_rounds(2));
  EXPECT_EQ(agent.rounds[0].master_port, options.port);
  EXPECT_EQ(agent.rounds[1].master_port, options.port);
  EXPECT_TRUE(StoreClient::connect(store_at(agent.rounds[1])));
}

TEST(SoloMeeting, ATakenPortIsRefusedAtOnce) {
  boost::asio::io_context loop;
  RendezvousOptions options = solo_options(1);
  options.worker_port = free_port();
  const TestAgent first(loop, options);
  const TestAgent second(loop, options);
  EXPECT_TRUE(first.was_made());
  ASSERT_FALSE(second.was_made());
  EXPECT_NE(second.errors[0].message.find(std::to_string(*options.worker_port)), std::string::npos);
}

TEST(SoloMeeting, AHostNameIsPublishedAsTyped) {
  boost::asio::io_context loop;
  RendezvousOptions options = solo_options(1);
  options.host = "localhost";
  TestAgent agent(loop, options);
  agent.meeting().tell(member::ReadyForRound{});
  ASSERT_TRUE(agent.wait_rounds(1));
  EXPECT_EQ(agent.rounds[0].master_addr, "localhost");
  EXPECT_TRUE(StoreClient::connect(store_at(agent.rounds[0])));
}

// ---- several nodes at an endpoint

TEST(EndpointMeeting, TwoAgentsFormARoundAndShareItsStore) {
  boost::asio::io_context loop;
  const Agents agents = start_agents(loop, endpoint_options(free_port(), 2, 2), 2);
  ASSERT_TRUE(all_have_rounds(loop, agents, 1));
  const membership::Round& a = agents[0]->rounds[0];
  const membership::Round& b = agents[1]->rounds[0];
  EXPECT_EQ(a.nodes, 2);
  EXPECT_EQ(a.world_size, 2);
  EXPECT_EQ(a.node_rank + b.node_rank, 1);
  EXPECT_EQ(a.master_port, b.master_port);
  EXPECT_EQ(a.master_addr, "127.0.0.1");
  EXPECT_EQ(a.worker_secret.size(), sizeof(Mac));
  EXPECT_EQ(a.worker_secret, b.worker_secret);

  auto first = StoreClient::connect(store_at(a));
  auto second = StoreClient::connect(store_at(b));
  ASSERT_TRUE(first);
  ASSERT_TRUE(second);
  EXPECT_TRUE(first->set("from", "a"));
  EXPECT_EQ(second->get("from"), "a");
}

TEST(EndpointMeeting, SixtyFourAgentsGetDenseRanks) {
  boost::asio::io_context loop;
  RendezvousOptions options = endpoint_options(free_port(), 64, 64);
  options.join.slots = 8;
  const Agents agents = start_agents(loop, options, 64);
  ASSERT_TRUE(all_have_rounds(loop, agents, 1));
  std::set<int> ranks;
  for (const auto& agent : agents) {
    const membership::Round& round = agent->rounds[0];
    EXPECT_EQ(round.epoch, agents[0]->rounds[0].epoch);
    EXPECT_EQ(round.world_size, 512);
    EXPECT_EQ(round.base_rank, 8 * round.node_rank);
    ranks.insert(round.node_rank);
  }
  EXPECT_EQ(ranks.size(), 64u);
  EXPECT_EQ(*ranks.begin(), 0);
  EXPECT_EQ(*ranks.rbegin(), 63);
}

TEST(EndpointMeeting, AFailureStopsAllAndANewRoundHasAnEmptyStore) {
  boost::asio::io_context loop;
  const Agents agents = start_agents(loop, endpoint_options(free_port(), 2, 2), 2);
  ASSERT_TRUE(all_have_rounds(loop, agents, 1));
  const membership::Round first = agents[0]->rounds[0];
  auto old_store = StoreClient::connect(store_at(first));
  ASSERT_TRUE(old_store);
  ASSERT_TRUE(old_store->set("key", "old"));

  agents[1]->meeting().tell(member::WorkerFailed{first.epoch, failure_of(1)});
  ASSERT_TRUE(agents[0]->wait_stops(1));
  EXPECT_EQ(agents[0]->stops[0].why, membership::StopWhy::failure);
  agents[0]->meeting().tell(member::ReadyForRound{});
  agents[1]->meeting().tell(member::ReadyForRound{});
  ASSERT_TRUE(all_have_rounds(loop, agents, 2));
  const membership::Round& next = agents[0]->rounds[1];
  EXPECT_GT(next.epoch, first.epoch);
  EXPECT_EQ(next.node_rank, first.node_rank);
  EXPECT_EQ(next.restarts, 1);
  EXPECT_FALSE(old_store->get("key"));
  auto store = StoreClient::connect(store_at(next));
  ASSERT_TRUE(store);
  EXPECT_EQ(store->check({"key"}), false);
}

TEST(EndpointMeeting, NoStoreClientIsServedBetweenRounds) {
  boost::asio::io_context loop;
  const Agents agents = start_agents(loop, endpoint_options(free_port(), 2, 2), 2);
  ASSERT_TRUE(all_have_rounds(loop, agents, 1));
  const membership::Round round = agents[0]->rounds[0];
  agents[1]->meeting().tell(member::WorkerFailed{round.epoch, failure_of(1)});
  ASSERT_TRUE(agents[0]->wait_stops(1));
  agents[0]->meeting().tell(member::ReadyForRound{});
  agents[1]->meeting().tell(member::Leaving{15, true});
  ASSERT_TRUE(agents[0]->wait_end());
  StoreClient::Options impatient = store_at(round);
  impatient.connect_timeout = std::chrono::milliseconds(300);
  EXPECT_FALSE(StoreClient::connect(impatient));
}

TEST(EndpointMeeting, SuccessOfAllNodesEndsTheJob) {
  boost::asio::io_context loop;
  const Agents agents = start_agents(loop, endpoint_options(free_port(), 3, 3), 3);
  ASSERT_TRUE(all_have_rounds(loop, agents, 1));
  for (const auto& agent : agents)
    agent->meeting().tell(member::WorkersDone{agent->rounds[0].epoch});
  for (const auto& agent : agents) {
    ASSERT_TRUE(agent->wait_end());
    EXPECT_EQ(agent->ends[0].why, membership::EndWhy::success);
    EXPECT_EQ(agent->ends[0].exit_code, 0);
  }
  for (const auto& agent : agents)
    EXPECT_TRUE(agent->close_and_wait());
}

TEST(EndpointMeeting, TheVerdictIsTheSameEverywhere) {
  boost::asio::io_context loop;
  RendezvousOptions options = endpoint_options(free_port(), 3, 3);
  options.join.max_restarts = 0;
  const Agents agents = start_agents(loop, options, 3);
  ASSERT_TRUE(all_have_rounds(loop, agents, 1));
  const membership::Epoch epoch = agents[0]->rounds[0].epoch;
  agents[2]->meeting().tell(member::WorkerFailed{epoch, failure_of(2)});
  for (const auto& agent : {agents[0].get(), agents[1].get()})
    ASSERT_TRUE(agent->wait_stops(1));
  for (const auto& agent : agents)
    agent->meeting().tell(member::ReadyForRound{});
  for (const auto& agent : agents) {
    ASSERT_TRUE(agent->wait_end());
    EXPECT_EQ(agent->ends[0], agents[0]->ends[0]);
    EXPECT_EQ(agent->ends[0].exit_code, 7);
    EXPECT_EQ(agent->ends[0].why, membership::EndWhy::failed);
  }
}

TEST(EndpointMeeting, ALeavingNodeIsAnnouncedAndOthersContinue) {
  boost::asio::io_context loop;
  const Agents agents = start_agents(loop, endpoint_options(free_port(), 2, 3), 3);
  ASSERT_TRUE(all_have_rounds(loop, agents, 1));
  // Not the host, whose leaving has its own test.
  const auto leaver = std::find_if(agents.begin(), agents.end(), [](const auto& agent) {
    return agent->rounds[0].node_rank == 2;
  });
  (*leaver)->meeting().tell(member::Leaving{15, false});
  ASSERT_TRUE(run_until(loop, [&] { return (*leaver)->leaves_announced == 1; }));
  for (const auto& agent : agents) {
    if (agent == *leaver) continue;
    ASSERT_TRUE(agent->wait_stops(1));
    EXPECT_EQ(agent->stops[0].why, membership::StopWhy::left);
  }
  (*leaver)->meeting().tell(member::Leaving{15, true});
  EXPECT_TRUE((*leaver)->close_and_wait());
  for (const auto& agent : agents) {
    if (agent != *leaver) agent->meeting().tell(member::ReadyForRound{});
  }
  for (const auto& agent : agents) {
    if (agent == *leaver) continue;
    ASSERT_TRUE(agent->wait_rounds(2));
    EXPECT_EQ(agent->rounds[1].nodes, 2);
  }
}

TEST(EndpointMeeting, AnotherAgentReplacesAKilledHostInAHigherEpoch) {
  boost::asio::io_context loop;
  RendezvousOptions options = endpoint_options(free_port(), 2, 3);
  // The new host does not know whether the lost node returns, so this bounds its wait.
  options.join.last_call = seconds(5);
  const Agents agents = start_agents(loop, options, 3);
  ASSERT_TRUE(all_have_rounds(loop, agents, 1));
  const membership::Epoch before = agents[1]->rounds[0].epoch;
  const auto host = std::find_if(agents.begin(), agents.end(),
                                 [](const auto& agent) { return agent->rounds[0].node_rank == 0; });
  (*host)->kill();
  for (const auto& agent : agents) {
    if (!agent->was_made()) continue;
    ASSERT_TRUE(agent->wait_stops(1));
    EXPECT_EQ(agent->stops[0].why, membership::StopWhy::host);
    agent->meeting().tell(member::ReadyForRound{});
  }
  for (const auto& agent : agents) {
    if (!agent->was_made()) continue;
    ASSERT_TRUE(agent->wait_rounds(2));
    EXPECT_GT(agent->rounds[1].epoch, before);
    EXPECT_EQ(agent->rounds[1].nodes, 2);
  }
}

TEST(EndpointMeeting, JobsWithDifferentIdsAreMentionedToEachOther) {
  boost::asio::io_context loop;
  RendezvousOptions options = endpoint_options(free_port(), 2, 2);
  Agents agents;
  for (const std::string name : {"a", "b"}) {
    options.job_id = "exp-" + name;
    options.join.host_name = "node-" + name;
    agents.push_back(std::make_unique<TestAgent>(loop, options));
    agents.back()->meeting().tell(member::ReadyForRound{});
  }
  const auto told = [&](size_t agent, const std::string& text) {
    return run_until(loop, [&] { return agents[agent]->has_said(text); });
  };
  EXPECT_TRUE(told(0,
                   "job 'exp-b' (on node-b) waits here as well, and this is job 'exp-a': nodes "
                   "of one job need the same --rdzv-id"));
  EXPECT_TRUE(told(1,
                   "job 'exp-a' (on node-a) waits here as well, and this is job 'exp-b': nodes "
                   "of one job need the same --rdzv-id"));
  // Both jobs are intended: their other nodes join.
  for (const std::string name : {"a", "b"}) {
    options.job_id = "exp-" + name;
    agents.push_back(std::make_unique<TestAgent>(loop, options));
    agents.back()->meeting().tell(member::ReadyForRound{});
  }
  EXPECT_TRUE(all_have_rounds(loop, agents, 1));
}

TEST(EndpointMeeting, TwoJobsAtOneEndpointAreSeparateAndTheHostStays) {
  boost::asio::io_context loop;
  const int port = free_port();
  RendezvousOptions options = endpoint_options(port, 2, 2);
  const Agents first = start_agents(loop, options, 2);
  ASSERT_TRUE(all_have_rounds(loop, first, 1));
  options.job_id = "other";
  const Agents second = start_agents(loop, options, 2);
  ASSERT_TRUE(all_have_rounds(loop, second, 1));
  EXPECT_EQ(first[0]->rounds[0].master_port, port);
  EXPECT_NE(second[0]->rounds[0].master_port, port);

  auto one = StoreClient::connect(store_at(first[0]->rounds[0]));
  auto other = StoreClient::connect(store_at(second[0]->rounds[0]));
  ASSERT_TRUE(one);
  ASSERT_TRUE(other);
  EXPECT_TRUE(one->set("key", "one"));
  EXPECT_EQ(other->check({"key"}), false);

  // The first job ends; its host closes only once the second has gone.
  for (const auto& agent : first)
    agent->meeting().tell(member::WorkersDone{agent->rounds[0].epoch});
  size_t closed = 0;
  for (const auto& agent : first) {
    ASSERT_TRUE(agent->wait_end());
    agent->meeting().close([&] { ++closed; });
  }
  ASSERT_TRUE(run_until(loop, [&] { return closed == 1; }));
  EXPECT_TRUE(other->set("key", "still here"));
  ASSERT_TRUE(run_until(loop, [&] {
    return first[0]->has_said("it stays until") || first[1]->has_said("it stays until");
  }));
  EXPECT_EQ(closed, 1u);
  for (const auto& agent : second)
    agent->meeting().tell(member::WorkersDone{agent->rounds[0].epoch});
  for (const auto& agent : second) {
    ASSERT_TRUE(agent->wait_end());
    EXPECT_TRUE(agent->close_and_wait());
  }
  EXPECT_TRUE(run_until(loop, [&] { return closed == 2; }));
}

TEST(EndpointMeeting, TheWorkersStoreCanHaveItsOwnPort) {
  boost::asio::io_context loop;
  RendezvousOptions options = endpoint_options(free_port(), 2, 2);
  options.worker_port = free_port();
  const Agents agents = start_agents(loop, options, 2);
  ASSERT_TRUE(all_have_rounds(loop, agents, 1));
  for (const auto& agent : agents)
    EXPECT_EQ(agent->rounds[0].master_port, *options.worker_port);
  EXPECT_TRUE(StoreClient::connect(store_at(agents[0]->rounds[0])));
}

TEST(EndpointMeeting, ADesignatedHostSaysThatItsNameHasNoAddressHere) {
  boost::asio::io_context loop;
  RendezvousOptions options = endpoint_options(free_port(), 2, 2);
  options.fixed_master_addr = true;
  options.host = "no-such-host.invalid";
  options.is_host = true;
  TestAgent host(loop, options);
  host.meeting().tell(member::ReadyForRound{});
  EXPECT_TRUE(run_until(
      loop, [&] { return host.has_said("the name 'no-such-host.invalid' has no address here"); }));
}

TEST(EndpointMeeting, ADesignatedHostHostsAndReportsATakenPort) {
  boost::asio::io_context loop;
  RendezvousOptions options = endpoint_options(free_port(), 2, 2);
  options.fixed_master_addr = true;
  options.host = "localhost";
  options.is_host = true;
  options.join.node_rank = 0;
  TestAgent host(loop, options);
  host.meeting().tell(member::ReadyForRound{});
  RendezvousOptions other = options;
  other.is_host = false;
  other.join.node_rank = 1;
  TestAgent member(loop, other);
  member.meeting().tell(member::ReadyForRound{});
  ASSERT_TRUE(host.wait_rounds(1));
  ASSERT_TRUE(member.wait_rounds(1));
  EXPECT_EQ(host.rounds[0].node_rank, 0);
  EXPECT_EQ(member.rounds[0].node_rank, 1);
  EXPECT_EQ(member.rounds[0].master_addr, "localhost");
  EXPECT_EQ(member.rounds[0].master_port, options.port);

  TestAgent late(loop, options);
  late.meeting().tell(member::ReadyForRound{});
  ASSERT_TRUE(late.wait_error());
  EXPECT_EQ(late.errors[0].code, ExitCode::environment);
  EXPECT_NE(late.errors[0].message.find(std::to_string(options.port)), std::string::npos);
}

TEST(EndpointMeeting, ATokenAdmitsOnlyAgentsThatKnowIt) {
  boost::asio::io_context loop;
  RendezvousOptions options = endpoint_options(free_port(), 2, 2);
  options.token = "secret";
  options.is_host = true;
  TestAgent host(loop, options);
  host.meeting().tell(member::ReadyForRound{});
  options.is_host = false;
  RendezvousOptions wrong = options;
  wrong.token = "guess";
  TestAgent stranger(loop, wrong);
  stranger.meeting().tell(member::ReadyForRound{});
  wrong.token.clear();
  TestAgent without(loop, wrong);
  without.meeting().tell(member::ReadyForRound{});
  ASSERT_TRUE(stranger.wait_error());
  EXPECT_NE(stranger.errors[0].message.find("token"), std::string::npos);
  ASSERT_TRUE(without.wait_error());
  EXPECT_NE(without.errors[0].message.find("token"), std::string::npos);

  TestAgent friendly(loop, options);
  friendly.meeting().tell(member::ReadyForRound{});
  EXPECT_TRUE(host.wait_rounds(1));
  EXPECT_TRUE(friendly.wait_rounds(1));
}

TEST(EndpointMeeting, ARestartedHostContinuesTheJob) {
  boost::asio::io_context loop;
  RendezvousOptions options = endpoint_options(free_port(), 2, 2);
  options.is_host = true;
  options.join.node_rank = 0;
  auto host = std::make_unique<TestAgent>(loop, options);
  host->meeting().tell(member::ReadyForRound{});
  RendezvousOptions other = options;
  other.is_host = false;
  other.join.node_rank = 1;
  TestAgent member(loop, other);
  member.meeting().tell(member::ReadyForRound{});
  ASSERT_TRUE(member.wait_rounds(1));
  ASSERT_TRUE(host->wait_rounds(1));

  host = nullptr;
  ASSERT_TRUE(member.wait_stops(1));
  member.meeting().tell(member::ReadyForRound{});
  TestAgent returned(loop, options);
  returned.meeting().tell(member::ReadyForRound{});
  ASSERT_TRUE(member.wait_rounds(2));
  ASSERT_TRUE(returned.wait_rounds(1));
  EXPECT_EQ(member.rounds[1].epoch, returned.rounds[0].epoch);
  EXPECT_GT(member.rounds[1].epoch, member.rounds[0].epoch);
  EXPECT_EQ(member.rounds[1].node_rank, 1);
  EXPECT_EQ(returned.rounds[0].node_rank, 0);
}

TEST(EndpointMeeting, ADestroyedMeetingEndsAtOnceAndSilently) {
  boost::asio::io_context loop;
  RendezvousOptions options = endpoint_options(free_port(), 2, 2);
  options.host = "192.0.2.1";  // Neither answers nor refuses.
  TestAgent agent(loop, options);
  agent.meeting().tell(member::ReadyForRound{});
  const auto before = std::chrono::steady_clock::now();
  agent.kill();
  EXPECT_LT(std::chrono::steady_clock::now() - before, seconds(10));
  loop.restart();
  loop.run();
  EXPECT_TRUE(agent.rounds.empty());
  EXPECT_TRUE(agent.errors.empty());
}

TEST(EndpointMeeting, AnEndpointWithoutAPortIsRefused) {
  boost::asio::io_context loop;
  const TestAgent agent(loop, endpoint_options(0, 2, 2));
  ASSERT_FALSE(agent.was_made());
  EXPECT_EQ(agent.errors[0].code, ExitCode::usage);
}

}  // namespace
}  // namespace muster
