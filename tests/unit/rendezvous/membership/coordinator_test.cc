#include "rendezvous/membership/coordinator.h"

#include <string>
#include <variant>
#include <vector>

#include "rendezvous/membership/job_token.h"
#include "rendezvous/membership/random_ids.h"
#include "rendezvous/membership/store_probe.h"
#include "tests/unit/rendezvous/backends/rendezvous_harness.h"
#include "tests/unit/rendezvous/membership/raw_agent.h"
#include "tests/unit/rendezvous/store/store_harness.h"

namespace muster {
namespace {

using membership::AgentMessage;
using membership::Challenge;
using membership::Hello;
using membership::HostMessage;
using membership::Join;
using membership::Order;
using membership::RefusalKind;
using membership::Refused;
using membership::Report;
using membership::Welcome;

class Host {
 public:
  explicit Host(boost::asio::io_context& loop, Coordinator::Options options = {},
                const ListenOptions& listen = {}) {
    auto listener = Listener::open(loop, {SocketAddress{IpAddress::loopback_v4(), 0}}, listen);
    if (options.job_id.empty()) options.job_id = "job";
    options.membership.host_instance = 42;
    options.say = [this](const std::string& text) { said.push_back(text); };
    coordinator = std::make_unique<Coordinator>(loop, std::move(*listener), std::move(options));
  }
  int port() const { return coordinator->port(); }

  std::vector<std::string> said;
  std::unique_ptr<Coordinator> coordinator;
};

Join join_of(int nodes) {
  Join join;
  join.agent = random_agent_id();
  join.host_name = "node";
  join.dialled = join.advertised = "127.0.0.1";
  join.nodes_min = join.nodes_max = nodes;
  join.join_timeout = std::chrono::seconds(100);
  join.last_call = std::chrono::seconds(30);
  join.lease = std::chrono::seconds(30);
  return join;
}

Report first_report() {
  Report report;
  report.sequence = 1;
  return report;
}

// Performs the handshake up to the welcome.
std::unique_ptr<RawAgent> joined_agent(boost::asio::io_context& loop, int port, const Join& join,
                                       const std::string& job = "job") {
  auto agent = std::make_unique<RawAgent>(loop, port);
  EXPECT_TRUE(agent->join(join, job));
  EXPECT_TRUE(std::holds_alternative<Welcome>(agent->messages[1]));
  return agent;
}

TEST(Coordinator, RefusesAnotherVersionWithTheReason) {
  boost::asio::io_context loop;
  const Host host(loop);
  RawAgent agent(loop, host.port());
  agent.hello({static_cast<uint16_t>(membership::kProtocolVersion + 1), "job", {}});
  ASSERT_TRUE(agent.wait_messages(1));
  EXPECT_EQ(agent.last<Refused>().kind, RefusalKind::version);
  EXPECT_TRUE(agent.wait_closed());
}

TEST(Coordinator, ProvesTheTokenToAnAgentThatProvesIt) {
  boost::asio::io_context loop;
  Coordinator::Options options;
  options.token = "secret";
  const Host host(loop, options);
  const membership::Nonce nonce = random_nonce();
  RawAgent agent(loop, host.port());
  agent.hello({membership::kProtocolVersion, "job", nonce});
  ASSERT_TRUE(agent.wait_messages(1));
  const Challenge challenge = agent.last<Challenge>();
  EXPECT_TRUE(challenge.token);
  agent.seal(membership::frame_seals("secret", "job", nonce, challenge.nonce));
  agent.send(AgentMessage(join_of(1)));
  ASSERT_TRUE(agent.wait_messages(2));
  EXPECT_EQ(agent.last<Welcome>().host_instance, 42u);  // The host's seal verified.
}

TEST(Coordinator, RefusesAWrongToken) {
  boost::asio::io_context loop;
  Coordinator::Options options;
  options.token = "secret";
  const Host host(loop, options);
  RawAgent agent(loop, host.port());
  ASSERT_TRUE(agent.join(join_of(1), "other"));
  EXPECT_EQ(agent.last<Refused>().kind, RefusalKind::token);
  EXPECT_TRUE(agent.wait_closed());
  EXPECT_EQ(host.coordinator->counters(), (Coordinator::Counters{0, 1, 0, 0, 0, 1}));
}

TEST(Coordinator, WarnsOnceOfAMissingTokenUnlessOnLoopback) {
  boost::asio::io_context loop;
  auto everywhere = Listener::open(loop, {SocketAddress{IpAddress::any_v4(), 0}}, ListenOptions());
  ASSERT_TRUE(everywhere);
  std::vector<std::string> said;
  Coordinator::Options options;
  options.job_id = "job";
  options.say = [&](const std::string& text) { said.push_back(text); };
  const Coordinator open(loop, std::move(*everywhere), options);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find("no job token"), std::string::npos);

