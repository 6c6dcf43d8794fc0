#include "rendezvous/net/interfaces.h"

#include <algorithm>
#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <net/if.h>

#include "tests/unit/rendezvous/net/addresses.h"
#include "tests/unit/rendezvous/net/socket_harness.h"

namespace muster {
namespace {

using testing::Contains;

TEST(Interfaces, ListsLoopbackWithItsAddressAndIndex) {
  const std::vector<Interface> all = read_interfaces();
  const auto lo =
      std::find_if(all.begin(), all.end(), [](const auto& one) { return one.name == "lo"; });
  ASSERT_NE(lo, all.end());
  EXPECT_TRUE(lo->up);
  EXPECT_TRUE(lo->loopback);
  EXPECT_EQ(lo->index, if_nametoindex("lo"));
  EXPECT_THAT(lo->addresses, Contains(ip("127.0.0.1")));
  EXPECT_FALSE(is_candidate(*lo));
}

TEST(Interfaces, KnowsOwnAddresses) {
  EXPECT_TRUE(is_own_address(ip("127.0.0.1")));
  EXPECT_TRUE(is_own_address(ip("127.0.1.1")));
  EXPECT_FALSE(is_own_address(ip("192.0.2.1")));  // reserved for documentation
  EXPECT_TRUE(is_own_address(ip("192.0.2.1"), {ip("192.0.2.1")}));
  EXPECT_FALSE(is_own_address(ip("::1"), {ip("192.0.2.1")}));
  for (const IpAddress& address : read_own_addresses())
    EXPECT_TRUE(is_own_address(address)) << address.to_string();
}

TEST(Interfaces, FindsTheSourceAddressTowardsAPeer) {
  EXPECT_EQ(source_towards({ip("127.0.0.9"), 29500}), ip("127.0.0.1"));
  // connect(2) refuses the broadcast address without SO_BROADCAST.
  const auto nowhere = source_towards({ip("255.255.255.255"), 29500});
  ASSERT_FALSE(nowhere);
  EXPECT_THAT(nowhere.error().message,
              testing::StartsWith("no route from this machine to 255.255.255.255:29500: "));
}

TEST(Interfaces, ChoosesTheInterfaceThatReachesThePeers) {
  in_own_network([] {
    ASSERT_EQ(
        std::system(
            "ip link add eth0 type veth peer name x0 && ip link add eth1 type veth peer name x1 && "
            "for i in eth0 x0 eth1 x1; do ip link set $i up; done && "
            "ip addr add 10.98.0.1/24 dev eth0 && ip addr add 10.99.0.1/24 dev eth1"),
        0);
    InterfaceQuestion question;
    question.interfaces = read_interfaces();
    question.towards_peers = *source_towards({ip("10.99.0.7"), 29500});
    EXPECT_EQ(question.towards_peers, ip("10.99.0.1"));
    EXPECT_EQ(choose_interface_export(question)->nccl, "=eth1");
    EXPECT_EQ(address_of_interface("eth0", ip("10.99.0.7")), ip("10.98.0.1"));
    EXPECT_EQ(address_of_interface("x0", ip("10.99.0.7")).error().message,
              "--iface x0: the interface has no address");
  });
}

TEST(Interfaces, FindsAnAddressOfANamedInterface) {
  EXPECT_EQ(address_of_interface("lo", ip("10.0.0.1")), ip("127.0.0.1"));
  EXPECT_EQ(address_of_interface("nosuch0", ip("10.0.0.1")).error(),
            (Error{ExitCode::usage,
                   "--iface nosuch0: there is no such interface; `ip address` lists them"}));
}

}  // namespace
}  // namespace muster
