#include "rendezvous/membership/member_client.h"

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "rendezvous/membership/coordinator.h"
#include "rendezvous/membership/random_ids.h"
#include "rendezvous/membership/store_probe.h"
#include "rendezvous/net/listener.h"
#include "rendezvous/store/store_listener.h"
#include "rendezvous/store/store_server.h"
#include "tests/unit/rendezvous/backends/rendezvous_harness.h"

namespace muster {
namespace {

// Calls 127.0.0.1 at one port, for whatever listens there.
class PortDialler : public Dialler {
 public:
  PortDialler(boost::asio::io_context& loop, int port) : loop_(loop), port_(port) {}
  void dial(std::function<void(DialOutcome)> done) override {
    ++dials;
    const auto deadline = std::chrono::steady_clock::now() + kTestPatience;
    connecting_ = connect_any(
        loop_, "127.0.0.1", static_cast<uint16_t>(port_), deadline, {},
        [this, done](NetResult<TcpSocket> socket) {
          if (socket) return done(Dialled{std::move(*socket), instance, false});
          done(tl::unexpected(member::ConnectionFailed{socket.error().error(), true, false}));
        });
  }
  void cancel() override { connecting_ = Connecting(); }
  void distrust() override { ++distrusted; }

  std::optional<uint64_t> instance;
  int dials = 0;
  int distrusted = 0;

 private:
  boost::asio::io_context& loop_;
  int port_;
  Connecting connecting_;
};

MemberClient::Options client_options(const std::string& token = "") {
  MemberClient::Options options;
  options.job_id = "job";
  options.token = token;
  options.member.endpoint = "node0:29400";
  options.member.backoff_first = std::chrono::milliseconds(1);
  options.member.backoff_cap = std::chrono::milliseconds(10);
  membership::Join& join = options.member.join;
  join.agent = random_agent_id();
  join.host_name = "node0";
  join.last_call = std::chrono::seconds(30);
  join.join_timeout = std::chrono::seconds(100);
  join.lease = options.member.lease = std::chrono::seconds(30);
  return options;
}

class Client {
 public:
  Client(boost::asio::io_context& loop, int port, const MemberClient::Options& options)
      : dialler(loop, port), loop_(loop) {
    MemberClient::Handlers on;
    on.round = [this](const membership::Round& round) { rounds.push_back(round); };
    on.stop = [this](const member::StopWorkers& stop) { stops.push_back(stop); };
    on.leave_announced = [] {};
    on.ended = [this](const membership::End& end) { ends.push_back(end); };
    on.failed = [this](const Error& error) { errors.push_back(error); };
    on.say = [](const std::string&) {};
    client = std::make_unique<MemberClient>(loop, dialler, options, std::move(on));
    client->post(member::Begin{});
    client->post(member::ReadyForRound{});
  }
  bool wait_error(const std::string& part) {
    const bool came = run_until(loop_, [&] { return !errors.empty(); });
    if (!came) return false;
    EXPECT_NE(errors[0].message.find(part), std::string::npos) << errors[0].message;
    return true;
  }

  PortDialler dialler;
  std::unique_ptr<MemberClient> client;
  std::vector<membership::Round> rounds;
  std::vector<member::StopWorkers> stops;
  std::vector<membership::End> ends;
  std::vector<Error> errors;

