#include "rendezvous/membership/member_client.h"

#include <array>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "rendezvous/base/steady_now.h"
#include "rendezvous/membership/coordinator.h"
#include "rendezvous/membership/random_ids.h"
#include "rendezvous/membership/store_probe.h"
#include "rendezvous/net/listener.h"
#include "rendezvous/net/local_users.h"
#include "rendezvous/store/store_listener.h"
#include "rendezvous/store/store_server.h"
#include "tests/unit/rendezvous/backends/rendezvous_harness.h"
#include "tests/unit/rendezvous/membership/member_client_harness.h"

namespace muster {
namespace {

// Accepts clients, sends `greeting`, and hangs up if `hang_up`.
class OddServer {
 public:
  OddServer(boost::asio::io_context& loop, std::string greeting, bool hang_up)
      : acceptor_(loop, {boost::asio::ip::address_v4::loopback(), 0}),
        greeting_(std::move(greeting)),
        hang_up_(hang_up) {
    accept();
  }
  int port() const { return acceptor_.local_endpoint().port(); }
  // Sends to the newest client that was kept.
  void say(const std::string& bytes) { kept_.back().send(boost::asio::buffer(bytes)); }
  // Returns the bytes that client has sent since.
  std::string hear() {
    std::string bytes(kept_.back().available(), ' ');
    bytes.resize(kept_.back().receive(boost::asio::buffer(bytes)));
    return bytes;
  }

 private:
  void accept() {
    acceptor_.async_accept([this](boost::system::error_code error, TcpSocket socket) {
      if (error) return;
      boost::system::error_code ignored;
      socket.send(boost::asio::buffer(greeting_), 0, ignored);
      if (!hang_up_) kept_.push_back(std::move(socket));
      accept();
    });
  }

