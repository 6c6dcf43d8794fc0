// The sockets of a group: what the record of an address says, who is let in, what is asked and
// answered.
#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/base/random.h"
#include "tests/unit/worker_lib/backends/backend_ranks.h"
#include "worker_lib/backends/cpu/hierarchy_layout.h"
#include "worker_lib/backends/cpu/tcp_acceptor.h"
#include "worker_lib/backends/cpu/tcp_links.h"

namespace muster::worker {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

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

TEST(ListenAddress, ReadsWhatItWrites) {
  for (const char* tcp : {"10.0.0.1:29500", "[fe80::1%2]:1", "[::1]:65535"}) {
    const ListenAddress address{*SocketAddress::parse(tcp), "muster-0123",
                                random_bytes(kSecretBytes)};
    EXPECT_EQ(ListenAddress::decode(address.encode()), address) << address.encode();
  }
}

TEST(ListenAddress, RefusesWhatIsNoAddress) {
  const ListenAddress address{*SocketAddress::parse("10.0.0.1:2"), "x", random_bytes(kSecretBytes)};
  const std::string good = address.encode();
  for (const std::string& text :
       {std::string(), std::string("x"), std::string("10.0.0.1:2"), std::string("10.0.0.1:2 78"),
        std::string("10.0.0.1:2 78 00"), good + "00", good.substr(0, good.size() - 1),
        "host" + good, good.substr(0, good.size() - 1) + "x"})
    EXPECT_FALSE(ListenAddress::decode(text)) << text;
}

TEST(ListenAddress, OpensOnAllAddressesWhereItsOwnIsNotThisMachines) {
  Peer self = peer_at(0, "a");
  self.address = "192.0.2.1";  // RFC 5737: nobody's.
  const auto open = open_listeners(self);
  ASSERT_TRUE(open) << open.error().message;
  EXPECT_EQ(open->address.tcp.ip.to_string(), "192.0.2.1") << "others still come there";
  EXPECT_NE(open->address.tcp.port, 0);
  EXPECT_EQ(open->listeners.size(), 2U);
}

TEST(ListenAddress, SaysWhoseAddressIsNone) {
  Peer self = peer_at(3, "a");
  self.address = "nowhere";
  const auto open = open_listeners(self);
  ASSERT_FALSE(open);
  EXPECT_EQ(open.error().message, "rank 3 (host3, pid 103) has no usable address: \"nowhere\"");
}

// ---- acceptor

// An acceptor with a mailbox for each purpose.
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
    auto started =
        Acceptor::start({.size = 3, .open = std::move(*open), .deliver = {keep(0), keep(1)}});
    ASSERT_TRUE(started);
    acceptor_ = std::move(*started);
  }

  static Socket visit(Outcome<Socket> begun) {
    EXPECT_TRUE(begun) << begun.error().message;
    pollfd state{begun->get(), POLLOUT, 0};
    EXPECT_EQ(poll(&state, 1, 30'000), 1);
    return std::move(*begun);
  }
  Socket by_tcp() const { return visit(begin_connect(address_.tcp)); }
  Socket by_unix() const { return visit(begin_connect_local(address_.local)); }

  static void say(const Socket& socket, const void* bytes, size_t count) {
    EXPECT_EQ(::send(socket.get(), bytes, count, MSG_NOSIGNAL), static_cast<ssize_t>(count));
  }
  // Whether the other end hangs up.
  static bool is_sent_away(const Socket& socket) {
    pollfd state{socket.get(), POLLIN, 0};
    char byte;
    return poll(&state, 1, 30'000) == 1 && ::recv(socket.get(), &byte, 1, MSG_DONTWAIT) <= 0;
  }
  std::vector<std::pair<int, int>> wait_for_arrivals(int count) {
    while (arrivals_.load() < count)
      std::this_thread::yield();
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

TEST_F(Receiving, HandsConnectionsToWhomTheyAreFor) {
  const Socket first = by_tcp();
  const Hello hello = make_hello(Purpose::transfers, 2, address_);
  say(first, &hello, sizeof hello);
  EXPECT_THAT(wait_for_arrivals(1), ElementsAre(std::pair(1, 2)));
  const Socket second = by_unix();
  const Hello other = make_hello(Purpose::collectives, 1, address_);
  say(second, &other, sizeof other);
  EXPECT_THAT(wait_for_arrivals(2), ElementsAre(std::pair(1, 2), std::pair(0, 1)));
}

TEST_F(Receiving, ReadsAHelloThatComesInPieces) {
  const Socket socket = by_tcp();
  const Hello hello = make_hello(Purpose::collectives, 1, address_);
  const auto* bytes = reinterpret_cast<const char*>(&hello);
  for (size_t i = 0; i < sizeof hello; ++i)
    say(socket, bytes + i, 1);
  EXPECT_THAT(wait_for_arrivals(1), ElementsAre(std::pair(0, 1)));
}

TEST_F(Receiving, SendsStrangersAway) {
  Hello wrong_secret = make_hello(Purpose::collectives, 1, address_);
  wrong_secret.secret[3] ^= 1;
  Hello wrong_magic = make_hello(Purpose::collectives, 1, address_);
  wrong_magic.magic ^= 1;
  Hello wrong_version = make_hello(Purpose::collectives, 1, address_);
  ++wrong_version.version;
  const Hello wrong_rank = make_hello(Purpose::collectives, 3, address_);
  const Hello negative = make_hello(Purpose::collectives, -1, address_);
  for (const Hello& hello : {wrong_secret, wrong_magic, wrong_version, wrong_rank, negative}) {
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

TEST_F(Receiving, MuteVisitorsDoNotKeepOthersOut) {
  std::vector<Socket> mute;
  for (int i = 0; i < 100; ++i)
    mute.push_back(by_tcp());
  const Socket socket = by_tcp();
  const Hello hello = make_hello(Purpose::collectives, 2, address_);
  say(socket, &hello, sizeof hello);
  EXPECT_THAT(wait_for_arrivals(1), ElementsAre(std::pair(0, 2)));
}

// ---- layout

TEST(NodeLayout, KeepsTheOrderOfTheRanks) {
  const NodeLayout layout = NodeLayout::of(members_on("bab", 0));
  EXPECT_THAT(layout.nodes, ElementsAre(ElementsAre(0, 2), ElementsAre(1)));
  EXPECT_THAT(layout.node_of, ElementsAre(0, 1, 0));
  EXPECT_THAT(layout.local_of, ElementsAre(0, 0, 1));
  EXPECT_FALSE(layout.is_even());
  EXPECT_FALSE(layout.is_contiguous());
}

TEST(NodeLayout, KnowsColumnsOfEvenNodes) {
  const Members members = members_on("abab", 3);
  const NodeLayout layout = NodeLayout::of(members);
  EXPECT_TRUE(layout.is_even());
  EXPECT_FALSE(layout.is_contiguous());
  EXPECT_THAT(layout.column(1), ElementsAre(2, 3));
  EXPECT_EQ(layout.members_of(members, 1).me, 1);
  EXPECT_EQ(layout.members_of(members, 0).me, -1);
  EXPECT_TRUE(NodeLayout::of(members_on("aabb", 0)).is_contiguous());
  EXPECT_FALSE(NodeLayout::of(members_on("abc", 0)).is_even()) << "nothing to share";
}

}  // namespace
}  // namespace muster::worker
