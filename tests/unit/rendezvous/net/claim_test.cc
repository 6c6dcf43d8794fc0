#include "rendezvous/net/claim.h"

#include <cerrno>
#include <cstdlib>
#include <optional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rendezvous/net/first_bytes.h"
#include "tests/fakes/free_port.h"
#include "tests/unit/rendezvous/net/addresses.h"
#include "tests/unit/rendezvous/net/socket_harness.h"

namespace muster {
namespace {

using testing::HasSubstr;
using Why = NotHost::Why;

ListenPlan plan(const std::string& host, std::initializer_list<const char*> resolved) {
  std::vector<SocketAddress> addresses;
  for (const char* one : resolved)
    addresses.push_back(socket_at(one));
  return plan_listening(
      host, addresses,
      {ip("127.0.0.1"), ip("::1"), ip("10.0.0.1"), ip("fd00::1"), ip("fe80::1%2")});
}

ListenPlan only(std::initializer_list<const char*> addresses) {
  ListenPlan result;
  for (const char* one : addresses)
    result.addresses.push_back(socket_at(one));
  return result;
}

const ListenPlan kEverywhere = {{{IpAddress::any_v6(), 29500}}, true};

TEST(PlanListening, TakesTheEndpointsAddressesThatAreOurs) {
  EXPECT_EQ(plan("node1", {"10.0.0.1:29500"}), only({"10.0.0.1:29500"}));
  EXPECT_EQ(plan("node1", {"[fd00::1]:29500", "10.0.0.1:29500", "10.0.0.1:29500"}),
            only({"[fd00::1]:29500", "10.0.0.1:29500"}));
  EXPECT_EQ(plan("fe80::1%eth0", {"[fe80::1%2]:29500"}), only({"[fe80::1%2]:29500"}));
}

TEST(PlanListening, TakesLoopbackAloneOnlyIfAskedTo) {
  EXPECT_EQ(plan("localhost", {"[::1]:29500", "127.0.0.1:29500"}),
            only({"[::1]:29500", "127.0.0.1:29500"}));
  EXPECT_EQ(plan("127.0.0.2", {"127.0.0.2:29500"}), only({"127.0.0.2:29500"}));
  EXPECT_EQ(plan("[::1]", {"[::1]:29500"}), only({"[::1]:29500"}));
  // Debian resolves the machine's own name to 127.0.1.1.
  EXPECT_EQ(plan("node1", {"127.0.1.1:29500"}), kEverywhere);
  EXPECT_EQ(plan("node1", {"127.0.1.1:29500", "10.0.0.1:29500"}), kEverywhere);
}

TEST(PlanListening, ListensEverywhereIfTheAddressIsNotOurs) {
  EXPECT_EQ(plan("service", {"10.96.0.7:29500"}), kEverywhere);
  EXPECT_EQ(plan("service", {"10.0.0.1:29500", "10.96.0.7:29500"}), kEverywhere);
  EXPECT_EQ(plan("0.0.0.0", {"0.0.0.0:29500"}), kEverywhere);
}

TEST(PlanListening, LeavesOutIpv6LoopbackIfTheKernelHasNone) {
  EXPECT_EQ(plan_listening("localhost", {socket_at("[::1]:29500"), socket_at("127.0.0.1:29500")},
                           {ip("127.0.0.1")}),
            only({"127.0.0.1:29500"}));
}

using Outcome = std::optional<std::variant<Claim, NotHost>>;

struct Election {
  void run(const std::string& host, uint16_t port, ClaimOptions options = {}) {
    claiming =
        claim_endpoint(io, host, port, std::move(options),
                       [this](std::variant<Claim, NotHost> got) { outcome = std::move(got); });
    ASSERT_FALSE(outcome);
    turn_until(io, [&] { return outcome.has_value(); }, "the election is decided");
  }
  Claim& claim() { return std::get<Claim>(*outcome); }
  const NotHost& loss() { return std::get<NotHost>(*outcome); }
  bool is_host() const { return outcome && std::holds_alternative<Claim>(*outcome); }