  boost::asio::ip::tcp::acceptor acceptor_;
  std::string greeting_;
  bool hang_up_;
  std::vector<TcpSocket> kept_;
};

TEST(MemberClient, JoinsARoundAndReportsItsEnd) {
  boost::asio::io_context loop;
  for (const char* token : {"", "secret"}) {
    const auto host = host_with(loop, token);
    Client client(loop, host->port(), client_options(token));
    ASSERT_TRUE(run_until(loop, [&] { return client.rounds.size() == 1; }));
    EXPECT_EQ(client.rounds[0].master_port, host->port());
    EXPECT_EQ(client.rounds[0].master_addr, "127.0.0.1");
    client.client->post(member::WorkersDone{client.rounds[0].epoch});
    ASSERT_TRUE(run_until(loop, [&] { return !client.ends.empty(); }));
    EXPECT_EQ(client.ends[0].exit_code, 0);
    ASSERT_TRUE(run_until(loop, [&] { return client.client->is_over(); }));
    EXPECT_EQ(client.dialler.dials, 1);
  }
}

// ---- Datagrams.

membership::Datagram datagram_of(std::string payload, Instant at = {}) {
  return {.epoch = 1, .to = -1, .at = at, .at_error = {}, .payload = std::move(payload)};
}

std::string script_bytes(const std::vector<membership::HostMessage>& messages) {
  std::string bytes;
  for (const membership::HostMessage& message : messages)
    membership::encode(message, bytes);
  return bytes;
}

// A host's messages up to the first round.
std::vector<membership::HostMessage> round_script() {
  membership::Round round;
  round.epoch = 1;
  return {membership::Challenge{}, membership::Welcome{}, membership::Order{1, round}};
}

TEST(MemberClient, SendsAnotherNodeADatagramWithItsTime) {
  boost::asio::io_context loop;
  const auto host = host_with(loop, "");
  MemberClient::Options options = client_options();
  options.member.join.nodes_min = options.member.join.nodes_max = 2;
  Client first(loop, host->port(), options);
  options.member.join.agent = random_agent_id();
  Client second(loop, host->port(), options);
  ASSERT_TRUE(run_until(loop, [&] { return !first.rounds.empty() && !second.rounds.empty(); }));
  const Instant at = steady_now() - std::chrono::seconds(5);
  membership::Datagram datagram = datagram_of("a letter", at);
  datagram.epoch = first.rounds[0].epoch;
  datagram.to = second.rounds[0].node_rank;
  datagram.at_error = std::chrono::hours(1);
  first.client->send(datagram);
  ASSERT_TRUE(run_until(loop, [&] { return !second.datagrams.empty(); }));
  const membership::Delivered& got = second.datagrams[0];
  EXPECT_EQ(got.epoch, datagram.epoch);
  EXPECT_EQ(got.from, first.rounds[0].node_rank);
  EXPECT_EQ(got.payload, "a letter");
  // Both agents share a clock, so the added error bounds the error of the two translations.
  const Duration added = got.at_error - datagram.at_error;
  EXPECT_GT(added, Duration::zero());
  EXPECT_LE(got.at, at + added);
  EXPECT_GE(got.at, at - added);
  EXPECT_EQ(first.datagrams.size(), 0u);
}

TEST(MemberClient, PassesNoDatagramBeforeTheHostsClockIsKnown) {
  boost::asio::io_context loop;
  std::vector<membership::HostMessage> script = round_script();
  script.insert(script.end() - 1, membership::Delivered{1, 1, {}, {}, "too early"});
  script.push_back(membership::Alive{1, 1, Instant{std::chrono::hours(7)}});
  const Duration most = Duration::max();  // Any error that another agent claims.
  script.push_back(membership::Delivered{1, 1, Instant{std::chrono::hours(7)}, most, "in time"});
  OddServer server(loop, script_bytes(script), false);
  Client client(loop, server.port(), client_options());
  client.client->send(datagram_of("not connected"));
  client.on_round = [&] { client.client->send(datagram_of("clock unknown")); };
  ASSERT_TRUE(run_until(loop, [&] { return !client.datagrams.empty(); }));
  EXPECT_EQ(client.datagrams[0].payload, "in time");
  EXPECT_EQ(client.datagrams[0].at_error, most);
  client.client->send(datagram_of("clock known"));
  std::string heard;
  ASSERT_TRUE(run_until(loop, [&] {
    heard += server.hear();
    return heard.find("clock known") != std::string::npos;
  }));
  EXPECT_EQ(heard.find("not connected"), std::string::npos);
  EXPECT_EQ(heard.find("clock unknown"), std::string::npos);
}

TEST(MemberClient, KeepsTheConnectionIfDatagramsOutpaceTheHost) {
  boost::asio::io_context loop;
  std::vector<membership::HostMessage> script = round_script();
  script.push_back(membership::Alive{1, 1, Instant{std::chrono::hours(7)}});
  script.push_back(membership::Delivered{1, 1, {}, {}, "begin"});
  OddServer server(loop, script_bytes(script), false);  // The host reads nothing.
  Client client(loop, server.port(), client_options());
  ASSERT_TRUE(run_until(loop, [&] { return client.datagrams.size() == 1; }));
  EXPECT_GT(client.datagrams[0].at_error, Duration::zero());  // Added by our own conversion.
  const std::string large(membership::kDatagramBytesMax, 'x');
  for (int i = 0; i < 2000; ++i)
    client.client->send(datagram_of(large));
  server.say(script_bytes({membership::Delivered{1, 1, {}, {}, "end"}}));
  EXPECT_TRUE(run_until(loop, [&] { return client.datagrams.size() == 2; }));
  EXPECT_EQ(client.dialler.dials, 1);
}

TEST(MemberClient, ChecksTheLengthOfADatagram) {
  boost::asio::io_context loop;
  Client client(loop, 1, client_options());
  const std::string payload(membership::kDatagramBytesMax + 1, 'x');
  EXPECT_DEATH(client.client->send(datagram_of(payload)), "internal error: CHECK");
}

// ---- Owners of connections to the job's store.

TEST(MemberClient, AnswersWhetherALocalConnectionBelongsToTheJob) {
  boost::asio::io_context loop;
  OddServer server(loop, script_bytes(round_script()), false);
  MemberClient::Options options = client_options();
  options.clients.users = [] { return std::set<uid_t>{}; };
  options.clients.local = std::make_shared<LocalUsers>();
  if (!options.clients.local->works()) GTEST_SKIP() << options.clients.local->why_not();
  Client client(loop, server.port(), options);
  ASSERT_TRUE(run_until(loop, [&] { return !client.rounds.empty(); }));
  membership::FrameReader<membership::AgentMessage> reader;
  std::optional<membership::Join> join;
  std::vector<membership::Belongs> answers;
  const auto hear = [&](std::string_view bytes) {
    reader.feed(bytes);
    for (auto message = reader.next().value(); message; message = reader.next().value()) {
      if (const auto* one = std::get_if<membership::Join>(&*message)) join = *one;
      if (const auto* one = std::get_if<membership::Belongs>(&*message)) answers.push_back(*one);
    }
  };
  hear(server.hear().substr(membership::kMagic.size()));
  ASSERT_TRUE(run_until(loop, [&] {
    hear(server.hear());
    return join.has_value();
  }));
  EXPECT_EQ(join->host_end, fmt::format("127.0.0.1:{}", server.port()));
  EXPECT_TRUE(join->knows_owners);
  // The client's own connection belongs to this user.
  server.say(script_bytes({membership::WhoseIs{7, join->own_end, join->host_end},
                           membership::WhoseIs{8, "127.0.0.1:1", join->host_end},
                           membership::WhoseIs{9, "here", "there"}}));
  ASSERT_TRUE(run_until(loop, [&] {
    hear(server.hear());
    return answers.size() == 3;
  }));
  EXPECT_EQ(answers, (std::vector<membership::Belongs>{{7, true}, {8, false}, {9, false}}));
}

TEST(MemberClient, StopsIfTheHostVanishesAndRejoinsItsSuccessor) {
  boost::asio::io_context loop;
  auto host = host_with(loop, "");
  const SocketAddress place{IpAddress::loopback_v4(), host->port()};
  Client client(loop, host->port(), client_options());
  ASSERT_TRUE(run_until(loop, [&] { return client.rounds.size() == 1; }));
  host.reset();
  ASSERT_TRUE(run_until(loop, [&] { return client.stops.size() == 1; }));
  client.client->post(member::ReadyForRound{});
  Coordinator::Options options;
  options.job_id = "job";
  options.membership.host_instance = 43;
  auto listener = Listener::open(loop, {place});
  ASSERT_TRUE(listener);
  const Coordinator again(loop, std::move(*listener), options);
  ASSERT_TRUE(run_until(loop, [&] { return client.rounds.size() == 2; }));
  EXPECT_GT(client.rounds[1].epoch, client.rounds[0].epoch);
}

TEST(MemberClient, GivesUpAtOnceIfTheTokenIsMissingOrWrong) {
  boost::asio::io_context loop;
  const auto host = host_with(loop, "secret");
  const auto open_host = host_with(loop, "");
  Client without(loop, host->port(), client_options());
  Client wrong(loop, host->port(), client_options("guess"));
  Client against_open(loop, open_host->port(), client_options("secret"));
  for (Client* client : {&without, &wrong, &against_open}) {
    EXPECT_TRUE(client->wait_error("--rdzv-token-file"));
    EXPECT_EQ(client->dialler.dials, 1);
    EXPECT_TRUE(client->rounds.empty());
  }
}

TEST(MemberClient, DoesNotBelieveAHostThatCannotProveTheToken) {
  boost::asio::io_context loop;
  // Asks for a token like a real host, welcomes every agent, and proves nothing.
  const OddServer impostor(
      loop, script_bytes({membership::Challenge{random_nonce(), true}, membership::Welcome{}}),
      false);
  Client client(loop, impostor.port(), client_options("secret"));
  EXPECT_TRUE(client.wait_error("does not know this job's token"));
}

TEST(MemberClient, NamesATcpStoreServerAtOnce) {
  boost::asio::io_context loop;
  StoreServer server(loop, {});
  const auto listener =
      StoreListener::open(loop, server, {SocketAddress{IpAddress::loopback_v4(), 0}});
  ASSERT_TRUE(listener);
  server.open(1);
  Client client(loop, listener->front()->port(), client_options());
  EXPECT_TRUE(client.wait_error("TCPStore"));
  EXPECT_EQ(client.dialler.dials, 2);
  EXPECT_EQ(client.dialler.others_answered, 2);
}

// PyTorch's server keeps a connection whose first bytes it does not know, and sends nothing.
class SwallowingStore {
 public:
  explicit SwallowingStore(boost::asio::io_context& loop)
      : acceptor_(loop, {boost::asio::ip::address_v4::loopback(), 0}) {
    accept();
  }
  int port() const { return acceptor_.local_endpoint().port(); }

