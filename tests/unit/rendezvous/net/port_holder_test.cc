#include "rendezvous/net/port_holder.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rendezvous/base/unique_fd.h"
#include "rendezvous/net/interfaces.h"
#include "rendezvous/net/listening_socket.h"

namespace muster {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class PortHolderTest : public testing::TestWithParam<IpAddress> {
 protected:
  PortHolderTest() {
    auto listening = listen_on({{GetParam(), 0}});
    if (!listening) return;
    sockaddr_storage raw{};
    const socklen_t size = listening->front().address.to_sockaddr(raw);
    listener_ = std::move(listening->front().fd);
    client_ = UniqueFd(socket(raw.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(connect(client_.get(), reinterpret_cast<sockaddr*>(&raw), size), 0);
  }

  static int port_of(const UniqueFd& fd) { return local_address_of(fd.get()).port; }
  static std::string here() { return "pid " + std::to_string(getpid()) + " ("; }

  UniqueFd listener_, client_;
};

TEST_P(PortHolderTest, NamesTheListeningProcess) {
  if (!listener_) GTEST_SKIP() << "no IPv6 here";
  EXPECT_THAT(listener_at(port_of(listener_)).value_or(""), StartsWith(here()));
  EXPECT_EQ(connection_at(port_of(listener_)), std::nullopt)
      << "a listener's port is not its connections'";
  EXPECT_EQ(listener_at(port_of(client_)), std::nullopt);
}

TEST_P(PortHolderTest, NamesTheConnectionThatHasThePort) {
  if (!listener_) GTEST_SKIP() << "no IPv6 here";
  const int port = port_of(client_);
  const std::string words = connection_at(port).value_or("");
  EXPECT_THAT(words, StartsWith("port " + std::to_string(port) +
                                " is the local end of a connection of " + here()));
  EXPECT_THAT(words,
              HasSubstr(", to " + remote_address_of(client_.get()).to_string() + ": choose "));
  EXPECT_THAT(words, HasSubstr("(net.ipv4.ip_local_port_range)"));
  client_.reset();
  listener_.reset();
  EXPECT_THAT(connection_at(port).value_or("gone"), testing::Not(HasSubstr(here())));
}

INSTANTIATE_TEST_SUITE_P(Families, PortHolderTest,
                         testing::Values(IpAddress::loopback_v4(), *IpAddress::parse("::1")),
                         [](const auto& info) { return info.param.is_v6() ? "v6" : "v4"; });

}  // namespace
}  // namespace muster
