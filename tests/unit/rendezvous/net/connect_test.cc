#include "rendezvous/net/connect.h"

#include <cerrno>
#include <optional>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "rendezvous/net/interfaces.h"
#include "tests/unit/rendezvous/net/addresses.h"
#include "tests/unit/rendezvous/net/socket_harness.h"

namespace muster {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

LookUp answering(std::vector<IpAddress> addresses) {
  return [addresses](const std::string&) { return addresses; };
}

struct Dialled {
  int calls = 0;
  std::string peer;  // of the connection
  NetError error;
};

Dialled connect_to(const std::string& host, uint16_t port, ConnectOptions options,
                   std::chrono::milliseconds limit = kLimit) {
  boost::asio::io_context io;
  Dialled outcome;
  const Connecting connecting =
      connect_any(io, host, port, in(limit), std::move(options), [&](NetResult<TcpSocket> got) {
        ++outcome.calls;
        if (!got)
          outcome.error = got.error();
        else
          outcome.peer = got->remote_endpoint().address().to_string();
      });
  EXPECT_EQ(outcome.calls, 0);
  io.run();
  return outcome;
}

// A bound port without a listener; no other process can take it.
PlainSocket closed_port(const IpAddress& address) {
  return PlainSocket::bound_to({address, 0}, -1);
}

// Answers no SYN: its accept queue is full, so Linux drops the SYN (tcp(7)).
struct MutePort {
  PlainSocket listener = PlainSocket::bound_to({ip("127.0.0.2"), 0}, 0);
  std::vector<int> queue;
  MutePort() {
    // One connection more than the backlog fills the queue; the others stay in SYN_SENT.
    for (int i = 0; i < 3; ++i) {
      sockaddr_storage raw{};
      const socklen_t length = listener.own_address().to_sockaddr(raw);
      queue.push_back(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      const int result = connect(queue.back(), reinterpret_cast<sockaddr*>(&raw), length);
      EXPECT_TRUE(result == 0 || errno == EINPROGRESS);
    }
  }
  MutePort(const MutePort&) = delete;
  MutePort& operator=(const MutePort&) = delete;
  ~MutePort() {
    for (const int fd : queue)
      close(fd);
  }
};

TEST(ConnectAny, ConnectsToANumericAddress) {
  const PlainSocket listener = PlainSocket::bound_to({IpAddress::loopback_v4(), 0});
  const Dialled outcome = connect_to("127.0.0.1", listener.own_address().port, {});
  EXPECT_EQ(outcome.calls, 1);
  EXPECT_EQ(outcome.peer, "127.0.0.1");
}

TEST(ConnectAny, ConnectsToAnIpv6AddressInBrackets) {
  if (!is_own_address(IpAddress::loopback_v6())) GTEST_SKIP() << "this machine has no IPv6";
  const PlainSocket listener = PlainSocket::bound_to({IpAddress::loopback_v6(), 0});
  EXPECT_EQ(connect_to("[::1]", listener.own_address().port, {}).peer, "::1");
}

TEST(ConnectAny, TriesTheNextAddressAtOnceIfOneRefuses) {
  const PlainSocket listener = PlainSocket::bound_to({ip("127.0.0.3"), 0});
  ConnectOptions options;
  // An hour: only the refusal can bring the second attempt within the limit.
  options.attempt_delay = std::chrono::hours(1);
  options.look_up = answering({ip("127.0.0.1"), ip("127.0.0.2"), ip("127.0.0.3")});
  EXPECT_EQ(connect_to("node1", listener.own_address().port, options).peer, "127.0.0.3");
}

TEST(ConnectAny, TriesTheNextAddressWhileTheFirstIsSilent) {
  const MutePort mute;
  const PlainSocket listener =
      PlainSocket::bound_to({ip("127.0.0.3"), mute.listener.own_address().port});
  ConnectOptions options;
  options.attempt_delay = std::chrono::milliseconds(1);
  options.look_up = answering({ip("127.0.0.2"), ip("127.0.0.3")});
  EXPECT_EQ(connect_to("node1", listener.own_address().port, options).peer, "127.0.0.3");
}

TEST(ConnectAny, IgnoresAFamilyThatFailsIfTheOtherWorks) {
  const PlainSocket listener = PlainSocket::bound_to({IpAddress::loopback_v4(), 0});
  ConnectOptions options;
  // The discard prefix of RFC 6666 has no route, so the attempt fails at once or stays silent.
  options.look_up = answering({ip("100::1"), ip("127.0.0.1")});
  const Dialled outcome = connect_to("node1", listener.own_address().port, options);
  EXPECT_EQ(outcome.peer, "127.0.0.1");
  EXPECT_EQ(outcome.error, NetError{});
}

TEST(ConnectAny, ListsEveryAddressAndReasonIfAllFail) {
  const PlainSocket closed = closed_port(IpAddress::any_v4());
  const uint16_t port = closed.own_address().port;
  ConnectOptions options;
  options.look_up = answering({ip("127.0.0.1"), ip("127.0.0.2")});
  const Dialled outcome = connect_to("node1", port, options);
  const std::string number = std::to_string(port);
  EXPECT_EQ(outcome.calls, 1);
  EXPECT_EQ(outcome.error, (NetError{NetFailure::refused,
                                     "could not connect to node1:" + number + ": 127.0.0.1:" +
                                         number + " Connection refused, 127.0.0.2:" + number +
                                         " Connection refused; check that the other side is "
                                         "running and the port",
                                     true}));
}

TEST(ConnectAny, FailsAtTheDeadlineIfThePeerIsSilent) {
  const MutePort mute;
  const uint16_t port = mute.listener.own_address().port;
  const Dialled outcome = connect_to("127.0.0.2", port, {}, std::chrono::milliseconds(50));
  EXPECT_EQ(outcome.error.failure, NetFailure::timed_out);
  EXPECT_THAT(outcome.error.message,
              HasSubstr("127.0.0.2:" + std::to_string(port) + ": did not answer in time"));
}

TEST(ConnectAny, ReportsAMissingName) {
  ConnectOptions options;
  options.look_up = [](const std::string&) -> NetResult<std::vector<IpAddress>> {
    return tl::unexpected(NetError{NetFailure::name_unknown, "no such pod yet"});
  };
  const Dialled outcome = connect_to("pod-0", 29500, options);
  EXPECT_TRUE(outcome.error.name_is_missing());
  EXPECT_EQ(outcome.error.message, "no such pod yet");
}

TEST(ConnectAny, NeverTakesASocketConnectedToItselfForAPeer) {
  in_own_network([] {
    // With one port in the range, a connect to that port also gets it as its local port.
    set_sysctl("net/ipv4/ip_local_port_range", "40000 40000");
    const PlainSocket itself = PlainSocket::connected_to({ip("127.0.0.1"), 40000});
    ASSERT_EQ(itself.own_address(), (SocketAddress{ip("127.0.0.1"), 40000}));
  });
  in_own_network([] {
    set_sysctl("net/ipv4/ip_local_port_range", "40000 40000");
    EXPECT_EQ(connect_to("127.0.0.1", 40000, {}).error.failure, NetFailure::refused);
  });
}

TEST(ConnectAny, FailsIfTheNameHasNoAddress) {
  ConnectOptions options;
  options.look_up = answering({});
  EXPECT_EQ(
      connect_to("node1", 29500, options).error,
      (NetError{
          NetFailure::unreachable,
          "could not connect to node1:29500: it has no address of the family of this machine"}));
}

TEST(ConnectAny, ConnectsASocketWhoseBothAddressesAreKnown) {
  const PlainSocket listener = PlainSocket::bound_to({IpAddress::loopback_v4(), 0});
  boost::asio::io_context io;
  std::optional<TcpSocket> socket;
  const Connecting connecting =
      connect_any(io, "here", std::vector{listener.own_address()}, in(kLimit), {},
                  [&](NetResult<TcpSocket> got) { socket = std::move(*got); });
  io.run();
  ASSERT_TRUE(socket);
  const int fd = socket->native_handle();
  EXPECT_EQ(remote_address_of(fd), listener.own_address());
  EXPECT_EQ(local_address_of(fd).ip, IpAddress::loopback_v4());
  EXPECT_NE(local_address_of(fd).port, 0);
  socket->close();
  EXPECT_EQ(local_address_of(fd), SocketAddress{});
}

TEST(ConnectAny, NeverCallsBackOnceItsHandleIsDestroyed) {
  const PlainSocket listener = PlainSocket::bound_to({IpAddress::loopback_v4(), 0});
  boost::asio::io_context io;
  int calls = 0;
  const auto count = [&](const NetResult<TcpSocket>&) { ++calls; };
  static_cast<void>(
      connect_any(io, "127.0.0.1", listener.own_address().port, in(kLimit), {}, count));
  Connecting replaced =
      connect_any(io, "127.0.0.1", listener.own_address().port, in(kLimit), {}, count);
  io.poll_one();
  replaced = Connecting();
  io.run();
  EXPECT_EQ(calls, 0);
}

TEST(ConnectAny, LetsTheCallbackDestroyTheHandle) {
  const PlainSocket listener = PlainSocket::bound_to({IpAddress::loopback_v4(), 0});
  boost::asio::io_context io;
  int calls = 0;
  Connecting connecting;
  connecting = connect_any(io, "here", std::vector{listener.own_address()}, in(kLimit), {},
                           [&](const NetResult<TcpSocket>& got) {
                             EXPECT_TRUE(got);
                             ++calls;
                             connecting = Connecting();
                           });
  io.run();
  EXPECT_EQ(calls, 1);
}

TEST(ConnectAny, CanBeDestroyedInMidAttempt) {
  const MutePort mute;
  boost::asio::io_context io;
  const Connecting connecting = connect_any(io, "127.0.0.2", mute.listener.own_address().port,
                                            in(kLimit), {}, [](const NetResult<TcpSocket>&) {});
  io.poll();  // The attempt is under way at destruction.
}

TEST(ConnectBlocking, ReturnsANonBlockingDescriptorWithTheOptions) {
  const PlainSocket listener = PlainSocket::bound_to({IpAddress::loopback_v4(), 0});
  ConnectOptions options;
  options.dead_peer_after = std::chrono::seconds(12);
  const auto fd = connect_blocking("127.0.0.1", listener.own_address().port, in(kLimit), options);
  ASSERT_TRUE(fd) << fd.error().message;
  const PlainSocket owner(*fd);
  EXPECT_NE(fcntl(*fd, F_GETFL) & O_NONBLOCK, 0);
  EXPECT_NE(fcntl(*fd, F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_EQ(option_of(*fd, IPPROTO_TCP, TCP_NODELAY), 1);
  EXPECT_EQ(option_of(*fd, SOL_SOCKET, SO_KEEPALIVE), 1);
  EXPECT_EQ(option_of(*fd, IPPROTO_TCP, TCP_KEEPIDLE), 6);
  EXPECT_EQ(option_of(*fd, IPPROTO_TCP, TCP_KEEPINTVL), 2);
  EXPECT_EQ(option_of(*fd, IPPROTO_TCP, TCP_KEEPCNT), 3);
  EXPECT_EQ(option_of(*fd, IPPROTO_TCP, TCP_USER_TIMEOUT), 12'000);
}

TEST(ConnectBlocking, FailsLikeConnectAny) {
  const PlainSocket closed = closed_port(IpAddress::loopback_v4());
  const auto fd = connect_blocking("127.0.0.1", closed.own_address().port, in(kLimit));
  ASSERT_FALSE(fd);
  EXPECT_EQ(fd.error().failure, NetFailure::refused);
  EXPECT_THAT(fd.error().message, StartsWith("could not connect to 127.0.0.1:"));
}

TEST(SetConnectionOptions, EnablesKeepAliveOnlyIfAskedTo) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const PlainSocket owner(fd);
  set_connection_options(fd, Duration::zero());
  EXPECT_EQ(option_of(fd, IPPROTO_TCP, TCP_NODELAY), 1);
  EXPECT_EQ(option_of(fd, SOL_SOCKET, SO_KEEPALIVE), 0);
}

}  // namespace
}  // namespace muster
