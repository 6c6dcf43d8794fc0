// The sockets of a group: the record of an address, which peers are admitted, and the handshake.
#include <atomic>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/base/random.h"
#include "tests/unit/worker_lib/backends/backend_ranks.h"
#include "tests/wait_for.h"
#include "worker_lib/backends/cpu/tcp_acceptor.h"
#include "worker_lib/backends/cpu/tcp_links.h"

namespace muster::worker {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

const std::string kSecret = "of the job";

Peer peer_at(int rank, const std::string& node) {
  return {GlobalRank{rank}, node, "host" + std::to_string(rank), 100 + rank, "127.0.0.1"};
}

Members members_on(const std::string& nodes, int me) {
  Members members;
  for (size_t i = 0; i < nodes.size(); ++i)
    members.peers.push_back(peer_at(static_cast<int>(i), std::string(1, nodes[i])));
  members.me = me;
  return members;
}

// ---- addresses

TEST(ListenAddress, RefusesMalformedText) {
  const ListenAddress address{*SocketAddress::parse("10.0.0.1:2"), "x"};
  const std::string good = address.encode();
  for (const std::string& text :
       {std::string(), std::string("x"), std::string("10.0.0.1:2"), std::string("10.0.0.1:2 7"),
        std::string("10.0.0.1:2 78 00"), good.substr(0, good.size() - 1), "host" + good,
        good.substr(0, good.size() - 1) + "x"})
    EXPECT_FALSE(ListenAddress::decode(text)) << text;
}

TEST(ListenAddress, ListensOnAllInterfacesIfItsAddressIsNotLocal) {
  Peer self = peer_at(0, "a");
  self.address = "192.0.2.1";  // RFC 5737: for documentation.
  const auto open = open_listeners(self);
  ASSERT_TRUE(open) << open.error().message;
  EXPECT_EQ(open->address.tcp.ip.to_string(), "192.0.2.1") << "others still connect there";
  EXPECT_NE(open->address.tcp.port, 0);
  EXPECT_EQ(open->listeners.size(), 2U);
}

TEST(ListenAddress, NamesTheRankWithoutAUsableAddress) {
  Peer self = peer_at(3, "a");
  self.address = "nowhere";
  const auto open = open_listeners(self);
  ASSERT_FALSE(open);
  EXPECT_EQ(open.error().message, "rank 3 (host3, pid 103) has no usable address: \"nowhere\"");
}

// ---- acceptor

// An acceptor that keeps the connections of each purpose.
class Receiving : public testing::Test {
 protected:
  void SetUp() override {
    auto open = open_listeners(peer_at(0, "a"));
    ASSERT_TRUE(open);
    address_ = open->address;
    const auto keep = [this](int purpose) {
      return [this, purpose](int from, Socket socket) {
        const std::lock_guard lock(mutex_);
        came_.emplace_back(purpose, from);
        kept_.push_back(std::move(socket));
        arrivals_.fetch_add(1);
      };
    };
    auto started = Acceptor::start(
        {.size = 3, .secret = kSecret, .open = std::move(*open), .deliver = {keep(0), keep(1)}});
    ASSERT_TRUE(started);
    acceptor_ = std::move(*started);
  }