  boost::asio::io_context io;
  Claiming claiming;
  Outcome outcome;
};

ClaimOptions resolving_to(std::vector<IpAddress> addresses) {
  ClaimOptions options;
  options.look_up = [addresses](const std::string&) { return addresses; };
  return options;
}

TEST(ClaimEndpoint, MakesTheAgentThatReachesItselfTheHost) {
  Election election;
  election.run("127.0.0.1", 0);
  ASSERT_TRUE(election.is_host()) << election.loss().message;
  const Claim& claim = election.claim();
  EXPECT_FALSE(claim.everywhere);
  EXPECT_EQ(claim.reached, claim.listener->local_endpoint());
  EXPECT_EQ(claim.listener->counters().probes, 1u);
}

TEST(ClaimEndpoint, ListensEverywhereForANameThatMeansLoopbackHere) {
  Election election;
  election.run("node1", free_port(), resolving_to({ip("127.0.1.1")}));
  ASSERT_TRUE(election.is_host()) << election.loss().message;
  EXPECT_TRUE(election.claim().everywhere);
  EXPECT_TRUE(election.claim().listener->local_endpoint().ip.is_any());
  EXPECT_EQ(election.claim().reached.ip, ip("127.0.1.1"));
}

TEST(ClaimEndpoint, ListensOnLoopbackForLocalhost) {
  Election election;
  election.run("localhost", 0);
  ASSERT_TRUE(election.is_host()) << election.loss().message;
  for (const SocketAddress& address : election.claim().listener->local_endpoints())
    EXPECT_TRUE(address.ip.is_loopback()) << address.to_string();
}

TEST(ClaimEndpoint, LosesToTheProcessThatHasThePort) {
  Election host;
  host.run("127.0.0.1", 0);
  ASSERT_TRUE(host.is_host());
  Election second;
  second.run("127.0.0.1", host.claim().listener->port());
  ASSERT_FALSE(second.is_host());
  EXPECT_EQ(second.loss().why, Why::port_taken);
  EXPECT_EQ(second.loss().error_number, EADDRINUSE);
}

// 192.0.2.1 plays another machine: it reaches this one without being an address of it, and a
// claimant of localhost listens on loopback alone. So both sides have the port.
void with_somebody_else(const std::function<void()>& body) {
  in_own_network([&] {
    ASSERT_EQ(std::system("ip route add local 192.0.2.0/24 dev lo"), 0);
    body();
  });
}
ClaimOptions claimant() {
  return resolving_to({ip("192.0.2.1"), ip("127.0.0.1")});
}

TEST(ClaimEndpoint, LosesIfTheEndpointReachesAnotherAgent) {
  with_somebody_else([] {
    Election election;
    auto host = Listener::open(election.io, {socket_at("192.0.2.1:29500")});
    ASSERT_TRUE(host);
    election.run("localhost", 29500, claimant());
    ASSERT_FALSE(election.is_host());
    EXPECT_EQ(election.loss().why, Why::somebody_else);
    EXPECT_EQ(election.loss().message,
              "the endpoint localhost:29500 (192.0.2.1:29500) is not this "
              "process: another agent listens there");
    // The loser's own listener is closed.
    EXPECT_EQ(PlainSocket::connected_to(socket_at("127.0.0.1:29500")).fd(), -1);
  });
}

TEST(ClaimEndpoint, LosesToAProcessThatIsNoAgent) {
  with_somebody_else([] {
    const PlainSocket listener = PlainSocket::bound_to(socket_at("192.0.2.1:29500"));
    Election election;
    std::thread banner([&] { listener.accept_one().send_text("SSH-2.0-x\r\n"); });
    election.run("localhost", 29500, claimant());
    banner.join();
    ASSERT_FALSE(election.is_host());
    EXPECT_EQ(election.loss().why, Why::somebody_else);
    EXPECT_THAT(election.loss().message, HasSubstr("the process there is not an agent"));
  });
}

TEST(ClaimEndpoint, LosesToASilentProcessAtTheLimit) {
  with_somebody_else([] {
    const PlainSocket listener = PlainSocket::bound_to(socket_at("192.0.2.1:29500"));
    Election election;
    ClaimOptions options = claimant();
    options.limit = std::chrono::milliseconds(50);
    election.run("localhost", 29500, options);
    ASSERT_FALSE(election.is_host());
    EXPECT_EQ(election.loss().why, Why::somebody_else);
    EXPECT_THAT(election.loss().message, HasSubstr("does not answer the agents' protocol"));
  });
}

TEST(ClaimEndpoint, IsNotWonWithTheNonceOfAnotherClaimant) {
  with_somebody_else([] {
    const PlainSocket listener = PlainSocket::bound_to(socket_at("192.0.2.1:29500"));
    Election election;
    ClaimOptions options = claimant();
    options.limit = std::chrono::milliseconds(500);
    election.claiming = claim_endpoint(election.io, "localhost", 29500, options,
                                       [&](auto got) { election.outcome = std::move(got); });
    // Once our listener accepts a connection, send it another claimant's probe.
    std::optional<PlainSocket> prober;
    turn_until(
        election.io,
        [&] {
          PlainSocket early = PlainSocket::connected_to(socket_at("127.0.0.1:29500"));
          if (!prober && early.fd() >= 0) {
            early.send_text(std::string(kProbeMagic) + std::string(kNonceBytes, 'x'));
            prober.emplace(std::move(early));
          }
          return election.outcome.has_value();
        },
        "decided");
    ASSERT_TRUE(prober);
    EXPECT_EQ(prober->receive(), std::string(1, kProbeIsNotOurs));
    EXPECT_FALSE(election.is_host());
  });
}

TEST(ClaimEndpoint, SaysThatTheEndpointIsUnreachable) {
  in_own_network([] {
    Election election;
    election.run("service", 29500, resolving_to({ip("192.0.2.1")}));
    ASSERT_FALSE(election.is_host());
    EXPECT_EQ(election.loss().why, Why::unreachable);
    EXPECT_THAT(
        election.loss().message,
        HasSubstr("could not connect to the endpoint service:29500: 192.0.2.1:29500 Network "
                  "is unreachable"));
  });
}

TEST(ClaimEndpoint, SaysThatTheNameIsMissing) {
  ClaimOptions options;
  options.look_up = [](const std::string&) -> NetResult<std::vector<IpAddress>> {
    return tl::unexpected(NetError{NetFailure::name_unknown, "no such pod yet"});
  };
  Election election;
  election.run("pod-0", 29500, options);
  ASSERT_FALSE(election.is_host());
  EXPECT_EQ(election.loss().why, Why::name_missing);
  EXPECT_EQ(election.loss().message, "no such pod yet");
}

TEST(ClaimEndpoint, HoldsCallersBackUntilTheWinnerStarts) {
  Election election;
  const uint16_t port = free_port();
  election.claiming = claim_endpoint(election.io, "127.0.0.1", port, {},
                                     [&](auto got) { election.outcome = std::move(got); });
  // An agent that connects before the election is over.
  std::optional<PlainSocket> agent;
  turn_until(
      election.io,
      [&] {
        if (!agent) {
          PlainSocket early = PlainSocket::connected_to({ip("127.0.0.1"), port});
          if (early.fd() >= 0) {
            early.send_text("MSTR");
            agent.emplace(std::move(early));
          }
        }
        return agent.has_value() && election.outcome.has_value();
      },
      "decided, with an agent waiting");
  ASSERT_TRUE(election.is_host());
  std::vector<std::string> agents;
  ListenHandlers handlers;
  handlers.agent = [&](const Arrival& arrival) { agents.push_back(arrival.bytes); };
  election.claim().listener->start(handlers);
  turn_until(election.io, [&] { return agents.size() == 1; }, "the agent is handed over");
}

TEST(ClaimEndpoint, LeavesNothingBehindIfCancelled) {
  boost::asio::io_context io;
  const uint16_t port = free_port();
  bool called = false;
  {
    const Claiming claiming =
        claim_endpoint(io, "127.0.0.1", port, {}, [&](const auto&) { called = true; });
    io.poll_one();
  }
  io.run();
  EXPECT_FALSE(called);
  EXPECT_TRUE(Listener::open(io, {{ip("127.0.0.1"), port}}));
}

TEST(ClaimEndpoint, MayBeDestroyedInsideTheCallback) {
  boost::asio::io_context io;
  Claiming claiming;
  int calls = 0;
  claiming = claim_endpoint(io, "127.0.0.1", 0, {}, [&](const std::variant<Claim, NotHost>& got) {
    EXPECT_TRUE(std::holds_alternative<Claim>(got));
    ++calls;
    claiming = Claiming();
  });
  io.run();
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace muster