 private:
  struct Peer {
    TcpSocket socket;
    std::array<char, 256> bytes{};
  };

  void accept() {
    acceptor_.async_accept([this](boost::system::error_code error, TcpSocket socket) {
      if (error) return;
      const auto peer = std::make_shared<Peer>(Peer{std::move(socket)});
      peer->socket.async_read_some(
          boost::asio::buffer(peer->bytes), [peer, this](boost::system::error_code, size_t size) {
            const std::string_view said(peer->bytes.data(), size);
            boost::system::error_code ignored;
            if (said == store_question())
              peer->socket.send(boost::asio::buffer(said.substr(size - 4)), 0, ignored);
            peers_.push_back(peer);
          });
      accept();
    });
  }

  boost::asio::ip::tcp::acceptor acceptor_;
  std::vector<std::shared_ptr<Peer>> peers_;
};

TEST(MemberClient, NamesAStoreServerThatIgnoresUnknownBytes) {
  boost::asio::io_context loop;
  const SwallowingStore server(loop);
  Client client(loop, server.port(), client_options());
  EXPECT_TRUE(client.wait_error("a PyTorch TCPStore server"));
  EXPECT_EQ(client.dialler.dials, 2);
}

TEST(MemberClient, NamesAWebServerAfterThreeAttempts) {
  boost::asio::io_context loop;
  const OddServer server(loop, "HTTP/1.1 400 Bad Request\r\n\r\n", false);
  Client client(loop, server.port(), client_options());
  EXPECT_TRUE(client.wait_error("a web server or proxy (HTTP/1.1 400 Bad Request)"));
  EXPECT_EQ(client.dialler.dials, 3);
}

// A forwarder hangs up at once, a host without a spare descriptor after its challenge.
TEST(MemberClient, RetriesAServerThatHangsUp) {
  for (const std::string& said :
       {std::string(), script_bytes({membership::Challenge{random_nonce(), false}})}) {
    boost::asio::io_context loop;
    const OddServer server(loop, said, true);
    Client client(loop, server.port(), client_options());
    EXPECT_TRUE(run_until(loop, [&] { return client.dialler.dials >= 10; }));
    EXPECT_TRUE(client.errors.empty());
  }
}

TEST(MemberClient, RetriesAMuteServerAndShowsItInTheStatus) {
  boost::asio::io_context loop;
  const OddServer server(loop, "", false);
  MemberClient::Options options = client_options();
  options.handshake_limit = std::chrono::milliseconds(20);
  Client client(loop, server.port(), options);
  EXPECT_TRUE(run_until(loop, [&] { return client.dialler.dials >= 3; }));
  EXPECT_TRUE(client.errors.empty());
  EXPECT_NE(client.client->status().find("sends nothing"), std::string::npos)
      << client.client->status();
}

TEST(MemberClient, DistrustsAHostWithAnotherInstanceThanExpected) {
  boost::asio::io_context loop;
  const auto host = host_with(loop, "");
  MemberClient::Options options = client_options();
  PortDialler dialler(loop, host->port());
  dialler.instance = 41;
  MemberClient::Handlers on;
  on.failed = [](const Error&) {};
  on.round = [](const membership::Round&) { ADD_FAILURE(); };
  MemberClient client(loop, dialler, options, on);
  client.post(member::Begin{});
  EXPECT_TRUE(run_until(loop, [&] { return dialler.others_answered >= 2; }));
}

}  // namespace
}  // namespace muster