 private:
  boost::asio::io_context& loop_;
};

std::unique_ptr<Coordinator> host_with(boost::asio::io_context& loop, const std::string& token) {
  auto listener = Listener::open(loop, {SocketAddress{IpAddress::loopback_v4(), 0}});
  Coordinator::Options options;
  options.job_id = "job";
  options.token = token;
  options.instance = 42;
  return std::make_unique<Coordinator>(loop, std::move(*listener), options);
}

// Accepts, says `greeting` if there is any, and hangs up if it should.
class OddServer {
 public:
  OddServer(boost::asio::io_context& loop, std::string greeting, bool hang_up)
      : acceptor_(loop, {boost::asio::ip::address_v4::loopback(), 0}),
        greeting_(std::move(greeting)),
        hang_up_(hang_up) {
    accept();
  }
  int port() const { return acceptor_.local_endpoint().port(); }

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

TEST(MemberClient, JoinsARoundAndHearsItsEnd) {
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

TEST(MemberClient, AHostThatVanishesStopsTheRoundAndOneThatIsBackGivesANewOne) {
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
  options.instance = 43;
  auto listener = Listener::open(loop, {place});
  ASSERT_TRUE(listener);
  const Coordinator again(loop, std::move(*listener), options);
  ASSERT_TRUE(run_until(loop, [&] { return client.rounds.size() == 2; }));
  EXPECT_GT(client.rounds[1].epoch, client.rounds[0].epoch);
}

TEST(MemberClient, AMissingOrWrongTokenGivesUpAtOnceAndNamesTheRemedy) {
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

TEST(MemberClient, AHostThatCannotProveTheTokenIsNotBelieved) {
  boost::asio::io_context loop;
  // Asks for a token as the real one would, welcomes everybody, and proves nothing.
  std::string script;
  membership::encode(membership::HostMessage(membership::Challenge{random_nonce(), true}), script);
  membership::encode(membership::HostMessage(membership::Welcome{}), script);
  const OddServer impostor(loop, script, false);
  Client client(loop, impostor.port(), client_options("secret"));
  EXPECT_TRUE(client.wait_error("does not know this job's token"));
}

TEST(MemberClient, ATcpStoreServerOnTheOtherEndIsNamedAtOnce) {
  boost::asio::io_context loop;
  StoreServer server(loop, {});
  const auto listener =
      StoreListener::open(loop, server, {SocketAddress{IpAddress::loopback_v4(), 0}});
  ASSERT_TRUE(listener);
  server.open(1);
  Client client(loop, listener->front()->port(), client_options());
  EXPECT_TRUE(client.wait_error("TCPStore"));
  EXPECT_EQ(client.dialler.dials, 2);
  EXPECT_EQ(client.dialler.distrusted, 2);
}

// PyTorch's own server keeps a connection whose first bytes it does not know, and says nothing.
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

TEST(MemberClient, AStoreServerThatSwallowsWhatItDoesNotKnowIsNamedToo) {
  boost::asio::io_context loop;
  const SwallowingStore server(loop);
  Client client(loop, server.port(), client_options());
  EXPECT_TRUE(client.wait_error("a PyTorch TCPStore server"));
  EXPECT_EQ(client.dialler.dials, 2);
}

TEST(MemberClient, AWebServerOnTheOtherEndIsNamedAfterAFewTries) {
  boost::asio::io_context loop;
  const OddServer server(loop, "HTTP/1.1 400 Bad Request\r\n\r\n", false);
  Client client(loop, server.port(), client_options());
  EXPECT_TRUE(client.wait_error("a web server or proxy (HTTP/1.1 400 Bad Request)"));
  EXPECT_EQ(client.dialler.dials, 3);
}

TEST(MemberClient, AForwarderThatHangsUpIsTriedAgainBecauseItsHostMayStillCome) {
  boost::asio::io_context loop;
  const OddServer server(loop, "", true);
  Client client(loop, server.port(), client_options());
  EXPECT_TRUE(run_until(loop, [&] { return client.dialler.dials >= 10; }));
  EXPECT_TRUE(client.errors.empty());
}

TEST(MemberClient, AMuteServerIsTriedAgainAndSaidInTheStatus) {
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

TEST(MemberClient, AHostWithAnotherNumberThanTheOneThatWasMeantIsDistrusted) {
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
  EXPECT_TRUE(run_until(loop, [&] { return dialler.distrusted >= 2; }));
}

}  // namespace
}  // namespace muster
