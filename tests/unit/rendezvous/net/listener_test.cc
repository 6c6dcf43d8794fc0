#include "rendezvous/net/listener.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "rendezvous/base/prng.h"
#include "rendezvous/net/first_bytes.h"
#include "tests/unit/rendezvous/net/addresses.h"
#include "tests/unit/rendezvous/net/socket_harness.h"

namespace muster {
namespace {

using testing::ElementsAre;

constexpr std::string_view kStoreHello("\0\xce\xf7\x85\x3c", 5);

// A listener on loopback that keeps the connections it hands over.
struct Port {
  explicit Port(ListenOptions options = {}, const char* address = "127.0.0.1:0") {
    auto opened = Listener::open(io, {socket_at(address)}, std::move(options));
    if (!opened) {
      ADD_FAILURE() << opened.error().message;
      return;
    }
    listener = std::move(*opened);
  }

  ListenHandlers keeping() {
    ListenHandlers handlers;
    handlers.store = [this](Arrival arrival) { keep(stores, std::move(arrival)); };
    handlers.agent = [this](Arrival arrival) { keep(agents, std::move(arrival)); };
    handlers.crowded_out = [this](uint64_t id) { let_go(id); };
    handlers.stranger = [this](const Stranger& stranger) { strangers.push_back(stranger); };
    handlers.trouble = [this](const std::string& message) { troubles.push_back(message); };
    return handlers;
  }
  Port& started() {
    listener->start(keeping());
    return *this;
  }
  void keep(std::vector<std::string>& bytes, Arrival arrival) {
    sockets.emplace_back(arrival.fd.release());
    bytes.push_back(arrival.bytes);
    peers.push_back(arrival.peer);
    places[arrival.id] = {std::move(arrival.place), std::move(arrival.half_open),
                          sockets.size() - 1};
  }
  void let_go(uint64_t id) {
    shutdown(sockets[places.at(id).socket].fd(), SHUT_RDWR);
    places.erase(id);
    gone.push_back(id);
  }
  PlainSocket client() const { return PlainSocket::connected_to(listener->local_endpoint()); }
  PlainSocket client_saying(std::string_view text) const {
    PlainSocket socket = client();
    socket.send_text(text);
    return socket;
  }
  void turn(const std::function<bool(const ListenCounters&)>& done, const char* what) {
    turn_until(io, [&] { return done(listener->counters()); }, what);
  }

