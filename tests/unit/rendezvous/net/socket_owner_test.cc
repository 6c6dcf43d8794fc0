#include "rendezvous/net/socket_owner.h"

#include <optional>
#include <string>
#include <utility>

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rendezvous/net/interfaces.h"
#include "rendezvous/net/listening_socket.h"
#include "tests/unit/rendezvous/net/socket_harness.h"
#include "tests/wait_for.h"

namespace muster {
namespace {

constexpr uid_t kUser = 54321;

// A connection to a listener of this process.
struct Connected {
  explicit Connected(const IpAddress& ip) {
    auto listening = listen_on({{ip, 0}});
    EXPECT_TRUE(listening.has_value());
    listener = std::move(listening->front().fd);
    place = listening->front().address;
    client = dial();
    server = UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    EXPECT_TRUE(server);
  }
  UniqueFd dial() const {
    UniqueFd made(::socket(place.ip.is_v6() ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_storage raw{};
    const socklen_t size = place.to_sockaddr(raw);
    EXPECT_EQ(::connect(made.get(), reinterpret_cast<sockaddr*>(&raw), size), 0);
    return made;
  }
  SocketAddress client_address() const { return remote_address_of(server.get()); }

  UniqueFd listener, client, server;
  SocketAddress place;
};

class SocketOwnersTest : public testing::Test {
 protected:
  void SetUp() override {
    Result<SocketOwners> opened = SocketOwners::open();
    if (!opened) GTEST_SKIP() << opened.error().message;
    owners_.emplace(std::move(*opened));
  }
  std::optional<SocketOwners> owners_;
};

TEST_F(SocketOwnersTest, KnowTheUserOverBothFamilies) {
  for (const IpAddress& ip : {IpAddress::loopback_v4(), IpAddress::loopback_v6()}) {
    const Connected one(ip);
    EXPECT_EQ(owners_->owner_of(one.client_address(), one.place), ::geteuid()) << ip.to_string();
  }
}

// PyTorch's client connects like this.
TEST_F(SocketOwnersTest, KnowAClientThatUsesIpv4OverAnIpv6Socket) {
  const Connected one(IpAddress::loopback_v4());
  const UniqueFd client(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 mapped{};
  mapped.sin6_family = AF_INET6;
  mapped.sin6_port = htons(one.place.port);
  ASSERT_EQ(::inet_pton(AF_INET6, "::ffff:127.0.0.1", &mapped.sin6_addr), 1);
  ASSERT_EQ(::connect(client.get(), reinterpret_cast<sockaddr*>(&mapped), sizeof mapped), 0);
  const UniqueFd server(::accept4(one.listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const SocketAddress there = remote_address_of(server.get());
  EXPECT_EQ(owners_->owner_of(there, one.place), ::geteuid());
  EXPECT_EQ(owners_->owner_of(there, {*IpAddress::parse("192.0.2.1"), one.place.port}),
            ::geteuid());
}

TEST_F(SocketOwnersTest, KnowNoOwnerOfAClosedClient) {
  Connected one(IpAddress::loopback_v4());
  const SocketAddress client = one.client_address();
  ASSERT_EQ(::send(one.client.get(), "set", 3, 0), 3);
  one.client.reset();
  EXPECT_EQ(owners_->owner_of(client, one.place), std::nullopt) << "its bytes can still be read";
  EXPECT_EQ(owners_->owner_of({client.ip, 1}, one.place), std::nullopt);
}

// The address that the client dialled may be translated on the way (NAT).
TEST_F(SocketOwnersTest, FindAClientThatSeesAnotherServerAddress) {
  const Connected one(IpAddress::loopback_v4());
  SocketAddress other = one.place;
  other.ip = *IpAddress::parse("192.0.2.1");
  EXPECT_EQ(owners_->owner_of(one.client_address(), other), ::geteuid());
  EXPECT_EQ(owners_->direct_owner_of(one.client_address(), one.place), ::geteuid());
  EXPECT_EQ(owners_->direct_owner_of(one.client_address(), other), std::nullopt);
}

// A half-closed connection could be confused with another user's from the same port elsewhere.
TEST_F(SocketOwnersTest, KnowNoOwnerOfAHalfClosedClient) {
  const Connected one(IpAddress::loopback_v4());
  const Connected other(IpAddress::loopback_v4());
  const SocketAddress client = one.client_address();
  ASSERT_EQ(::shutdown(one.client.get(), SHUT_WR), 0);
  EXPECT_EQ(owners_->owner_of(client, one.place), std::nullopt);
  EXPECT_FALSE(is_established(one.server.get()));
  EXPECT_TRUE(is_established(other.server.get()));
}

// Connects as another user from the port of `twin`, if this kernel permits it. A lookup by
// addresses does not find a socket bound to a device, and a full window delays its closing.
bool connect_as_thief(const SocketAddress& twin, const SocketAddress& place) {
  constexpr int kIpLocalPortRange = 51;  // IP_LOCAL_PORT_RANGE: Linux 6.3.
  const uint32_t range = uint32_t{twin.port} << 16 | twin.port;
  const int yes = 1;
  if (::setuid(kUser) != 0) return false;  // First, since a socket belongs to its creator.
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_storage raw{};
  const socklen_t size = place.to_sockaddr(raw);
  const bool is_connected =
      ::setsockopt(fd, IPPROTO_IP, kIpLocalPortRange, &range, sizeof range) == 0 &&
      ::setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &yes, sizeof yes) == 0 &&
      ::setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3) == 0 &&
      ::connect(fd, reinterpret_cast<sockaddr*>(&raw), size) == 0;
  const std::string much(size_t{1} << 20, 'x');
  while (is_connected && ::send(fd, much.data(), much.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
    continue;
  return is_connected && ::shutdown(fd, SHUT_WR) == 0;
}

TEST_F(SocketOwnersTest, DoNotConfuseTwoConnectionsFromOnePort) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to be another user";
  const Connected own(IpAddress::loopback_v4());
  const Connected his(IpAddress::loopback_v4());
  const SocketAddress client = own.client_address();
  int over[2], done[2];
  ASSERT_EQ(::pipe2(over, O_CLOEXEC), 0);
  ASSERT_EQ(::pipe2(done, O_CLOEXEC), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(over[1]);
    const char word = connect_as_thief(client, his.place) ? 'y' : 'n';
    char byte;
    if (::write(done[1], &word, 1) == 1) static_cast<void>(::read(over[0], &byte, 1));
    _exit(0);
  }
  char word = 0;
  ASSERT_EQ(::read(done[0], &word, 1), 1);
  if (word == 'y') {
    const UniqueFd there(::accept4(his.listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    EXPECT_EQ(remote_address_of(there.get()), client) << "two connections from one port";
    EXPECT_TRUE(is_established(there.get())) << "the full window holds the end of stream back";
    EXPECT_EQ(owners_->owner_of(client, his.place), std::nullopt);
  }
  for (const int fd : {over[0], over[1], done[0], done[1]})
    ::close(fd);
  ::waitpid(child, nullptr, 0);
  if (word != 'y') GTEST_SKIP() << "this kernel does not let two connections share a port so";
}

TEST_F(SocketOwnersTest, AnswerAnyNumberOfDirectQuestions) {
  const Connected one(IpAddress::loopback_v4());
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(owners_->owner_of(one.client_address(), one.place), ::geteuid());
    ASSERT_EQ(owners_->owner_of({one.place.ip, 1}, one.place), std::nullopt);
  }
  SocketAddress other = one.place;
  other.ip = *IpAddress::parse("192.0.2.1");
  EXPECT_EQ(owners_->owner_of(one.client_address(), other), std::nullopt) << "too many searches";
}

TEST_F(SocketOwnersTest, KnowAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to be another user";
  const Connected listening(IpAddress::loopback_v4());
  const OtherUser user(kUser, listening.place);
  UniqueFd accepted;
  const auto has_come = [&] {
    accepted = UniqueFd(::accept4(listening.listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    return static_cast<bool>(accepted);
  };
  test::wait_for(has_come, "the other user's connection");
  EXPECT_EQ(owners_->owner_of(remote_address_of(accepted.get()), listening.place), kUser);
}

}  // namespace
}  // namespace muster
