// Datagrams between the nodes of an epoch: whole agents over real sockets, each with its thread.
#include <future>
#include <string>
#include <vector>

#include "rendezvous/backends/threaded_rendezvous.h"
#include "rendezvous/base/steady_now.h"
#include "tests/unit/rendezvous/backends/rendezvous_harness.h"

namespace muster {
namespace {

using membership::Datagram;
using membership::Delivered;

Agents start_round(boost::asio::io_context& loop, const RendezvousOptions& given, int count) {
  Agents agents;
  RendezvousOptions options = given;
  for (int i = 0; i < count; ++i) {
    options.is_host = i == 0;
    options.join.host_name = "node" + std::to_string(i);
    agents.push_back(std::make_unique<TestAgent>(loop, options));
    EXPECT_TRUE(agents.back()->was_made());
    agents.back()->meeting().tell(member::ReadyForRound{});
  }
  EXPECT_TRUE(all_have_rounds(loop, agents, 1));
  return agents;
}

TEST(MeetingDatagrams, ReachOneOrAllOtherNodesWithTranslatedTimes) {
  boost::asio::io_context loop;
  const Agents agents = start_round(loop, endpoint_options(free_port(), 3, 3), 3);
  const int first = agents[0]->rounds[0].node_rank;
  const Instant at = steady_now();
  agents[2]->meeting().send({1, first, at, {}, "to one"});
  agents[2]->meeting().send({1, -1, at, {}, "to all"});
  ASSERT_TRUE(run_until(
      loop, [&] { return agents[0]->datagrams.size() == 2 && agents[1]->datagrams.size() == 1; }));
  EXPECT_EQ(agents[0]->datagrams[0].payload, "to one");
  for (const size_t i : {0u, 1u}) {
    const Delivered& got = agents[i]->datagrams.back();
    EXPECT_EQ(got.payload, "to all");
    EXPECT_EQ(got.from, agents[2]->rounds[0].node_rank);
    EXPECT_LE(got.at - at, got.at_error);
    EXPECT_LE(at - got.at, got.at_error);
  }
  EXPECT_TRUE(agents[2]->datagrams.empty());
}

TEST(MeetingDatagrams, AreDroppedAfterTheirEpoch) {
  boost::asio::io_context loop;
  const Agents agents = start_round(loop, endpoint_options(free_port(), 2, 2), 2);
  membership::NodeFailure failure;
  failure.exit_code = 3;
  agents[0]->meeting().tell(member::WorkerFailed{1, failure});
  for (const auto& agent : agents) {
    ASSERT_TRUE(agent->wait_stops(agent == agents[0] ? 0 : 1));
    agent->meeting().tell(member::ReadyForRound{});
  }
  ASSERT_TRUE(all_have_rounds(loop, agents, 2));
  agents[0]->meeting().send({1, -1, steady_now(), {}, "old"});
  agents[0]->meeting().send({2, -1, steady_now(), {}, "new"});
  ASSERT_TRUE(run_until(loop, [&] { return !agents[1]->datagrams.empty(); }));
  EXPECT_EQ(agents[1]->datagrams[0].payload, "new");
}

TEST(MeetingDatagrams, GoNowhereFromASingleNode) {
  boost::asio::io_context loop;
  TestAgent agent(loop, RendezvousOptions());
  agent.meeting().tell(member::ReadyForRound{});
  ASSERT_TRUE(agent.wait_rounds(1));
  agent.meeting().send({agent.rounds[0].epoch, -1, steady_now(), {}, "hello?"});
  EXPECT_TRUE(agent.close_and_wait());
  EXPECT_TRUE(agent.datagrams.empty());
}

// Returns every datagram to its sender at once and signals the last one.
class Echo : public Rendezvous {
 public:
  Echo(Handlers handlers, std::promise<void>& last_came)
      : handlers_(std::move(handlers)), last_came_(last_came) {}
  void tell(News) override {}
  std::string status() override { return {}; }
  void nodes(std::function<void(std::vector<membership::NodeLine>)> done) override { done({}); }
  void close(std::function<void()> closed) override { closed(); }
  void send(Datagram datagram) override {
    handlers_.datagram({datagram.epoch, 0, datagram.at, {}, datagram.payload});
    if (datagram.to == -1) last_came_.set_value();
  }

 private:
  Handlers handlers_;
  std::promise<void>& last_came_;
};

TEST(MeetingDatagrams, AreDroppedWhileTheAgentIsStuck) {
  boost::asio::io_context loop;
  std::promise<void> last_came;
  size_t bytes = 0;
  std::string newest;
  Rendezvous::Handlers on;
  on.datagram = [&](const Delivered& one) {
    bytes += one.payload.size();
    newest = one.payload;
  };
  auto made = ThreadedRendezvous::start(
      loop, on, [&](boost::asio::io_context&, const Rendezvous::Handlers& inner) {
        return Result<std::unique_ptr<Rendezvous>>(std::make_unique<Echo>(inner, last_came));
      });
  ASSERT_TRUE(made);
  Rendezvous& rendezvous = **made;
  const std::string large(membership::kDatagramBytesMax, 'x');
  for (int i = 0; i < 4000; ++i)
    rendezvous.send({1, i == 3999 ? -1 : 0, {}, {}, large});
  last_came.get_future().wait();
  bool closed = false;  // Queued after the datagrams.
  rendezvous.close([&] { closed = true; });
  ASSERT_TRUE(run_until(loop, [&] { return closed; }));
  EXPECT_GT(bytes, size_t{8} << 20);
  EXPECT_LE(bytes, size_t{17} << 20);
  rendezvous.send({1, 0, {}, {}, "after"});
  EXPECT_TRUE(run_until(loop, [&] { return newest == "after"; }));
}

}  // namespace
}  // namespace muster