  boost::asio::io_context io;
  std::unique_ptr<Listener> listener;
  std::vector<std::string> stores, agents, troubles;
  std::vector<SocketAddress> peers;
  std::vector<PlainSocket> sockets;
  struct Held {
    Place place;
    std::shared_ptr<void> half_open;
    size_t socket = 0;
  };
  std::map<uint64_t, Held> places;  // By id.
  std::vector<uint64_t> gone;       // Evicted after they were handed over.
  std::vector<Stranger> strangers;
};

TEST(Listener, HandsStoreClientsOverWithTheBytesRead) {
  Port port;
  port.started();
  const PlainSocket client = port.client_saying(std::string(kStoreHello) + "ping");
  port.turn([](const auto& n) { return n.stores == 1; }, "the store's client is handed over");
  EXPECT_THAT(port.stores, ElementsAre(std::string(kStoreHello) + "ping"));
  EXPECT_THAT(port.peers, ElementsAre(client.own_address()));
  port.sockets[0].send_text("answer");
  EXPECT_EQ(client.receive(), "answer");
  client.send_text("later");
  EXPECT_EQ(port.sockets[0].receive(), "later");
}

TEST(Listener, HandsAgentsOverOnceTheirMagicIsComplete) {
  Port port;
  port.started();
  const PlainSocket client = port.client_saying("MS");
  turn_until(port.io, [&] { return port.listener->counters().accepted == 1; }, "accepted");
  port.io.poll();
  EXPECT_THAT(port.agents, ElementsAre());
  client.send_text("TR1");
  port.turn([](const auto& n) { return n.agents == 1; }, "the agent is handed over");
  EXPECT_THAT(port.agents, ElementsAre("MSTR1"));
}

TEST(Listener, TakesTheAgentsMagicFromItsOptions) {
  ListenOptions options;
  options.agent_magic = "OTHER";
  Port port(options);
  port.started();
  const PlainSocket client = port.client_saying("OTHER");
  const PlainSocket wrong = port.client_saying("MSTR");
  port.turn([](const auto& n) { return n.agents == 1 && n.strangers == 1; }, "both are known");
  EXPECT_THAT(port.agents, ElementsAre("OTHER"));
}

TEST(Listener, HandsOverNonBlockingCloseOnExecSockets) {
  Port port;
  port.started();
  const PlainSocket client = port.client_saying(kStoreHello);
  port.turn([](const auto& n) { return n.stores == 1; }, "handed over");
  const int fd = port.sockets[0].fd();
  EXPECT_NE(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
  EXPECT_NE(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_EQ(option_of(fd, IPPROTO_TCP, TCP_NODELAY), 1);
}

TEST(Listener, HoldsConnectionsUntilItIsStarted) {
  Port port;
  const PlainSocket store = port.client_saying(kStoreHello);
  const PlainSocket agent = port.client_saying("MSTR");
  port.turn([](const auto& n) { return n.accepted == 2; }, "both are accepted");
  port.io.poll();
  EXPECT_EQ(port.listener->counters().stores + port.listener->counters().agents, 0u);
  port.started();
  EXPECT_THAT(port.stores, ElementsAre(kStoreHello));
  EXPECT_THAT(port.agents, ElementsAre("MSTR"));
}

TEST(Listener, BoundsTheConnectionsThatItHolds) {
  ListenOptions options;
  options.half_open_max = 2;
  Port port(options);
  std::vector<PlainSocket> clients;
  for (const char* name : {"MSTR1", "MSTR2", "MSTR3"}) {
    clients.push_back(port.client_saying(name));
    port.turn([&](const auto& n) { return n.accepted == clients.size(); }, "accepted");
    port.io.poll();
  }
  EXPECT_EQ(port.listener->counters().crowded_out, 1u);
  EXPECT_EQ(clients[0].receive(), "");
  port.started();
  EXPECT_THAT(port.agents, ElementsAre("MSTR2", "MSTR3"));
}

TEST(Listener, ReportsOneStrangerPerMachineAndClosesAll) {
  Port port({}, "0.0.0.0:0");
  port.started();
  const SocketAddress here = {IpAddress::loopback_v4(), port.listener->port()};
  const PlainSocket first = PlainSocket::connected_to(here);
  first.send_text("GET / HTTP/1.0\r\n\r\n");
  const PlainSocket second = PlainSocket::connected_to({ip("127.0.0.2"), port.listener->port()});
  second.send_text("SSH-2.0-x\r\n");
  port.turn([](const auto& n) { return n.strangers == 2; }, "both are recognised");
  ASSERT_EQ(port.strangers.size(), 1u);
  EXPECT_TRUE(first.has_ended());
  EXPECT_TRUE(second.has_ended());
  // The loop may see either one first.
  EXPECT_THAT(port.strangers[0].description,
              testing::AnyOf("a web browser or other HTTP client (GET / HTTP/1.0)",
                             "an ssh client (SSH-2.0-x)"));
  EXPECT_TRUE(port.strangers[0].peer.ip.is_loopback());
}

TEST(Listener, ClosesSilentConnectionsAtTheDeadline) {
  ListenOptions options;
  options.handshake_limit = std::chrono::milliseconds(20);
  Port port(options);
  port.started();
  const PlainSocket mute = port.client();
  const PlainSocket slow = port.client_saying("MST");
  port.turn([](const auto& n) { return n.timed_out == 2; }, "both are given up");
  EXPECT_EQ(mute.receive(), "");
  EXPECT_EQ(slow.receive(), "");
  // A later connection has its own deadline.
  const PlainSocket later = port.client();
  port.turn([](const auto& n) { return n.timed_out == 3; }, "the later one is given up");
}

TEST(Listener, ForgetsConnectionsClosedBeforeTheySpeak) {
  Port port;
  port.started();
  {
    const PlainSocket client = port.client();
  }
  port.turn([](const auto& n) { return n.closed_early == 1; }, "the hang-up is seen");
}

TEST(Listener, ClosesTheOldestIfTooManyAreSilent) {
  ListenOptions options;
  options.half_open_max = 3;
  Port port(options);
  port.started();
  std::vector<PlainSocket> clients;
  for (size_t i = 1; i <= 5; ++i) {
    clients.push_back(port.client());
    port.turn([&](const auto& n) { return n.accepted == i; }, "accepted");
  }
  EXPECT_EQ(port.listener->counters().crowded_out, 2u);
  EXPECT_EQ(clients[0].receive(), "");
  EXPECT_EQ(clients[1].receive(), "");
  clients[2].send_text("MSTR");
  port.turn([](const auto& n) { return n.agents == 1; }, "one that stayed is served");
}

ListenOptions with_places(size_t count) {
  ListenOptions options;
  options.places = std::make_shared<Places>(count);
  options.exhausted_pause = std::chrono::milliseconds(5);
  return options;
}

TEST(Listener, KeepsAHalfOpenConnectionForItsLeastLife) {
  ListenOptions options = with_places(2);
  options.least_life = std::chrono::hours(1);
  Port port(options);
  port.started();
  const PlainSocket one = port.client();
  const PlainSocket two = port.client();
  const PlainSocket three = port.client();
  port.turn([](const auto& n) { return n.accepted == 2; }, "there are places for two");
  port.io.run_for(std::chrono::milliseconds(20));
  EXPECT_EQ(port.listener->counters().accepted, 2u);
  EXPECT_EQ(port.listener->counters().crowded_out, 0u);
}

TEST(Listener, ClosesUnauthenticatedAgentsToMakeRoom) {
  Port port(with_places(3));
  port.started();
  std::vector<PlainSocket> clients;
  for (uint64_t i = 1; i <= 3; ++i) {
    clients.push_back(port.client_saying("MSTR"));
    port.turn([&](const auto& n) { return n.agents == i; }, "handed over");
  }
  port.listener->proved(1);
  const PlainSocket late = port.client_saying("MSTRlate");
  port.turn([](const auto& n) { return n.agents == 4; }, "another one gets a place");
  EXPECT_THAT(port.gone, ElementsAre(2));
  EXPECT_EQ(clients[1].receive(), "");
  EXPECT_EQ(port.listener->counters().crowded_out, 1u);
}

TEST(Listener, MakesOthersWaitIfAuthenticatedPeersHoldAllPlaces) {
  Port port(with_places(2));
  port.started();
  const PlainSocket agent = port.client_saying("MSTR");
  port.turn([](const auto& n) { return n.agents == 1; }, "the agent is handed over");
  port.listener->proved(1);
  const PlainSocket store = port.client_saying(kStoreHello);
  port.turn([](const auto& n) { return n.stores == 1; }, "the store's client is handed over");
  const PlainSocket late = port.client_saying("MSTRlate");
  port.turn([](const auto& n) { return n.exhausted == 1; }, "there is no place left");
  EXPECT_THAT(port.troubles, ElementsAre("all 2 places for connections are taken: new ones wait; "
                                         "raise the limit (ulimit -n)"));
  EXPECT_THAT(port.gone, ElementsAre());
  EXPECT_EQ(port.listener->counters().accepted, 2u);
  port.places.erase(2);
  port.turn([](const auto& n) { return n.agents == 2; }, "its turn comes");
  EXPECT_THAT(port.agents, ElementsAre("MSTR", "MSTRlate"));
}

TEST(Listener, ServesAgentsAndStoresInAFloodOfSilentConnections) {
  Port port(with_places(8), "0.0.0.0:0");
  port.started();
  std::vector<PlainSocket> strangers;
  std::vector<PlainSocket> clients;
  const uint16_t number = port.listener->port();
  for (int i = 0; i < 500; ++i) {
    const IpAddress to = IpAddress::v4({127, 0, 0, static_cast<uint8_t>(i % 250 + 1)});
    strangers.push_back(PlainSocket::connected_to({to, number}));
    if (i % 250 == 249) {
      clients.push_back(port.client_saying("MSTR"));
      clients.push_back(port.client_saying(kStoreHello));
    }
  }
  port.turn([](const auto& n) { return n.agents == 2 && n.stores == 2; }, "all are served");
  EXPECT_THAT(port.gone, ElementsAre());
  EXPECT_LE(port.listener->unidentified(), 8u);
  turn_until(port.io, [&] { return !port.troubles.empty(); }, "a line about the others");
  ASSERT_EQ(port.troubles.size(), 1u);
  EXPECT_THAT(port.troubles[0],
              testing::MatchesRegex("closed [0-9]+ connections to port [0-9]+ from 127.0.0.[0-9]+, "
                                    "to make room for others: they were not authenticated yet"));
}

TEST(Listener, ServesAThousandConnectionsAtOnce) {
  Port port;
  port.started();
  std::vector<PlainSocket> clients;
  for (int i = 0; i < 1000; ++i)
    clients.push_back(port.client_saying(kStoreHello));
  port.turn([](const auto& n) { return n.stores == 1000; }, "all are handed over");
  EXPECT_EQ(port.listener->counters().accepted, 1000u);
}

TEST(Listener, YieldsTheLoopBetweenBatches) {
  ListenOptions options;
  options.accepts_per_turn = 10;
  Port port(options);
  port.started();
  std::vector<PlainSocket> clients;
  for (int i = 0; i < 100; ++i)
    clients.push_back(port.client());
  uint64_t most = 0;
  uint64_t before = 0;
  turn_until(
      port.io,
      [&] {
        const uint64_t now = port.listener->counters().accepted;
        most = std::max(most, now - before);
        before = now;
        return now == 100;
      },
      "all are accepted");
  EXPECT_EQ(most, 10u);
}

TEST(Listener, PausesWhileDescriptorsAreExhausted) {
  ListenOptions options;
  options.exhausted_pause = std::chrono::milliseconds(5);
  Port port(options);
  port.started();
  std::vector<PlainSocket> clients;
  for (int i = 0; i < 3; ++i)
    clients.push_back(port.client_saying(kStoreHello));
  port.io.run_for(std::chrono::milliseconds(0));
  const PlainSocket late = port.client_saying("MSTR");
  std::optional<OutOfDescriptors> limit(std::in_place);
  port.turn([](const auto& n) { return n.exhausted == 1; }, "descriptors run out");
  const uint64_t accepted = port.listener->counters().accepted;
  // While descriptors are exhausted the loop turns a few dozen times at most; it does not spin.
  size_t turns = 0;
  for (const auto end = in(std::chrono::milliseconds(100)); std::chrono::steady_clock::now() < end;)
    turns += port.io.run_one_until(end);
  EXPECT_LT(turns, 200u);
  EXPECT_EQ(port.listener->counters().accepted, accepted);
  limit.reset();
  port.turn([](const auto& n) { return n.agents == 1 && n.stores == 3; }, "everybody is served");
  EXPECT_EQ(port.listener->counters().exhausted, 1u);
  EXPECT_THAT(port.troubles, ElementsAre("out of file descriptors: new connections wait; raise the "
                                         "limit (ulimit -n)"));
}

TEST(Listener, ClosesSilentConnectionsIfDescriptorsStayExhausted) {
  ListenOptions options;
  options.exhausted_pause = std::chrono::milliseconds(5);
  Port port(options);
  port.started();
  const PlainSocket mute = port.client();
  port.turn([](const auto& n) { return n.accepted == 1; }, "the mute one is accepted");
  const PlainSocket agent = port.client_saying("MSTR");
  const OutOfDescriptors limit;
  port.turn([](const auto& n) { return n.agents == 1; },
            "the agent gets the mute one's descriptor");
  EXPECT_EQ(port.listener->counters().crowded_out, 1u);
  EXPECT_TRUE(mute.has_ended());
}

TEST(Listener, AnswersWhetherAProbesNonceIsOurs) {
  Port port;
  const std::string nonce(kNonceBytes, 'n');
  const PlainSocket before = port.client_saying(std::string(kProbeMagic) + nonce);
  port.turn([](const auto& n) { return n.probes == 1; }, "a probe before anybody claims");
  EXPECT_EQ(before.receive(), std::string(1, kProbeIsNotOurs));
  port.listener->on_probe([&](std::string_view got) { return got == nonce; });
  const PlainSocket right = port.client_saying(std::string(kProbeMagic) + nonce);
  const PlainSocket wrong =
      port.client_saying(std::string(kProbeMagic) + std::string(kNonceBytes, 'x'));
  port.turn([](const auto& n) { return n.probes == 3; }, "both probes are answered");
  EXPECT_EQ(right.receive(), std::string(1, kProbeIsOurs));
  EXPECT_EQ(wrong.receive(), std::string(1, kProbeIsNotOurs));
  EXPECT_EQ(wrong.receive(), "");
}

TEST(Listener, AccountsForEveryConnectionWithRandomBytes) {
  Port port;
  port.started();
  Prng random(20);
  std::vector<PlainSocket> open;
  const std::vector<std::string> beginnings = {"",      "M",        "MSPROBE1",
                                               "GET /", "\x16\x03", std::string(kStoreHello)};
  for (int i = 0; i < 500; ++i) {
    std::string bytes = beginnings[random.below(beginnings.size())];
    for (uint64_t n = random.below(40); n > 0; --n)
      bytes.push_back(static_cast<char>(random.below(256)));
    PlainSocket client = port.client_saying(bytes);
    if (random.chance(1, 2)) open.push_back(std::move(client));
  }
  const PlainSocket agent = port.client_saying("MSTRgood");
  port.turn([](const auto& n) { return n.accepted == 501; }, "all are accepted");
  turn_until(
      port.io,
      [&] {
        return std::find(port.agents.begin(), port.agents.end(), "MSTRgood") != port.agents.end();
      },
      "the agent among them is handed over");
  while (port.io.run_for(std::chrono::milliseconds(20)) > 0) {
  }
  const ListenCounters n = port.listener->counters();
  EXPECT_EQ(port.stores.size(), n.stores);
  EXPECT_EQ(port.agents.size(), n.agents);
  EXPECT_EQ(n.crowded_out + n.timed_out, 0u);
  EXPECT_EQ(
      n.stores + n.agents + n.probes + n.strangers + n.closed_early + port.listener->unidentified(),
      n.accepted);
}

TEST(Listener, MayBeClosedFromInsideAHandler) {
  Port port;
  ListenHandlers handlers = port.keeping();
  handlers.agent = [&](Arrival arrival) {
    port.keep(port.agents, std::move(arrival));
    port.listener.reset();
  };
  port.listener->start(handlers);
  const PlainSocket one = port.client_saying("MSTR");
  const PlainSocket two = port.client_saying("MSTR");
  turn_until(port.io, [&] { return port.listener == nullptr; }, "the first one closes the port");
  port.io.run();  // Returns, since the loop has no work left.
  EXPECT_EQ(port.agents.size(), 1u);
  EXPECT_EQ(two.receive(), "");
}

TEST(Listener, ClosesEveryConnectionNotHandedOver) {
  Port port;
  const PlainSocket mute = port.client();
  const PlainSocket held = port.client_saying("MSTR");
  port.turn([](const auto& n) { return n.accepted == 2; }, "both are accepted");
  port.io.poll();
  const SocketAddress address = port.listener->local_endpoint();
  port.listener->close();
  port.listener->close();
  EXPECT_EQ(mute.receive(), "");
  EXPECT_EQ(held.receive(), "");
  EXPECT_EQ(PlainSocket::connected_to(address).fd(), -1);
  port.io.run();
  EXPECT_TRUE(Listener::open(port.io, {address}).has_value());
}

TEST(Listener, AcceptsBothFamiliesOnTheAnyAddress) {
  Port port({}, "[::]:0");
  port.started();
  const uint16_t number = port.listener->port();
  const PlainSocket four = PlainSocket::connected_to({IpAddress::loopback_v4(), number});
  ASSERT_GE(four.fd(), 0);
  four.send_text("MSTR4");
  port.turn([](const auto& n) { return n.agents == 1; }, "the IPv4 client arrives");
  EXPECT_EQ(port.peers[0], four.own_address());  // As IPv4, not as a mapped address.
  const PlainSocket six = PlainSocket::connected_to({IpAddress::loopback_v6(), number});
  if (six.fd() < 0) GTEST_SKIP() << "this machine has no IPv6";
  six.send_text("MSTR6");
  port.turn([](const auto& n) { return n.agents == 2; }, "the IPv6 client arrives");
  EXPECT_EQ(port.peers[1], six.own_address());
}

}  // namespace
}  // namespace muster
