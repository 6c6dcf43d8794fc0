#include "agent/master_port.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace muster {
namespace {

// A TCP socket of worker 0's making: bound to all addresses, listening. -1 with errno if the port
// is taken.
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

TEST(MasterPort, AFreePortIsReservedForWhoReusesAddresses) {
  const auto reserved = MasterPort::reserve(0);
  ASSERT_TRUE(reserved);
  EXPECT_GT(reserved->port(), 0);
  EXPECT_EQ(listen_on(reserved->port(), false), -1);  // A stranger that happens to choose it.
  const int worker_zero = listen_on(reserved->port(), true);
  EXPECT_GE(worker_zero, 0);
  close(worker_zero);
}

TEST(MasterPort, TwoReservationsAreNeverTheSamePort) {
  const auto first = MasterPort::reserve(0);
  const auto second = MasterPort::reserve(0);
  ASSERT_TRUE(first && second);
  EXPECT_NE(first->port(), second->port());
}

TEST(MasterPort, IsGivenBackWithTheObject) {
  int port = 0;
  {
    const auto reserved = MasterPort::reserve(0);
    ASSERT_TRUE(reserved);
    port = reserved->port();
  }
  const int fd = listen_on(port, false);
  EXPECT_GE(fd, 0);
  close(fd);
}

TEST(MasterPort, AnOccupiedPortNamesItsOwner) {
  const int taken = listen_on(0, true);
  ASSERT_GE(taken, 0);
  const int port = port_of(taken);
  const auto reserved = MasterPort::reserve(port);
  ASSERT_FALSE(reserved);
  EXPECT_EQ(reserved.error().code, ExitCode::environment);
  const std::string start =
      "port " + std::to_string(port) + " is in use by pid " + std::to_string(getpid()) + " (";
  EXPECT_EQ(reserved.error().message.substr(0, start.size()), start);
  EXPECT_NE(reserved.error().message.find("--master-port"), std::string::npos);
  close(taken);
  EXPECT_EQ(port_owner(port), std::nullopt);
}

TEST(Hosts, TheFirstNameWithADotIsTheFullOne) {
  const char* const hosts =
      "# comment\n127.0.0.1 localhost\n"
      "10.0.0.5\tnode5 node5.cluster.example alias # trailing\n";
  EXPECT_EQ(find_in_hosts(hosts, "node5"), (HostsEntry{"10.0.0.5", "node5.cluster.example"}));
  EXPECT_EQ(find_in_hosts(hosts, "alias"), (HostsEntry{"10.0.0.5", "node5.cluster.example"}));
}

TEST(Hosts, WithoutADotTheCanonicalNameServes) {
  EXPECT_EQ(find_in_hosts("10.0.0.5 first second\n", "second"), (HostsEntry{"10.0.0.5", "first"}));
}

TEST(Hosts, TheNameComesFromTheFirstLineWithTheAddress) {
  EXPECT_EQ(find_in_hosts("127.0.0.1 localhost\n127.0.0.1 vm\n", "vm"),
            (HostsEntry{"127.0.0.1", "localhost"}));
  EXPECT_EQ(find_in_hosts("127.0.0.1 localhost\n127.0.1.1 vm.example vm\n", "vm"),
            (HostsEntry{"127.0.1.1", "vm.example"}));
}

TEST(Hosts, AHostThatIsNotThereIsNotFound) {
  EXPECT_EQ(find_in_hosts("10.0.0.5 first\n", "node5"), std::nullopt);
  EXPECT_EQ(find_in_hosts("10.0.0.5 first # node5\n", "node5"), std::nullopt);
  EXPECT_EQ(find_in_hosts("", "node5"), std::nullopt);
}

TEST(Hosts, TheAddressToMeetAtCanBeBoundHere) {
  const std::string name = local_master_addr();
  EXPECT_FALSE(name.empty());
}

}  // namespace
}  // namespace muster
