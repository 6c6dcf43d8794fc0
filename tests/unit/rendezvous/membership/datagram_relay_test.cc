// The host's relay of datagrams over real sockets: the harm that one bad agent can do.
#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/membership/coordinator.h"
#include "rendezvous/membership/datagram_budget.h"
#include "rendezvous/membership/random_ids.h"
#include "tests/unit/rendezvous/membership/raw_agent.h"

namespace muster {
namespace {

using membership::AgentMessage;
using membership::Datagram;
using membership::Delivered;

// A host and agents in its first round.
class DatagramRelay : public testing::Test {
 protected:
  // The last `asleep` agents stop reading once they are welcome.
  void start(size_t count, size_t asleep = 0) {
    auto listener =
        Listener::open(loop_, {SocketAddress{IpAddress::loopback_v4(), 0}}, ListenOptions());
    Coordinator::Options options;
    options.job_id = "job";
    options.multi_node = false;
    options.unsent_bytes_max = size_t{1} << 20;
    host_ = std::make_unique<Coordinator>(loop_, std::move(*listener), options);
    for (size_t i = 0; i < count; ++i)
      join(i + asleep < count ? loop_ : sleeping_loop_, count);
    for (const auto& agent : agents_)
      agent->send(report(1, membership::Phase::ready));
    for (size_t i = 0; i + asleep < count; ++i)
      wait([&] { return rank_of(*agents_[i]) >= 0; });
  }

  // Lets the sleeping agents read too.
  bool run_both_until(const std::function<bool()>& condition) {
    return run_until(loop_, [&] {
      sleeping_loop_.restart();
      sleeping_loop_.poll();
      return condition();
    });
  }
  void wait(const std::function<bool()>& condition) { ASSERT_TRUE(run_until(loop_, condition)); }

  void send(size_t agent, int to, std::string payload, membership::Epoch epoch = 1) {
    agents_[agent]->send(AgentMessage(Datagram{epoch, to, {}, {}, std::move(payload)}));
  }

  // Waits until the host has handled all that these agents sent, and they its answers.
  void settle(size_t count) {
    for (int turn = 0; turn < 2; ++turn) {
      ++reports_;
      for (size_t i = 0; i < count; ++i)
        agents_[i]->send(report(reports_, membership::Phase::running));
      for (size_t i = 0; i < count; ++i)
        wait([&] { return is_answered(*agents_[i], reports_); });
    }
  }

  static bool is_answered(const RawAgent& agent, uint64_t report) {
    return std::ranges::any_of(agent.messages, [&](const membership::HostMessage& message) {
      const auto* alive = std::get_if<membership::Alive>(&message);
      return alive != nullptr && alive->answers == report;
    });
  }

  static AgentMessage report(uint64_t sequence, membership::Phase phase) {
    membership::Report report;
    report.sequence = sequence;
    report.epoch = phase == membership::Phase::ready ? 0 : 1;
    report.phase = phase;
    return report;
  }

  static int rank_of(const RawAgent& agent) {
    for (const membership::HostMessage& message : agent.messages) {
      const auto* order = std::get_if<membership::Order>(&message);
      if (order && std::holds_alternative<membership::Round>(order->what))
        return std::get<membership::Round>(order->what).node_rank;
    }
    return -1;
  }
  int rank(size_t agent) const { return rank_of(*agents_[agent]); }

  std::vector<Delivered> got(size_t agent) const {
    std::vector<Delivered> all;
    for (const membership::HostMessage& message : agents_[agent]->messages) {
      if (const auto* one = std::get_if<Delivered>(&message)) all.push_back(*one);
    }
    return all;
  }

  boost::asio::io_context loop_;
  boost::asio::io_context sleeping_loop_;
  std::unique_ptr<Coordinator> host_;
  std::vector<std::unique_ptr<RawAgent>> agents_;

 private:
  void join(boost::asio::io_context& loop, size_t count) {
    agents_.push_back(std::make_unique<RawAgent>(loop, host_->port()));
    RawAgent& agent = *agents_.back();
    agent.hello({membership::kProtocolVersion, "job", random_nonce()});
    ASSERT_TRUE(run_both_until([&] { return agent.messages.size() >= 1; }));
    membership::Join join = endpoint_options(1, 1, 1).join;
    join.nodes_min = join.nodes_max = static_cast<int>(count);
    join.agent = random_agent_id();
    agent.send(AgentMessage(join));
    ASSERT_TRUE(run_both_until([&] { return agent.messages.size() >= 2; }));
  }

