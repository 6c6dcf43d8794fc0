#include <memory>
#include <optional>
#include <string>

#include "rendezvous/backends/endpoint_finder.h"
#include "rendezvous/backends/file_keeper.h"
#include "rendezvous/backends/keeper_finder.h"
#include "tests/unit/rendezvous/backends/rendezvous_harness.h"
#include "tests/unit/rendezvous/backends/shared_folder.h"
#include "tests/unit/rendezvous/net/socket_harness.h"

namespace muster {
namespace {

// Dials once and waits for the outcome.
DialOutcome dial(boost::asio::io_context& loop, HostFinder& finder) {
  std::optional<DialOutcome> outcome;
  finder.dial(true, [&](DialOutcome came) { outcome = std::move(came); });
  EXPECT_FALSE(outcome);  // Never from inside the call.
  EXPECT_TRUE(run_until(loop, [&] { return outcome.has_value(); }));
  if (!outcome) return tl::unexpected(member::ConnectionFailed{});
  return std::move(*outcome);
}

HostFinder::Handlers who_must_not_host() {
  return {[](const HostFinder::Post&) { ADD_FAILURE(); }, {}, {}, {}, {}};
}

HostFinder::Handlers keep(std::unique_ptr<Listener>& listener) {
  return {
      [&listener](HostFinder::Post post) { listener = std::move(post.listener); }, {}, {}, {}, {}};
}

HostFinder::Handlers note(bool& hosting) {
  return {[&hosting](const HostFinder::Post&) { hosting = true; }, {}, {}, {}, {}};
}

EndpointFinder::Options at_port(int port, std::optional<bool> is_host = std::nullopt) {
  EndpointFinder::Options options;
  options.host = "127.0.0.1";
  options.port = port;
  options.is_host = is_host;
  return options;
}

TEST(EndpointFinder, TheFirstToDialHostsAndTheSecondReachesIt) {
  boost::asio::io_context loop;
  const int port = free_port();
  std::unique_ptr<Listener> listener;
  EndpointFinder first(loop, at_port(port), keep(listener));
  const auto own = dial(loop, first);
  ASSERT_TRUE(own);
  EXPECT_TRUE(own->own_host);
  ASSERT_NE(listener, nullptr);
  EXPECT_EQ(listener->port(), port);
  EndpointFinder second(loop, at_port(port), who_must_not_host());
  const auto other = dial(loop, second);
  ASSERT_TRUE(other);
  EXPECT_FALSE(other->own_host);
}

TEST(EndpointFinder, ANodeThatMustNotHostReportsThatNoProcessListens) {
  boost::asio::io_context loop;
  EndpointFinder finder(loop, at_port(free_port(), false), who_must_not_host());
  const auto outcome = dial(loop, finder);
  ASSERT_FALSE(outcome);
  EXPECT_TRUE(outcome.error().refused);
  EXPECT_FALSE(outcome.error().fatal);
}

// The kernel may have given the endpoint's port to an outgoing connection.
TEST(EndpointFinder, SaysThatALocalSocketHoldsThePortWithoutListening) {
  boost::asio::io_context loop;
  std::optional<PlainSocket> holder = PlainSocket::bound_to({IpAddress::loopback_v4(), 0}, -1);
  const int port = holder->own_address().port;
  EndpointFinder finder(loop, at_port(port), who_must_not_host());
  const auto outcome = dial(loop, finder);
  holder.reset();
  ASSERT_FALSE(outcome);
  EXPECT_FALSE(outcome.error().fatal);
  EXPECT_NE(
      outcome.error().error.message.find("something on it holds port " + std::to_string(port)),
      std::string::npos)
      << outcome.error().error.message;
  // Once the port is free, this node hosts.
  std::unique_ptr<Listener> listener;
  EndpointFinder again(loop, at_port(port), keep(listener));
  const auto own = dial(loop, again);
  ASSERT_TRUE(own);
  EXPECT_TRUE(own->own_host);
}

TEST(EndpointFinder, AMissingNameIsNotFatal) {
  boost::asio::io_context loop;
  bool exists = false;
  EndpointFinder::Options options = at_port(free_port());
  options.host = "pod-0.not-yet";
  const auto known = std::make_shared<bool>(false);
  options.look_up = [known](const std::string& host) -> NetResult<std::vector<IpAddress>> {
    if (*known) return std::vector<IpAddress>{IpAddress::loopback_v4()};
    return tl::unexpected(NetError{NetFailure::name_unknown, "no such name: " + host});
  };
  EndpointFinder finder(loop, options, note(exists));
  const auto early = dial(loop, finder);
  ASSERT_FALSE(early);
  EXPECT_FALSE(early.error().fatal);
  EXPECT_FALSE(early.error().refused);
  EXPECT_NE(early.error().error.message.find("pod-0.not-yet"), std::string::npos);
  EXPECT_FALSE(exists);
  *known = true;
  dial(loop, finder);
  EXPECT_TRUE(exists);
}

// A forwarder may answer before its host is up, so the next dial begins with an election.
TEST(EndpointFinder, HoldsAnElectionAfterAnotherAnswered) {
  boost::asio::io_context loop;
  const int port = free_port();
  std::unique_ptr<Listener> listener;
  EndpointFinder first(loop, at_port(port), keep(listener));
  first.answered_by_another();
  const auto own = dial(loop, first);
  ASSERT_TRUE(own);
  EXPECT_TRUE(own->own_host);
  EndpointFinder second(loop, at_port(port), who_must_not_host());
  second.answered_by_another();
  const auto other = dial(loop, second);
  ASSERT_TRUE(other);
  EXPECT_FALSE(other->own_host);
}

TEST(EndpointFinder, ANodeThatMustNotHostDoesNotHostAfterAnotherAnswered) {
  boost::asio::io_context loop;
  EndpointFinder finder(loop, at_port(free_port(), false), who_must_not_host());
  finder.answered_by_another();
  const auto outcome = dial(loop, finder);
  ASSERT_FALSE(outcome);
  EXPECT_TRUE(outcome.error().refused);
}

TEST(EndpointFinder, TheHostMayTakeAnyFreePort) {
  boost::asio::io_context loop;
  std::unique_ptr<Listener> listener;
  EndpointFinder finder(loop, at_port(0, true), keep(listener));
  const auto outcome = dial(loop, finder);
  ASSERT_TRUE(outcome);
  ASSERT_NE(listener, nullptr);
  EXPECT_NE(listener->port(), 0);
}

TEST(EndpointFinder, ACancelledDialIsNeverAnswered) {
  boost::asio::io_context loop;
  EndpointFinder finder(loop, at_port(free_port()), who_must_not_host());
  finder.dial(true, [](DialOutcome) { ADD_FAILURE(); });
  finder.cancel();
  loop.run();
}

class KeeperFinderTest : public testing::Test {
 protected:
  KeeperFinder::Options options(uint64_t agent) const {
    KeeperFinder::Options options;
    options.place = folder_.file();
    options.agent = {agent, agent};
    options.local_addr = "127.0.0.1";
    options.lease = std::chrono::milliseconds(300);
    return options;
  }
  static std::shared_ptr<Keeper> keeper(const KeeperFinder::Options& options) {
    return std::make_shared<FileKeeper>(options.place);
  }
  // A record of a host on another machine, at an address where no process listens.
  HostRecord far_away(uint64_t instance) const {
    HostRecord record;
    record.instance = instance;
    record.machine = "another/1";
    record.host_name = "node9";
    record.addresses = {{IpAddress::loopback_v4(), free_port()}};
    return record;
  }