  static Socket visit(Dialled dialled) {
    EXPECT_TRUE(dialled.socket) << dialled.error;
    pollfd state{dialled.socket.get(), POLLOUT, 0};
    EXPECT_EQ(poll(&state, 1, 30'000), 1);
    return std::move(dialled.socket);
  }
  static LinkHello hello_of(Purpose purpose, int from) {
    LinkHello hello;
    hello.purpose = static_cast<uint8_t>(purpose);
    hello.from = from;
    hello.nonce = random_value<LinkNonce>();
    return hello;
  }
  // Returns the answer to the hello; nullopt: the other end hangs up.
  static std::optional<LinkChallenge> challenge_from(const Socket& socket) {
    LinkChallenge challenge;
    size_t heard = 0;
    while (heard < sizeof challenge) {
      pollfd state{socket.get(), POLLIN, 0};
      EXPECT_EQ(poll(&state, 1, 30'000), 1);
      const ssize_t got = ::recv(socket.get(), reinterpret_cast<char*>(&challenge) + heard,
                                 sizeof challenge - heard, MSG_DONTWAIT);
      if (got <= 0) return std::nullopt;
      heard += static_cast<size_t>(got);
    }
    return challenge;
  }
  // Completes the handshake as a member does.
  void greet(const Socket& socket, const LinkHello& hello) const {
    say(socket, &hello, sizeof hello);
    const std::optional<LinkChallenge> challenge = challenge_from(socket);
    ASSERT_TRUE(challenge);
    const LinkTerms terms{link_purpose(hello, address_), hello.nonce, challenge->nonce};
    EXPECT_TRUE(same_mac(challenge->proof, listener_proof(kSecret, terms)));
    const Mac proof = dialler_proof(kSecret, terms);
    say(socket, proof.data(), proof.size());
    char admitted = 0;
    pollfd state{socket.get(), POLLIN, 0};
    EXPECT_EQ(poll(&state, 1, 30'000), 1);
    EXPECT_EQ(::recv(socket.get(), &admitted, 1, MSG_DONTWAIT), 1);
    EXPECT_EQ(admitted, kAdmitted);
  }
  Socket by_tcp() const { return visit(dial(address_.tcp)); }
  Socket by_unix() const { return visit(dial_local(address_.local)); }

  static void say(const Socket& socket, const void* bytes, size_t count) {
    EXPECT_EQ(::send(socket.get(), bytes, count, MSG_NOSIGNAL), static_cast<ssize_t>(count));
  }
  // True if the other end hangs up.
  static bool is_sent_away(const Socket& socket) {
    pollfd state{socket.get(), POLLIN, 0};
    char byte;
    return poll(&state, 1, 30'000) == 1 && ::recv(socket.get(), &byte, 1, MSG_DONTWAIT) <= 0;
  }
  std::vector<std::pair<int, int>> wait_for_arrivals(int count) {
    test::wait_for([&] { return arrivals_.load() >= count; }, "so many connections");
    const std::lock_guard lock(mutex_);
    return came_;
  }

  ListenAddress address_;
  std::mutex mutex_;
  std::vector<std::pair<int, int>> came_;
  std::vector<Socket> kept_;
  std::atomic<int> arrivals_{0};
  std::unique_ptr<Acceptor> acceptor_;
};

TEST_F(Receiving, HandsConnectionsToTheirPurpose) {
  const Socket first = by_tcp();
  greet(first, hello_of(Purpose::transfers, 2));
  EXPECT_THAT(wait_for_arrivals(1), ElementsAre(std::pair(1, 2)));
  const Socket second = by_unix();
  greet(second, hello_of(Purpose::collectives, 1));
  EXPECT_THAT(wait_for_arrivals(2), ElementsAre(std::pair(1, 2), std::pair(0, 1)));
}

TEST_F(Receiving, ReadsAGreetingThatComesInPieces) {
  const Socket socket = by_tcp();
  const LinkHello hello = hello_of(Purpose::collectives, 1);
  const auto* bytes = reinterpret_cast<const char*>(&hello);
  for (size_t i = 0; i < sizeof hello; ++i)
    say(socket, bytes + i, 1);
  const std::optional<LinkChallenge> challenge = challenge_from(socket);
  ASSERT_TRUE(challenge);
  const Mac proof =
      dialler_proof(kSecret, {link_purpose(hello, address_), hello.nonce, challenge->nonce});
  for (const uint8_t& byte : proof)
    say(socket, &byte, 1);
  EXPECT_THAT(wait_for_arrivals(1), ElementsAre(std::pair(0, 1)));
}

TEST_F(Receiving, HangsUpOnMalformedGreetings) {
  LinkHello wrong_magic = hello_of(Purpose::collectives, 1);
  wrong_magic.magic ^= 1;
  LinkHello wrong_version = hello_of(Purpose::collectives, 1);
  ++wrong_version.version;
  LinkHello wrong_purpose = hello_of(Purpose::collectives, 1);
  wrong_purpose.purpose = 2;
  for (const LinkHello& hello :
       {wrong_magic, wrong_version, wrong_purpose, hello_of(Purpose::collectives, 3),
        hello_of(Purpose::collectives, -1)}) {
    const Socket socket = by_tcp();
    say(socket, &hello, sizeof hello);
    EXPECT_TRUE(is_sent_away(socket));
  }
  const Socket web = by_tcp();
  const std::string get = "GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n";
  say(web, get.data(), get.size());
  EXPECT_TRUE(is_sent_away(web));
  EXPECT_EQ(arrivals_.load(), 0);
}

// A peer that knows the address but not the secret sends a guess, the listener's own proof, or a
// proof for another rank, purpose, listener or connection.
TEST_F(Receiving, RefusesPeersWithoutTheSecret) {
  const LinkHello hello = hello_of(Purpose::collectives, 1);
  ListenAddress elsewhere = address_;
  elsewhere.local += "x";
  const auto proofs = [&](const LinkChallenge& heard) {
    const std::string purpose = link_purpose(hello, address_);
    const auto of = [&](const LinkHello& said, const ListenAddress& to) {
      return dialler_proof(kSecret, {link_purpose(said, to), hello.nonce, heard.nonce});
    };
    return std::vector<Mac>{
        Mac{},
        dialler_proof("guess", {purpose, hello.nonce, heard.nonce}),
        heard.proof,
        of(hello_of(Purpose::collectives, 2), address_),
        of(hello_of(Purpose::transfers, 1), address_),
        of(hello, elsewhere),
        dialler_proof(kSecret, {purpose, hello.nonce, hello.nonce}),
        dialler_proof(kSecret, {purpose, random_value<LinkNonce>(), heard.nonce})};
  };
  for (size_t i = 0; i < proofs({}).size(); ++i) {
    const Socket socket = by_tcp();
    say(socket, &hello, sizeof hello);
    const std::optional<LinkChallenge> heard = challenge_from(socket);
    ASSERT_TRUE(heard);
    const Mac proof = proofs(*heard)[i];
    say(socket, proof.data(), proof.size());
    EXPECT_TRUE(is_sent_away(socket)) << i;
  }
  EXPECT_EQ(arrivals_.load(), 0);
}

TEST_F(Receiving, SilentConnectionsDoNotKeepOthersOut) {
  std::vector<Socket> mute;
  for (int i = 0; i < 100; ++i)
    mute.push_back(by_tcp());
  const Socket socket = by_tcp();
  greet(socket, hello_of(Purpose::collectives, 2));
  EXPECT_THAT(wait_for_arrivals(1), ElementsAre(std::pair(0, 2)));
}

// ---- links

// Rank 0 writes to rank 1, of which only the listener exists.
class SocketLinksTest : public testing::Test {
 protected:
  void SetUp() override {
    auto open = open_listeners(members_[1]);
    ASSERT_TRUE(open);
    there_ = std::move(*open);
    addresses_.assign(2, there_.address);
    auto made = SocketLinks::make(Purpose::collectives, members_, addresses_, kSecret);
    ASSERT_TRUE(made);
    links_ = std::move(*made);
  }
  Outcome<size_t> write() { return links_->write(1, {&part_, 1}); }
  Socket accept_one() const {
    return Socket(accept4(there_.listeners[0].get(), nullptr, nullptr, 0));
  }

  const Members members_ = members_on("ab", 0);
  std::string data_ = "gradients";
  const iovec part_{data_.data(), data_.size()};
  Listeners there_;
  std::vector<ListenAddress> addresses_;
  std::unique_ptr<SocketLinks> links_;
};

TEST_F(SocketLinksTest, SendNoDataToAnImpostor) {
  Socket impostor;
  std::string heard;
  Outcome<size_t> written = size_t{0};
  const auto until = std::chrono::steady_clock::now() + seconds(30);
  while (written && *written == 0 && std::chrono::steady_clock::now() < until) {
    written = write();
    if (!impostor) impostor = accept_one();
    char byte;
    while (impostor && ::recv(impostor.get(), &byte, 1, MSG_DONTWAIT) == 1)
      heard += byte;
    if (heard.size() != sizeof(LinkHello)) continue;
    const LinkChallenge forged{random_value<LinkNonce>(), {}};
    ::send(impostor.get(), &forged, sizeof forged, MSG_NOSIGNAL);
  }
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, ErrorCode::peer_failed);
  EXPECT_THAT(written.error().message, HasSubstr("does not belong to the job"));
  EXPECT_EQ(heard.size(), sizeof(LinkHello)) << "no data";
}

// As if this process had been stopped for so long that the listener gave up.
TEST_F(SocketLinksTest, GreetAgainIfTheListenerHungUp) {
  std::atomic<int> came = 0;
  std::unique_ptr<Acceptor> acceptor;
  Outcome<size_t> written = size_t{0};
  const auto until = std::chrono::steady_clock::now() + seconds(30);
  while (written && *written == 0 && std::chrono::steady_clock::now() < until) {
    written = write();
    if (acceptor) continue;
    const Socket first = accept_one();
    if (!first) continue;
    LinkHello hello;
    ASSERT_EQ(::recv(first.get(), &hello, sizeof hello, MSG_WAITALL),
              static_cast<ssize_t>(sizeof hello));
    auto started = Acceptor::start({.size = 2,
                                    .secret = kSecret,
                                    .open = std::move(there_),
                                    .deliver = {[&](int, Socket) { ++came; }, {}}});
    ASSERT_TRUE(started);
    acceptor = std::move(*started);
  }
  ASSERT_TRUE(written) << written.error().message;
  EXPECT_EQ(*written, data_.size());
  // The dialler is admitted before its connection is delivered.
  test::wait_for([&] { return came != 0; }, "the connection is handed on");
  EXPECT_EQ(came, 1);
}

}  // namespace
}  // namespace muster::worker
