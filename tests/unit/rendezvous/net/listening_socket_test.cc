#include "rendezvous/net/listening_socket.h"

#include <array>
#include <cerrno>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rendezvous/base/unique_fd.h"
#include "tests/unit/rendezvous/net/addresses.h"
#include "tests/unit/rendezvous/net/socket_harness.h"

namespace muster {
namespace {

struct Listening {
  explicit Listening(const std::vector<SocketAddress>& addresses) {
    auto sockets = listen_on(addresses);
    if (!sockets) {
      error = sockets.error();
      return;
    }
    for (ListeningSocket& one : *sockets) {
      fds.push_back(std::move(one.fd));
      at.push_back(one.address);
    }
  }

  std::vector<UniqueFd> fds;
  std::vector<SocketAddress> at;
  ListenError error;
};

// Drops the capability of this thread only (capabilities(7)).
bool drop_right_to_bind() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, 2> rights{};
  if (syscall(SYS_capget, &header, rights.data()) != 0) return false;
  rights[0].effective &= ~(1u << CAP_NET_BIND_SERVICE);
  return syscall(SYS_capset, &header, rights.data()) == 0;
}

bool is_reached(const SocketAddress& address) {
  return PlainSocket::connected_to(address).fd() >= 0;
}

TEST(ListeningSocket, IsNonBlockingAndCloseOnExec) {
  const Listening listening({socket_at("127.0.0.1:0")});
  ASSERT_EQ(listening.fds.size(), 1u);
  const UniqueFd& fd = listening.fds[0];
  EXPECT_EQ(option_of(fd.get(), SOL_SOCKET, SO_ACCEPTCONN), 1);
  EXPECT_TRUE(fcntl(fd.get(), F_GETFD) & FD_CLOEXEC);
  EXPECT_TRUE(fcntl(fd.get(), F_GETFL) & O_NONBLOCK);
  EXPECT_EQ(accept(fd.get(), nullptr, nullptr), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_TRUE(is_reached(listening.at[0]));
}

TEST(ListeningSocket, BindsAllAddressesToTheSameFreePort) {
  const Listening listening(
      {socket_at("127.0.0.1:0"), socket_at("127.0.0.2:0"), socket_at("127.0.0.3:0")});
  ASSERT_EQ(listening.at.size(), 3u);
  const uint16_t port = listening.at[0].port;
  EXPECT_NE(port, 0);
  EXPECT_EQ(listening.at,
            (std::vector<SocketAddress>{
                {ip("127.0.0.1"), port}, {ip("127.0.0.2"), port}, {ip("127.0.0.3"), port}}));
  for (const SocketAddress& address : listening.at)
    EXPECT_TRUE(is_reached(address)) << address.to_string();
  EXPECT_FALSE(is_reached({ip("127.0.0.4"), port}));
}

TEST(ListeningSocket, UsesThePortOfTheFirstAddress) {
  const Listening listening({socket_at("127.0.0.1:0"), socket_at("127.0.0.2:1")});
  ASSERT_EQ(listening.at.size(), 2u);
  EXPECT_EQ(listening.at[1], (SocketAddress{ip("127.0.0.2"), listening.at[0].port}));
}

TEST(ListeningSocket, NamesTheAddressOfATakenPort) {
  const Listening first({socket_at("127.0.0.1:0")});
  const Listening second({first.at[0]});
  EXPECT_TRUE(second.fds.empty());
  EXPECT_EQ(second.error.error_number, EADDRINUSE);
  EXPECT_EQ(second.error.address, first.at[0]);
  EXPECT_EQ(second.error.message, "could not listen on " + first.at[0].to_string() +
                                      ": Address already in use; choose another port");
}

TEST(ListeningSocket, NamesAnAddressThatIsNotOurs) {
  const Listening listening({socket_at("192.0.2.1:0")});  // Reserved for documentation.
  EXPECT_EQ(listening.error.error_number, EADDRNOTAVAIL);
  EXPECT_EQ(listening.error.message,
            "could not listen on 192.0.2.1:0: Cannot assign requested address; choose an address "
            "of this machine");
}

TEST(ListeningSocket, BindsAllAddressesOrNone) {
  const Listening taken({socket_at("127.0.0.2:0")});
  const uint16_t port = taken.at[0].port;
  const SocketAddress free_one{ip("127.0.0.1"), port};
  const Listening failed({free_one, taken.at[0]});
  EXPECT_EQ(failed.error.error_number, EADDRINUSE);
  EXPECT_EQ(failed.error.address, taken.at[0]);
  EXPECT_FALSE(is_reached(free_one));
  EXPECT_EQ(Listening({free_one}).at, std::vector<SocketAddress>{free_one});
}

// Connections of an earlier host stay in TIME_WAIT at its port.
TEST(ListeningSocket, RebindsAPortDuringTimeWait) {
  SocketAddress address;
  {
    const Listening first({socket_at("127.0.0.1:0")});
    address = first.at[0];
    const PlainSocket client = PlainSocket::connected_to(address);
    const PlainSocket served(accept(first.fds[0].get(), nullptr, nullptr));
    ASSERT_GE(served.fd(), 0);
    ASSERT_EQ(shutdown(served.fd(), SHUT_WR), 0);  // The host closes first.
    EXPECT_EQ(client.receive(), "");
  }
  EXPECT_EQ(Listening({address}).at, std::vector<SocketAddress>{address});
}

TEST(ListeningSocket, UsesTheIPv4AnyAddressIfThereIsNoIPv6) {
  in_own_network([] {
    set_sysctl("net/ipv6/conf/all/disable_ipv6", "1");
    const Listening listening({{IpAddress::any_v6(), 0}});
    ASSERT_EQ(listening.at.size(), 1u);
    EXPECT_TRUE(is_reached({ip("127.0.0.1"), listening.at[0].port}));
    const Listening none({socket_at("[::1]:0")});  // A specific address is not replaced.
    EXPECT_EQ(none.error.message,
              "could not listen on [::1]:0: Cannot assign requested address; choose an address of "
              "this machine");
  });
}

TEST(ListeningSocket, ExplainsThatALowPortIsNotPermitted) {
  in_own_network([] {
    set_sysctl("net/ipv4/ip_unprivileged_port_start", "1024");
    ASSERT_TRUE(drop_right_to_bind());
    const Listening listening({socket_at("127.0.0.1:80")});
    EXPECT_EQ(listening.error.error_number, EACCES);
    EXPECT_EQ(listening.error.message,
              "could not listen on 127.0.0.1:80: Permission denied; choose a port above 1023");
  });
}

TEST(ListeningSocket, ChecksThatThereIsAnAddress) {
  EXPECT_DEATH((void)listen_on({}), "internal error: CHECK");
}

}  // namespace
}  // namespace muster
