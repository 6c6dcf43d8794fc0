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
using testing::Not;

Interface make(const std::string& name, std::vector<IpAddress> addresses) {
  return {name, 7, true, name == "lo", std::move(addresses)};
}

InterfaceQuestion two_nics() {
  InterfaceQuestion question;
  question.interfaces = {make("lo", {ip("127.0.0.1"), ip("::1")}),
                         make("eth0", {ip("10.0.0.1"), ip("fe80::1%2")}),
                         make("eth1", {ip("10.1.0.1")})};
  question.towards_peers = ip("10.0.0.1");
  return question;
}

TEST(InterfaceChoice, ExportsTheInterfaceThatReachesThePeers) {
  EXPECT_EQ(
      choose_interface_export(two_nics()),
      (InterfaceExport{"eth0", "=eth0",
                       "workers get GLOO_SOCKET_IFNAME=eth0 NCCL_SOCKET_IFNAME==eth0 (eth0 reaches "
                       "the other nodes; eth1 is there too); --no-iface-env turns this off"}));
  InterfaceQuestion other = two_nics();
  other.towards_peers = ip("10.1.0.1");
  EXPECT_EQ(choose_interface_export(other)->nccl, "=eth1");
}

TEST(InterfaceChoice, ExportsNothingWhereThereIsNoChoice) {
  InterfaceQuestion question = two_nics();
  question.interfaces.pop_back();
  EXPECT_EQ(choose_interface_export(question), std::nullopt);
}

TEST(InterfaceChoice, TellsGlooOfTheOnlyInterfaceWhereTheMachinesOwnNameMisleadsIt) {
  InterfaceQuestion question = two_nics();
  question.interfaces.pop_back();
  question.own_name_fault = "this machine's own name, node1, resolves to 127.0.1.1";
  EXPECT_EQ(choose_interface_export(question),
            (InterfaceExport{
                "eth0", std::nullopt,
                "workers get GLOO_SOCKET_IFNAME=eth0 (eth0 reaches the other nodes; this machine's "
                "own name, node1, resolves to 127.0.1.1); --no-iface-env turns this off"}));
  question.gloo_is_set = true;
  EXPECT_EQ(choose_interface_export(question), std::nullopt);
  question.gloo_is_set = false;
  question.towards_peers = ip("127.0.0.1");
  EXPECT_EQ(choose_interface_export(question), std::nullopt);
}

TEST(InterfaceChoice, FindsNoFaultInANameThatLeadsToAnAddressWhichOthersReach) {
  const std::vector<Interface> machine{make("lo", {ip("127.0.0.1"), ip("::1")}),
                                       make("eth0", {ip("10.0.0.1"), ip("fd00::1")})};
  EXPECT_EQ(own_name_fault("n", {ip("10.0.0.1")}, machine), "");
  EXPECT_EQ(own_name_fault("n", {ip("fd00::1"), ip("127.0.1.1")}, machine), "");
  EXPECT_EQ(own_name_fault("n", {ip("192.0.2.1"), ip("10.0.0.1")}, machine), "");
  EXPECT_EQ(own_name_fault("n", {ip("127.0.1.1"), ip("10.0.0.1")}, machine),
            "this machine's own name, n, resolves to 127.0.1.1");
  EXPECT_EQ(own_name_fault("n", {ip("::1")}, machine),
            "this machine's own name, n, resolves to ::1");
  EXPECT_EQ(own_name_fault("n", {ip("192.0.2.1")}, machine),
            "this machine's own name, n, resolves to none of its addresses");
  EXPECT_EQ(own_name_fault("n", {}, machine),
            "this machine's own name, n, resolves to none of its addresses");
}

TEST(InterfaceChoice, DoesNotCountPlumbingNorInterfacesThatAreDown) {
  InterfaceQuestion question = two_nics();
  question.interfaces.pop_back();
  question.interfaces.push_back(make("docker0", {ip("172.17.0.1")}));
  question.interfaces.push_back(make("eth2", {ip("fe80::2%5")}));
  question.interfaces.push_back(make("eth3", {}));
  question.interfaces.push_back(make("eth4", {ip("10.4.0.1")}));
  question.interfaces.back().up = false;
  EXPECT_EQ(choose_interface_export(question), std::nullopt);
}

TEST(InterfaceChoice, LeavesAloneWhatIsSet) {
  InterfaceQuestion question = two_nics();
  question.gloo_is_set = true;
  const auto half = choose_interface_export(question);
  ASSERT_TRUE(half);
  EXPECT_EQ(half->gloo, std::nullopt);
  EXPECT_EQ(half->nccl, "=eth0");
  EXPECT_THAT(half->note, Not(testing::HasSubstr("GLOO")));
  question.nccl_is_set = true;
  EXPECT_EQ(choose_interface_export(question), std::nullopt);
}

TEST(InterfaceChoice, ExportsNothingWhenThePeersAreHere) {
  InterfaceQuestion question = two_nics();
  question.towards_peers = ip("127.0.0.1");
  EXPECT_EQ(choose_interface_export(question), std::nullopt);
  question.towards_peers = ip("192.0.2.1");  // of no interface
  EXPECT_EQ(choose_interface_export(question), std::nullopt);
}

TEST(InterfaceChoice, ExportsTheInterfaceThatWasAskedForEvenIfItIsTheOnlyOne) {
  InterfaceQuestion question = two_nics();
  question.interfaces.pop_back();
  question.wanted = "eth0";
  EXPECT_EQ(choose_interface_export(question),
            (InterfaceExport{"eth0", "=eth0",
                             "workers get GLOO_SOCKET_IFNAME=eth0 NCCL_SOCKET_IFNAME==eth0 (as "
                             "--iface asks); --no-iface-env turns this off"}));
}

TEST(InterfaceChoice, KnowsPlumbingByName) {
  for (const char* name :
       {"docker0", "br-12ab34cd", "virbr0", "veth1a2b", "cni0", "cali12", "flannel.1",
        "vxlan.calico", "lxcbr0", "podman1", "kube-ipvs0", "tunl0", "ifb0", "dummy0"})
    EXPECT_TRUE(is_container_plumbing(name)) << name;
  for (const char* name : {"eth0", "eno1", "ens3f0np0", "enp1s0", "ib0", "ibp12s0", "hsn0", "bond0",
                           "br0", "vlan12", "wlan0", "tun0"})
    EXPECT_FALSE(is_container_plumbing(name)) << name;
}

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

TEST(Interfaces, AsksTheKernelForTheSourceTowardsAPeer) {
  EXPECT_EQ(source_towards({ip("127.0.0.9"), 29500}), ip("127.0.0.1"));
  // 240.0.0.0/4 is never routed; ::/128 as a peer means this machine.
  const auto nowhere = source_towards({ip("255.255.255.255"), 29500});
  ASSERT_FALSE(nowhere);
  EXPECT_THAT(nowhere.error().message,
              testing::StartsWith("no route from this machine to 255.255.255.255:29500: "));
}

TEST(Interfaces, TellsTheInterfaceThatReachesThePeersFromTheOther) {
  const bool ran = in_own_network([] {
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
  if (!ran) GTEST_SKIP() << "needs the right to make a network namespace";
}

TEST(Interfaces, FindsAnAddressOfANamedInterface) {
  EXPECT_EQ(address_of_interface("lo", ip("10.0.0.1")), ip("127.0.0.1"));
  EXPECT_EQ(address_of_interface("nosuch0", ip("10.0.0.1")).error(),
            (Error{ExitCode::usage,
                   "--iface nosuch0: there is no such interface; `ip address` lists them"}));
}

}  // namespace
}  // namespace muster
