#include "rendezvous/net/interface_choice.h"

#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/rendezvous/net/addresses.h"

namespace muster {
namespace {

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

TEST(InterfaceChoice, ExportsNothingIfThereIsNoChoice) {
  InterfaceQuestion question = two_nics();
  question.interfaces.pop_back();
  EXPECT_EQ(choose_interface_export(question), std::nullopt);
}

TEST(InterfaceChoice, ExportsTheOnlyInterfaceToGlooIfTheOwnNameMisleadsIt) {
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

TEST(InterfaceChoice, AcceptsAnOwnNameThatLeadsToAReachableAddress) {
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

TEST(InterfaceChoice, IgnoresPlumbingAndInterfacesThatAreDown) {
  InterfaceQuestion question = two_nics();
  question.interfaces.pop_back();
  question.interfaces.push_back(make("docker0", {ip("172.17.0.1")}));
  question.interfaces.push_back(make("eth2", {ip("fe80::2%5")}));
  question.interfaces.push_back(make("eth3", {}));
  question.interfaces.push_back(make("eth4", {ip("10.4.0.1")}));
  question.interfaces.back().up = false;
  EXPECT_EQ(choose_interface_export(question), std::nullopt);
}

TEST(InterfaceChoice, KeepsVariablesThatAreSet) {
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

TEST(InterfaceChoice, ExportsNothingIfThePeersAreOnThisMachine) {
  InterfaceQuestion question = two_nics();
  question.towards_peers = ip("127.0.0.1");
  EXPECT_EQ(choose_interface_export(question), std::nullopt);
  question.towards_peers = ip("192.0.2.1");  // An address of no interface.
  EXPECT_EQ(choose_interface_export(question), std::nullopt);
}

TEST(InterfaceChoice, ExportsARequestedInterfaceEvenIfItIsTheOnlyOne) {
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

TEST(InterfaceChoice, NamesAllOtherCandidates) {
  InterfaceQuestion question = two_nics();
  question.interfaces.push_back(make("ib0", {ip("10.2.0.1")}));
  question.interfaces.push_back(make("docker0", {ip("172.17.0.1")}));
  EXPECT_EQ(choose_interface_export(question)->note,
            "workers get GLOO_SOCKET_IFNAME=eth0 NCCL_SOCKET_IFNAME==eth0 (eth0 reaches the other "
            "nodes; eth1, ib0 are there too); --no-iface-env turns this off");
}

TEST(InterfaceChoice, ExportsARequestedInterfaceEvenIfThePeersAreHere) {
  InterfaceQuestion question = two_nics();
  question.wanted = "ib9";  // The caller checks that it exists.
  for (const char* peers : {"127.0.0.1", "10.0.0.1", "192.0.2.1"}) {
    question.towards_peers = ip(peers);
    const auto chosen = choose_interface_export(question);
    ASSERT_TRUE(chosen) << peers;
    EXPECT_EQ(chosen->gloo, "ib9");
    EXPECT_EQ(chosen->nccl, "=ib9");
  }
  question.gloo_is_set = question.nccl_is_set = true;
  EXPECT_EQ(choose_interface_export(question), std::nullopt);
}

TEST(InterfaceChoice, MentionsAMisleadingNameOnlyIfThereIsNoChoice) {
  InterfaceQuestion question = two_nics();
  question.nccl_is_set = true;
  question.own_name_fault = "this machine's own name, n, resolves to 127.0.1.1";
  EXPECT_EQ(choose_interface_export(question),
            (InterfaceExport{"eth0", std::nullopt,
                             "workers get GLOO_SOCKET_IFNAME=eth0 (eth0 reaches the other nodes; "
                             "eth1 is there too); --no-iface-env turns this off"}));
}

TEST(InterfaceChoice, FindsTheInterfaceOfALinkLocalAddress) {
  InterfaceQuestion question = two_nics();
  question.towards_peers = ip("fe80::1%2");
  EXPECT_EQ(choose_interface_export(question)->gloo, "eth0");
  question.towards_peers = ip("fe80::1%3");  // The same number on another link.
  EXPECT_EQ(choose_interface_export(question), std::nullopt);
}

TEST(InterfaceChoice, CandidatesAreUpAndHaveARoutableAddress) {
  Interface down = make("eth0", {ip("10.0.0.1")});
  down.up = false;
  EXPECT_TRUE(is_candidate(make("eth0", {ip("10.0.0.1")})));
  EXPECT_TRUE(is_candidate(make("eth0", {ip("fe80::1%2"), ip("fd00::1")})));
  EXPECT_FALSE(is_candidate(down));
  EXPECT_FALSE(is_candidate(make("eth0", {})));
  EXPECT_FALSE(is_candidate(make("eth0", {ip("fe80::1%2"), ip("169.254.3.4")})));
  EXPECT_FALSE(is_candidate(make("lo", {ip("10.0.0.1")})));
  EXPECT_FALSE(is_candidate(make("docker0", {ip("10.0.0.1")})));
}

}  // namespace
}  // namespace muster
