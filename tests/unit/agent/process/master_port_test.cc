#include "agent/process/master_port.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace muster {
namespace {

// Listens on all addresses, as worker 0 does. Returns -1 with errno if the port is taken.
int listen_on(int port, bool reuse_address) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  const int one = 1;
  if (reuse_address) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_port = htons(static_cast<uint16_t>(port));
  if (bind(fd, reinterpret_cast<sockaddr*>(&any), sizeof any) == 0 && listen(fd, 1) == 0) return fd;
  close(fd);
  return -1;
}

int port_of(int fd) {
  sockaddr_in address{};
  socklen_t length = sizeof address;
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
  return ntohs(address.sin_port);
}

TEST(MasterPort, IsReservedForSocketsThatReuseAddresses) {
  const auto reserved = MasterPort::reserve();
  ASSERT_TRUE(reserved);
  EXPECT_GT(reserved->port(), 0);
  EXPECT_EQ(listen_on(reserved->port(), false), -1);  // Some other program that chooses the port.
  const int worker_zero = listen_on(reserved->port(), true);
  EXPECT_GE(worker_zero, 0);
  close(worker_zero);
}

TEST(MasterPort, TwoReservationsAreNeverTheSamePort) {
  const auto first = MasterPort::reserve();
  const auto second = MasterPort::reserve();
  ASSERT_TRUE(first && second);
  EXPECT_NE(first->port(), second->port());
}

// Any other process may take a released port, but not each of ten.
TEST(MasterPort, IsReleasedWithTheObject) {
  int fd = -1;
  for (int tries = 0; tries < 10 && fd < 0; ++tries) {
    const int port = MasterPort::reserve().value().port();
    fd = listen_on(port, false);
  }
  EXPECT_GE(fd, 0);
  close(fd);
}

TEST(PortOwner, IsNamedInAnErrorAboutItsPort) {
  const int taken = listen_on(0, true);
  ASSERT_GE(taken, 0);
  const int port = port_of(taken);
  const Error error{ExitCode::environment, "cannot listen"};
  const Error named = name_port_owner(error, port);
  EXPECT_EQ(named.code, ExitCode::environment);
  const std::string start =
      "port " + std::to_string(port) + " is in use by pid " + std::to_string(getpid()) + " (";
  EXPECT_EQ(named.message.substr(0, start.size()), start);
  close(taken);
}

TEST(PortOwner, IsNotNamedIfNoProcessListens) {
  const Result<MasterPort> free_one = MasterPort::reserve();
  ASSERT_TRUE(free_one);
  const Error error{ExitCode::environment, "cannot listen"};
  EXPECT_EQ(name_port_owner(error, free_one->port()), error) << "no process listens there";
  EXPECT_EQ(name_port_owner(error, 0), error);
}

}  // namespace
}  // namespace muster