  SharedFolder folder_;
  boost::asio::io_context loop_;
};

TEST_F(KeeperFinderTest, DoesNotReplaceAnUnreachableHostThatBeats) {
  RecordFile host(options(1).place);
  ASSERT_EQ(host.take(*host.look(), far_away(1)), true);
  bool hosting = false;
  KeeperFinder finder(loop_, keeper(options(2)), options(2), note(hosting));
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  for (uint64_t beat = 1; std::chrono::steady_clock::now() < until; ++beat) {
    host.write_beat(beat);
    const auto outcome = dial(loop_, finder);
    ASSERT_FALSE(outcome);
    EXPECT_FALSE(outcome.error().fatal);
  }
  EXPECT_FALSE(hosting);
  // The host stops beating.
  EXPECT_TRUE(run_until(loop_, [&] {
    dial(loop_, finder);
    return hosting;
  }));
  EXPECT_EQ(RecordFile(options(1).place).look()->record->agent, (membership::AgentId{2, 2}));
}

// A host hangs up on agents for which it has no place; that is no reason to replace it.
TEST_F(KeeperFinderTest, RedialsAHostThatBeatsAfterAHangup) {
  std::unique_ptr<Listener> listener;
  KeeperFinder host(loop_, keeper(options(1)), options(1), keep(listener));
  ASSERT_TRUE(dial(loop_, host));
  KeeperFinder::Options patient = options(2);
  patient.lease = std::chrono::hours(1);
  KeeperFinder node(loop_, keeper(patient), patient, who_must_not_host());
  for (int i = 0; i < 3; ++i) {
    const auto outcome = dial(loop_, node);
    ASSERT_TRUE(outcome) << outcome.error().error.message;
    EXPECT_EQ(outcome->host_instance, RecordFile(options(1).place).look()->record->instance);
    node.hung_up();
  }
}

// Without beats, a forwarder may have hung up instead of the host.
TEST_F(KeeperFinderTest, ReplacesAHostThatHangsUpAndBeatsNoMore) {
  const auto forwarder = Listener::open(loop_, {SocketAddress{IpAddress::loopback_v4(), 0}});
  ASSERT_TRUE(forwarder);
  HostRecord record = far_away(1);
  record.addresses = {(*forwarder)->local_endpoint()};
  record.machine.clear();
  RecordFile file(options(1).place);
  ASSERT_EQ(file.take(*file.look(), record), true);
  bool hosting = false;
  KeeperFinder finder(loop_, keeper(options(2)), options(2), note(hosting));
  EXPECT_TRUE(run_until(loop_, [&] {
    dial(loop_, finder);
    finder.hung_up();
    return hosting;
  }));
}

TEST_F(KeeperFinderTest, OneOfManyHostsAndTheOthersReachIt) {
  std::vector<std::unique_ptr<KeeperFinder>> finders;
  std::vector<std::unique_ptr<Listener>> listeners;
  int own = 0;
  int others = 0;
  for (uint64_t i = 1; i <= 16; ++i) {
    HostFinder::Handlers handlers;
    handlers.host = [&](HostFinder::Post post) { listeners.push_back(std::move(post.listener)); };
    finders.push_back(
        std::make_unique<KeeperFinder>(loop_, keeper(options(i)), options(i), handlers));
  }
  std::function<void(KeeperFinder&)> dial_until_reached = [&](KeeperFinder& finder) {
    finder.dial(true, [&](DialOutcome outcome) {
      if (!outcome) return dial_until_reached(finder);
      ++(outcome->own_host ? own : others);
    });
  };
  for (const auto& finder : finders)
    dial_until_reached(*finder);
  EXPECT_TRUE(run_until(loop_, [&] { return own + others == 16; }));
  EXPECT_EQ(own, 1);
  EXPECT_EQ(listeners.size(), 1u);
}

TEST_F(KeeperFinderTest, ANodeThatMustNotHostWaitsForTheFile) {
  KeeperFinder::Options member = options(1);
  member.is_host = false;
  KeeperFinder finder(loop_, keeper(member), member, who_must_not_host());
  const auto outcome = dial(loop_, finder);
  ASSERT_FALSE(outcome);
  EXPECT_FALSE(outcome.error().fatal);
  EXPECT_NE(outcome.error().error.message.find("no host has written"), std::string::npos);
}

TEST_F(KeeperFinderTest, AMissingFolderIsFatal) {
  KeeperFinder::Options lost = options(1);
  lost.place += "/no/such";
  KeeperFinder finder(loop_, keeper(lost), lost, who_must_not_host());
  const auto outcome = dial(loop_, finder);
  ASSERT_FALSE(outcome);
  EXPECT_TRUE(outcome.error().fatal);
  EXPECT_EQ(outcome.error().error.code, ExitCode::environment);
}

}  // namespace
}  // namespace muster