  const Host on_loopback(loop);
  EXPECT_EQ(on_loopback.said, std::vector<std::string>{});
}

TEST(Coordinator, FormsARoundAndServesTheStoreAtTheSharedPort) {
  boost::asio::io_context loop;
  const Host host(loop);
  const auto agent = joined_agent(loop, host.port(), join_of(1));
  agent->send(AgentMessage(first_report()));
  ASSERT_TRUE(run_until(loop, [&] {
    return std::holds_alternative<Order>(agent->messages.back()) &&
           std::holds_alternative<membership::Round>(std::get<Order>(agent->messages.back()).what);
  }));
  const auto round = std::get<membership::Round>(agent->last<Order>().what);
  EXPECT_EQ(round.master_port, host.port());
  EXPECT_EQ(round.epoch, 1u);

  // PING is answered with its nonce.
  RawAgent worker(loop, host.port());
  worker.send(store_test::kValidate + store_test::ping(7));
  EXPECT_TRUE(run_until(loop, [&] { return worker.received.size() == 4 || worker.closed; }));
  EXPECT_EQ(worker.received, std::string("\x07\0\0\0", 4));
  EXPECT_EQ(host.said, std::vector<std::string>{});
}

TEST(Coordinator, ReportsEarlyStoreClientsOnceAndHangsUp) {
  boost::asio::io_context loop;
  const Host host(loop);
  for (int i = 0; i < 3; ++i) {
    RawAgent client(loop, host.port());
    client.send(store_test::kValidate);
    EXPECT_TRUE(client.wait_closed());
  }
  ASSERT_EQ(host.said.size(), 1u);
  EXPECT_NE(host.said[0].find("torchrun"), std::string::npos);
  EXPECT_NE(host.said[0].find("127.0.0.1"), std::string::npos);
}

TEST(Coordinator, HangsUpOnAStoreProbeWithoutAReport) {
  boost::asio::io_context loop;
  const Host host(loop);
  const auto ask = [&] {
    RawAgent asker(loop, host.port());
    asker.send(store_question());
    EXPECT_TRUE(asker.wait_closed());
    EXPECT_EQ(asker.received, "");
  };
  ask();
  const auto agent = joined_agent(loop, host.port(), join_of(1));
  agent->send(AgentMessage(first_report()));
  ASSERT_TRUE(run_until(loop, [&] {
    const auto* order = std::get_if<Order>(&agent->messages.back());
    return order != nullptr && std::holds_alternative<membership::Round>(order->what);
  }));
  ask();  // Now there is a store behind this port.
  EXPECT_EQ(host.said, std::vector<std::string>{});
}

TEST(Coordinator, ReportsAStrangerAndHangsUp) {
  boost::asio::io_context loop;
  const Host host(loop);
  RawAgent client(loop, host.port());
  client.send("GET /metrics HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(client.wait_closed());
  ASSERT_EQ(host.said.size(), 1u);
  EXPECT_NE(host.said[0].find("HTTP"), std::string::npos);
}

TEST(Coordinator, HostileBytesCloseOnlyTheSendersConnection) {
  boost::asio::io_context loop;
  const Host host(loop);
  const auto good = joined_agent(loop, host.port(), join_of(2));
  for (const std::string& frame : {
           std::string("\xff\xff\xff\xff\x01"),
           std::string("\x01\x20\x00\x00\x01", 5),  // Too large before authentication.
           std::string("\x01\x00\x00\x00\xee", 5),  // An unknown type.
           bytes_of(AgentMessage(first_report())),  // Out of turn.
           bytes_of(HostMessage(membership::Alive{1})),
       }) {
    RawAgent bad(loop, host.port());
    bad.send(std::string(membership::kMagic) + frame);
    EXPECT_TRUE(bad.wait_closed());
    EXPECT_TRUE(bad.messages.empty());
  }
  EXPECT_FALSE(good->closed);
  EXPECT_EQ(host.coordinator->counters(), (Coordinator::Counters{1, 0, 5, 0, 1, 1}));
}

TEST(Coordinator, RandomBytesAfterTheMagicHarmNoOtherAgent) {
  boost::asio::io_context loop;
  const Host host(loop);
  const auto good = joined_agent(loop, host.port(), join_of(2));
  Prng prng(1);
  std::vector<std::unique_ptr<RawAgent>> bad;
  for (int i = 0; i < 200; ++i) {
    bad.push_back(std::make_unique<RawAgent>(loop, host.port()));
    std::string bytes(membership::kMagic);
    for (uint64_t n = prng.below(200); n > 0; --n)
      bytes += static_cast<char>(prng.below(256));
    bad.back()->send(bytes);
  }
  good->send(AgentMessage(first_report()));
  bad.clear();
  const auto second = joined_agent(loop, host.port(), join_of(2));
  second->send(AgentMessage(first_report()));
  for (const RawAgent* agent : {good.get(), second.get()}) {
    EXPECT_TRUE(run_until(loop, [&] {
      const auto* order = std::get_if<Order>(&agent->messages.back());
      return order != nullptr && std::holds_alternative<membership::Round>(order->what);
    }));
  }
}

TEST(Coordinator, HangsUpOnAnUnfinishedHandshake) {
  boost::asio::io_context loop;
  Coordinator::Options options;
  options.handshake_limit = std::chrono::milliseconds(30);
  const Host host(loop, options);
  RawAgent agent(loop, host.port());
  agent.hello({membership::kProtocolVersion, "job", {}});
  ASSERT_TRUE(agent.wait_messages(1));
  EXPECT_TRUE(agent.wait_closed());
  EXPECT_EQ(host.coordinator->counters().timed_out, 1u);
}

TEST(Coordinator, EndsTheHandshakeLimitWithTheJoin) {
  boost::asio::io_context loop;
  Coordinator::Options options;
  options.handshake_limit = std::chrono::milliseconds(300);
  const Host host(loop, options);
  const auto agent = joined_agent(loop, host.port(), join_of(2));
  loop.restart();
  loop.run_for(std::chrono::milliseconds(500));
  EXPECT_FALSE(agent->closed);
  EXPECT_EQ(host.coordinator->counters().timed_out, 0u);
}

TEST(Coordinator, EvictsUnauthenticatedAgentsButNoMember) {
  boost::asio::io_context loop;
  ListenOptions listen;
  listen.places = std::make_shared<Places>(3);
  const Host host(loop, {}, listen);
  const auto member = joined_agent(loop, host.port(), join_of(2));
  std::vector<std::unique_ptr<RawAgent>> strangers;
  for (int i = 0; i < 20; ++i) {
    strangers.push_back(std::make_unique<RawAgent>(loop, host.port()));
    strangers.back()->hello({membership::kProtocolVersion, "job", {}});
  }
  for (int i = 0; i < 18; ++i) {
    EXPECT_TRUE(strangers[static_cast<size_t>(i)]->wait_closed());
  }
  const auto second = joined_agent(loop, host.port(), join_of(2));
  EXPECT_FALSE(member->closed);
  EXPECT_EQ(host.coordinator->counters().joined, 2u);
  EXPECT_LE(host.coordinator->counters().sessions, 3u);
}

TEST(Coordinator, AcceptsAThousandAgentsOfOneMachineAtOnce) {
  boost::asio::io_context loop;
  ListenOptions listen;
  listen.places = std::make_shared<Places>(1000);
  const Host host(loop, {}, listen);
  std::vector<std::unique_ptr<RawAgent>> agents;
  for (int i = 0; i < 1000; ++i) {
    agents.push_back(std::make_unique<RawAgent>(loop, host.port()));
    agents.back()->hello({membership::kProtocolVersion, "job", random_nonce()});
  }
  for (const auto& agent : agents) {
    ASSERT_TRUE(agent->wait_messages(1));
    agent->send(AgentMessage(join_of(1000)));
  }
  for (const auto& agent : agents)
    ASSERT_TRUE(agent->wait_messages(2));
  EXPECT_EQ(host.coordinator->counters(), (Coordinator::Counters{1000, 0, 0, 0, 1000, 1}));
  EXPECT_EQ(host.said, std::vector<std::string>{});
}

TEST(Coordinator, RefusesTooManyAgents) {
  boost::asio::io_context loop;
  Coordinator::Options options;
  options.agents_max = 1;
  const Host host(loop, options);
  const auto first = joined_agent(loop, host.port(), join_of(2));
  RawAgent second(loop, host.port());
  ASSERT_TRUE(second.join(join_of(2)));
  EXPECT_EQ(second.last<Refused>().kind, RefusalKind::full);
  EXPECT_FALSE(first->closed);
}

TEST(Coordinator, RefusesANodeThatContradictsTheJob) {
  boost::asio::io_context loop;
  const Host host(loop);
  const auto first = joined_agent(loop, host.port(), join_of(2));
  RawAgent second(loop, host.port());
  ASSERT_TRUE(second.join(join_of(3)));
  EXPECT_EQ(second.last<Refused>().kind, RefusalKind::contradiction);
  EXPECT_TRUE(second.wait_closed());
}

// The only node of a job joins and leaves before the job begins.
void join_and_leave(boost::asio::io_context& loop, const Host& host, const std::string& job) {
  const auto agent = joined_agent(loop, host.port(), join_of(2), job);
  agent->send(AgentMessage(membership::Goodbye{}));
  EXPECT_TRUE(run_until(loop, [&] { return host.coordinator->counters().sessions == 0; })) << job;
}

TEST(Coordinator, ForgetsAJobOnceThatItsNodesLeftTwiceBeforeItBegan) {
  boost::asio::io_context loop;
  const Host host(loop);
  for (const char* job : {"a", "a"})
    join_and_leave(loop, host, job);
  for (int i = 0; i < 80; ++i)  // More than it remembers.
    join_and_leave(loop, host, std::to_string(i));
  EXPECT_LT(host.coordinator->counters().jobs, 70U);
}

TEST(Coordinator, IsIdleWithoutAgents) {
  boost::asio::io_context loop;
  const Host host(loop);
  bool idle = false;
  host.coordinator->wait_until_idle([&] { idle = true; });
  EXPECT_TRUE(run_until(loop, [&] { return idle; }));
}

// The agent reports every second until the host says why it stays.
void expect_to_stay(boost::asio::io_context& loop, Host& host, RawAgent& agent,
                    const std::string& job) {
  bool idle = false;
  host.coordinator->wait_until_idle([&] { idle = true; });
  Report report;
  EXPECT_TRUE(run_until(loop, [&, beat_at = std::chrono::steady_clock::now()]() mutable {
    if (std::chrono::steady_clock::now() >= beat_at) {
      beat_at += std::chrono::seconds{1};
      ++report.sequence;
      agent.send(AgentMessage(report));
    }
    return !host.said.empty() || idle;
  }));
  EXPECT_FALSE(idle);
  ASSERT_FALSE(host.said.empty());
  EXPECT_NE(host.said[0].find("it stays until the agent of job '" + job), std::string::npos);
}

TEST(Coordinator, StaysWhileAnotherAgentNeedsItAndSaysSo) {
  boost::asio::io_context loop;
  Host host(loop);
  auto agent = joined_agent(loop, host.port(), join_of(2));
  expect_to_stay(loop, host, *agent, "job");
  bool idle = false;
  agent.reset();
  host.coordinator->wait_until_idle([&] { idle = true; });
  EXPECT_TRUE(run_until(loop, [&] { return idle; }));
}

TEST(Coordinator, StaysForAJobWhoseNodesLeftAndCameBack) {
  boost::asio::io_context loop;
  Host host(loop);
  join_and_leave(loop, host, "b");
  const auto agent = joined_agent(loop, host.port(), join_of(2), "b");
  expect_to_stay(loop, host, *agent, "b");
}

}  // namespace
}  // namespace muster