  uint64_t reports_ = 1;
};

TEST_F(DatagramRelay, RelaysEverythingAsSentAndAddsTheSendersRank) {
  start(2);
  const Instant at{std::chrono::hours(3)};
  agents_[0]->send(AgentMessage(Datagram{1, rank(1), at, Duration(7), std::string("a\0b", 3)}));
  wait([&] { return !got(1).empty(); });
  EXPECT_EQ(got(1)[0], (Delivered{1, rank(0), at, Duration(7), std::string("a\0b", 3)}));
  EXPECT_TRUE(got(0).empty());
}

TEST_F(DatagramRelay, BroadcastReachesEachOtherNodeOnceAndInOrder) {
  start(3);
  for (int i = 0; i < 20; ++i)
    send(1, -1, std::to_string(i));
  wait([&] { return got(0).size() == 20 && got(2).size() == 20; });
  for (const size_t agent : {0u, 2u}) {
    for (size_t i = 0; i < 20; ++i)
      EXPECT_EQ(got(agent)[i].payload, std::to_string(i));
  }
  settle(3);
  EXPECT_EQ(got(0).size() + got(1).size() + got(2).size(), 40u);
}

TEST_F(DatagramRelay, DropsOtherEpochsAndUnknownNodesSilently) {
  start(2);
  send(0, rank(1), "old", 0);
  send(0, rank(1), "new", 2);
  send(0, 2, "unknown");
  send(0, membership::kNodesMax, "unknown");
  send(0, rank(0), "myself");
  send(0, rank(1), "good");
  settle(2);
  ASSERT_EQ(got(1).size(), 1u);
  EXPECT_EQ(got(1)[0].payload, "good");
  EXPECT_TRUE(got(0).empty());
  EXPECT_EQ(host_->counters().broken, 0u);
}

TEST_F(DatagramRelay, CutsAFloodToItsBudget) {
  start(3);
  const auto begun = std::chrono::steady_clock::now();
  const std::string large(membership::kDatagramBytesMax, 'x');
  for (int i = 0; i < 600; ++i)
    send(0, -1, large);
  send(1, rank(2), "good");
  settle(3);
  const auto arrived = got(2);
  EXPECT_EQ(std::ranges::count(arrived, "good", &Delivered::payload), 1);
  const double charged = 2.0 * static_cast<double>(large.size() + DatagramBudget::kOverheadBytes);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  const double earned = static_cast<double>(DatagramBudget::kBurstBytes) +
                        seconds * static_cast<double>(DatagramBudget::kBytesInSecond);
  const auto floods = std::ranges::count(arrived, large, &Delivered::payload);
  EXPECT_GE(floods, 1);
  EXPECT_LE(static_cast<double>(floods), earned / charged + 1);
  EXPECT_EQ(host_->counters().broken, 0u);
  EXPECT_EQ(host_->counters().sessions, 3u);
  for (const membership::NodeLine& line : host_->nodes())
    EXPECT_EQ(line.state, "running");
}

TEST_F(DatagramRelay, KeepsTheConnectionOfAReceiverThatReadsNothing) {
  constexpr size_t kSenders = 12;
  start(kSenders + 1, 1);
  std::vector<bool> taken(kSenders + 1, false);
  for (size_t i = 0; i < kSenders; ++i)
    taken[static_cast<size_t>(rank(i))] = true;
  const int sleeper = static_cast<int>(std::ranges::find(taken, false) - taken.begin());
  const std::string large(membership::kDatagramBytesMax, 'x');
  for (size_t i = 0; i < kSenders; ++i) {
    for (int sent = 0; sent < 60; ++sent)  // Within the budget: 12 MiB in all.
      send(i, sleeper, large);
  }
  settle(kSenders);
  EXPECT_EQ(host_->counters().sessions, kSenders + 1);
  EXPECT_EQ(host_->counters().broken, 0u);
  EXPECT_TRUE(run_both_until([&] { return got(kSenders).size() > 1; }));
  send(0, sleeper, "late");
  EXPECT_TRUE(run_both_until([&] { return got(kSenders).back().payload == "late"; }));
  EXPECT_LT(got(kSenders).size(), 60 * kSenders);
}

TEST_F(DatagramRelay, MalformedDatagramEndsOnlyItsSendersConnection) {
  start(2);
  std::string bytes;
  membership::encode(AgentMessage(Datagram{1, rank(1), {}, {}, "x"}), bytes);
  bytes[13] = '\xfe';  // To node rank -2.
  for (const size_t i : {14u, 15u, 16u})
    bytes[i] = '\xff';
  agents_[0]->send(bytes);
  EXPECT_TRUE(agents_[0]->wait_closed());
  agents_[1]->send(report(2, membership::Phase::running));
  wait([&] { return is_answered(*agents_[1], 2); });
  EXPECT_TRUE(got(1).empty());
  EXPECT_EQ(host_->counters().broken, 1u);
}

}  // namespace
}  // namespace muster
