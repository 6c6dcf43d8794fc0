#include "rendezvous/net/address.h"

#include <algorithm>
#include <utility>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <rapidcheck.h>

#include "tests/unit/rendezvous/net/addresses.h"

namespace muster {
namespace {

using testing::ElementsAre;

std::string round_trip(std::string_view text) {
  const auto address = IpAddress::parse(text);
  return address ? address->to_string() : "nothing";
}

TEST(IpAddress, ParsesAndPrintsTheCanonicalSpelling) {
  EXPECT_EQ(round_trip("10.0.0.1"), "10.0.0.1");
  EXPECT_EQ(round_trip("0.0.0.0"), "0.0.0.0");
  EXPECT_EQ(round_trip("::1"), "::1");
  EXPECT_EQ(round_trip("[fd00:0:0:0::7]"), "fd00::7");
  EXPECT_EQ(round_trip("FE80::1%2"), "fe80::1%2");
  EXPECT_EQ(round_trip("fe80::1%0"), "fe80::1");
}

TEST(IpAddress, ReadsAMappedAddressAsIpv4) {
  EXPECT_EQ(ip("::ffff:10.0.0.1"), ip("10.0.0.1"));
  EXPECT_EQ(ip("[::ffff:a00:1]"), ip("10.0.0.1"));
  EXPECT_FALSE(ip("::ffff:10.0.0.1").is_v6());
  // The deprecated "compatible" form is not a mapped address.
  EXPECT_TRUE(ip("::10.0.0.1").is_v6());
}

TEST(IpAddress, RefusesTextThatIsNoAddress) {
  for (const char* text : {"",           "node1",
                           "10.0.0",     "10.0.0.256",
                           "10.0.0.1 ",  " 10.0.0.1",
                           "010.0.0.1x", "1.2.3.4.5",
                           "::1::",      "[::1",
                           "::1]",       "[10.0.0.1]",
                           "fe80::1%",   "fe80::1%eth0",
                           "fe80::1%-1", "fe80::1%4294967296",
                           "10.0.0.1%1", ":",
                           "[]",         "%"})
    EXPECT_EQ(round_trip(text), "nothing") << text;
  EXPECT_EQ(round_trip(std::string_view("10.0.0.1\0x", 10)), "nothing");
}

TEST(IpAddress, KnowsItsKinds) {
  struct Row {
    const char* text;
    bool any, loopback, link_local;
  };
  for (const Row& row :
       {Row{"0.0.0.0", true, false, false}, Row{"::", true, false, false},
        Row{"127.0.0.1", false, true, false}, Row{"127.255.0.9", false, true, false},
        Row{"128.0.0.1", false, false, false}, Row{"::1", false, true, false},
        Row{"::2", false, false, false}, Row{"169.254.3.4", false, false, true},
        Row{"169.253.3.4", false, false, false}, Row{"fe80::1", false, false, true},
        Row{"febf::1", false, false, true}, Row{"fec0::1", false, false, false}}) {
    EXPECT_EQ(ip(row.text).is_any(), row.any) << row.text;
    EXPECT_EQ(ip(row.text).is_loopback(), row.loopback) << row.text;
    EXPECT_EQ(ip(row.text).is_link_local(), row.link_local) << row.text;
  }
}

TEST(IpAddress, SortsIpv4FirstAndThenByNumber) {
  std::vector<IpAddress> list = {ip("fd00::1"),  ip("10.0.0.10"), ip("::1"),
                                 ip("10.0.0.9"), ip("fe80::1%3"), ip("fe80::1%2")};
  std::sort(list.begin(), list.end());
  EXPECT_THAT(list, ElementsAre(ip("10.0.0.9"), ip("10.0.0.10"), ip("::1"), ip("fd00::1"),
                                ip("fe80::1%2"), ip("fe80::1%3")));
}

TEST(Network, ContainsAddressesThatShareItsPrefix) {
  struct Row {
    const char* network;
    const char* address;
    bool inside;
  };
  for (const Row& row :
       {Row{"10.0.0.0/8", "10.255.1.2", true}, Row{"10.0.0.0/8", "11.0.0.0", false},
        Row{"10.0.0.129/25", "10.0.0.128", true}, Row{"10.0.0.129/25", "10.0.0.127", false},
        Row{"10.0.0.1", "10.0.0.1", true}, Row{"10.0.0.1", "10.0.0.2", false},
        Row{"0.0.0.0/0", "192.0.2.1", true}, Row{"0.0.0.0/0", "fd00::1", false},
        Row{"::/0", "fd00::1", true}, Row{"::/0", "10.0.0.1", false},
        Row{"fd00::/8", "fdff::1", true}, Row{"fd00::/8", "fe00::1", false},
        Row{"fe80::/10", "fe80::1%2", true}, Row{"fd00::1/127", "fd00::", true},
        Row{"fd00::1/127", "fd00::2", false}, Row{"10.0.0.0/8", "::ffff:10.1.1.1", true}}) {
    EXPECT_EQ(Network::parse(row.network)->contains(ip(row.address)), row.inside)
        << row.network << " " << row.address;
  }
}

TEST(Network, PrintsWithoutTheBitsAfterThePrefix) {
  EXPECT_EQ(Network::parse("10.1.2.3/8")->to_string(), "10.0.0.0/8");
  EXPECT_EQ(Network::parse("fd00::1")->to_string(), "fd00::1/128");
  EXPECT_EQ(Network::parse("10.1.2.3/8"), Network::parse("10.0.0.0/8"));
  EXPECT_NE(Network::parse("10.0.0.0/8"), Network::parse("10.0.0.0/9"));
}

TEST(Network, RefusesJunk) {
  for (const char* text : {"", "/8", "10.0.0.0/", "10.0.0.0/33", "fd00::/129", "10.0.0.0/-1",
                           "10.0.0.0/8/8", "10/8", "node1", "10.0.0.0/ 8", "10.0.0.0/+8", "any"}) {
    EXPECT_FALSE(Network::parse(text)) << text;
  }
  EXPECT_FALSE(Network::parse("10.0.0.0\n/8\x7f"));
  EXPECT_FALSE(Network::parse(std::string(1000, '\0')));
}

TEST(Network, ContainsExactlyTheAddressesThatAgreeInItsPrefix) {
  rc::check([](std::array<uint8_t, 4> a, std::array<uint8_t, 4> b) {
    const unsigned prefix = *rc::gen::inRange(0u, 33u);
    const auto number = [](const std::array<uint8_t, 4>& bytes) {
      return (uint64_t{bytes[0]} << 24) | (uint64_t{bytes[1]} << 16) | (uint64_t{bytes[2]} << 8) |
             bytes[3];
    };
    // Half of the pairs share the first `prefix` bits, so that both answers occur.
    if (*rc::gen::arbitrary<bool>()) {
      for (unsigned bit = 0; bit < prefix; ++bit) {
        const auto mask = static_cast<uint8_t>(0x80u >> (bit % 8));
        b[bit / 8] = static_cast<uint8_t>((b[bit / 8] & ~mask) | (a[bit / 8] & mask));
      }
    }
    const bool same = (number(a) >> (32 - prefix)) == (number(b) >> (32 - prefix));
    RC_ASSERT(Network(IpAddress::v4(a), prefix).contains(IpAddress::v4(b)) == same);
  });
}

TEST(SocketAddress, ParsesAndPrintsWithBracketsForIpv6) {
  for (const char* text : {"10.0.0.1:29500", "[fe80::1%2]:1", "[::]:65535", "0.0.0.0:0"})
    EXPECT_EQ(socket_at(text).to_string(), text);
  EXPECT_EQ(socket_at("[::ffff:10.0.0.1]:80"), socket_at("10.0.0.1:80"));
}

TEST(SocketAddress, RefusesTextThatIsNoAddressWithPort) {
  for (const char* text :
       {"", ":", "10.0.0.1", "10.0.0.1:", "10.0.0.1:65536", "10.0.0.1:-1", "::1:29500",
        "fd00::1:2:3", "[::1]", "[::1]:", "node1:29500", "10.0.0.1: 80"})
    EXPECT_EQ(SocketAddress::parse(text), std::nullopt) << text;
}

TEST(SocketAddress, SurvivesConversionToSockaddrAndBack) {
  for (const char* text : {"10.0.0.1:29500", "[fe80::1%2]:1", "[::]:65535", "0.0.0.0:0"}) {
    sockaddr_storage raw{};
    const socklen_t length = socket_at(text).to_sockaddr(raw);
    EXPECT_EQ(length, socket_at(text).ip.is_v6() ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
    EXPECT_EQ(SocketAddress::from_sockaddr(reinterpret_cast<sockaddr*>(&raw)), socket_at(text));
  }
  sockaddr local{};
  local.sa_family = AF_UNIX;
  EXPECT_EQ(SocketAddress::from_sockaddr(&local), std::nullopt);
  EXPECT_EQ(SocketAddress::from_sockaddr(nullptr), std::nullopt);
}

TEST(SocketAddress, ReadsAMappedPeerAsIpv4) {
  sockaddr_in6 mapped{};
  mapped.sin6_family = AF_INET6;
  mapped.sin6_port = htons(4000);
  ASSERT_EQ(inet_pton(AF_INET6, "::ffff:192.0.2.7", &mapped.sin6_addr), 1);
  EXPECT_EQ(SocketAddress::from_sockaddr(reinterpret_cast<sockaddr*>(&mapped)),
            socket_at("192.0.2.7:4000"));
}

std::vector<std::string> interleaved(std::initializer_list<const char*> texts) {
  std::vector<SocketAddress> list;
  for (const char* text : texts)
    list.push_back(socket_at(text));
  std::vector<std::string> order;
  for (const SocketAddress& address : interleave_families(list))
    order.push_back(address.to_string());
  return order;
}

TEST(InterleaveFamilies, AlternatesBeginningWithTheBest) {
  EXPECT_THAT(
      interleaved({"[fd00::1]:1", "[fd00::2]:1", "[fd00::3]:1", "10.0.0.1:1", "10.0.0.2:1"}),
      ElementsAre("[fd00::1]:1", "10.0.0.1:1", "[fd00::2]:1", "10.0.0.2:1", "[fd00::3]:1"));
  EXPECT_THAT(interleaved({"10.0.0.1:1", "[fd00::1]:1"}), ElementsAre("10.0.0.1:1", "[fd00::1]:1"));
}

TEST(InterleaveFamilies, KeepsTheOrderOfOneFamilyAndDropsDuplicates) {
  EXPECT_THAT(interleaved({"10.0.0.2:1", "10.0.0.1:1", "10.0.0.2:1"}),
              ElementsAre("10.0.0.2:1", "10.0.0.1:1"));
  EXPECT_THAT(interleaved({}), ElementsAre());
}

}  // namespace
}  // namespace muster
