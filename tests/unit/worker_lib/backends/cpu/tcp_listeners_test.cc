#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/socket.h>

#include "tests/unit/worker_lib/backends/backend_ranks.h"
#include "worker_lib/backends/cpu/tcp_acceptor.h"
#include "worker_lib/backends/store_exchange.h"

namespace muster::worker {
namespace {

const Peer kListeningPeer{GlobalRank{4}, "node", "node4", 104, "127.0.0.1"};

ListenAddress any_listen_address() {
  const auto bytes = [](int least, int most) {
    return *rc::gen::container<std::string>(static_cast<size_t>(*rc::gen::inRange(least, most)),
                                            rc::gen::arbitrary<char>());
  };
  const auto number = *rc::gen::container<std::vector<uint8_t>>(16, rc::gen::arbitrary<uint8_t>());
  std::array<uint8_t, 4> v4{};
  std::array<uint8_t, 16> v6{};
  std::copy_n(number.begin(), v4.size(), v4.begin());
  std::copy_n(number.begin(), v6.size(), v6.begin());
  v6[0] = 0xfd;  // Not an IPv4-mapped address.
  const auto scope = *rc::gen::inRange<uint32_t>(0, 3);
  const IpAddress ip = *rc::gen::arbitrary<bool>() ? IpAddress::v4(v4) : IpAddress::v6(v6, scope);
  return {{ip, *rc::gen::arbitrary<uint16_t>()}, bytes(0, 20)};
}

RC_GTEST_PROP(TcpListeners, AnAddressSurvivesEncoding, ()) {
  const ListenAddress address = any_listen_address();
  RC_ASSERT(ListenAddress::decode(address.encode()) == address);
}

// A store may hold any bytes.
RC_GTEST_PROP(TcpListeners, ACorruptAddressIsRefusedOrReadsAsAnother, ()) {
  std::string text = any_listen_address().encode();
  for (int left = *rc::gen::inRange(1, 4); left > 0; --left) {
    const size_t at = *rc::gen::inRange<size_t>(0, text.size());
    const char byte = *rc::gen::arbitrary<char>();
    if (*rc::gen::arbitrary<bool>()) {
      text[at] = byte;
    } else {
      text = text.substr(0, at) + byte + text.substr(std::min(text.size(), at + 2));
    }
  }
  const std::optional<ListenAddress> address = ListenAddress::decode(text);
  if (!address) return;
  RC_ASSERT(ListenAddress::decode(address->encode()) == address);
}

// ---- listening

bool is_reached(const Dialled& dialled, const Socket& listener) {
  if (!dialled.socket) return false;
  const Socket accepted(accept(listener.get(), nullptr, nullptr));
  return static_cast<bool>(accepted);
}

TEST(TcpListeners, AcceptConnectionsAtTheirAddresses) {
  const Outcome<Listeners> open = open_listeners(kListeningPeer);
  ASSERT_TRUE(open.has_value()) << open.error().message;
  EXPECT_EQ(open->address.tcp.ip, IpAddress::loopback_v4());
  ASSERT_EQ(open->listeners.size(), 2U);
  EXPECT_TRUE(is_reached(dial(open->address.tcp), open->listeners.front()));
  EXPECT_TRUE(is_reached(dial_local(open->address.local), open->listeners.back()));
}

TEST(TcpListeners, HaveDistinctAddresses) {
  const Outcome<Listeners> one = open_listeners(kListeningPeer);
  const Outcome<Listeners> other = open_listeners(kListeningPeer);
  ASSERT_TRUE(one.has_value() && other.has_value());
  EXPECT_NE(one->address.tcp, other->address.tcp);
  EXPECT_NE(one->address.local, other->address.local);
}

// ---- exchange

ListenAddress address_of_rank(int rank) {
  return {{IpAddress::loopback_v4(), static_cast<uint16_t>(1000 + rank)},
          "local" + std::to_string(rank)};
}

TEST(TcpListeners, AllMembersReadAllAddressesInOrder) {
  const BackendRanks ranks(3);
  const std::vector<ListenAddress> expected{address_of_rank(0), address_of_rank(1),
                                            address_of_rank(2)};
  std::vector<std::vector<ListenAddress>> read(3);
  ranks.each([&](int rank) {
    GroupSetup setup = ranks.setup_of(rank, after(std::chrono::seconds{60}));
    const auto addresses = exchange_records(setup, "address", address_of_rank(rank), "its address");
    if (addresses) read[static_cast<size_t>(rank)] = *addresses;
  });
  EXPECT_EQ(read, std::vector(3, expected));
}

TEST(TcpListeners, ARankThatWroteNoAddressIsNamed) {
  BackendRanks ranks(2);
  ranks.adjust = [](GroupSetup& setup) { setup.members.peers[1] = kListeningPeer; };
  GroupSetup setup = ranks.setup_of(0, after(std::chrono::seconds{60}));
  ASSERT_TRUE(setup.store.set("address/1", "10.0.0.1:2 616"));
  const auto addresses = exchange_records(setup, "address", address_of_rank(0), "its address");
  ASSERT_FALSE(addresses.has_value());
  EXPECT_EQ(addresses.error(),
            (Failure{ErrorCode::rendezvous,
                     "rank 4 (node4, pid 104) wrote something other than its address to the store; "
                     "give every job a store, or a prefix, of its own",
                     {{4}}}));
}

// Another group's first member may have written fewer.
TEST(TcpListeners, RefuseFewerAddressesThanMembers) {
  const BackendRanks ranks(3);
  GroupSetup setup = ranks.setup_of(2, after(std::chrono::seconds{60}));
  ASSERT_TRUE(setup.store.set("address/all", ""));
  const auto addresses = exchange_records(setup, "address", address_of_rank(2), "its address");
  ASSERT_FALSE(addresses.has_value());
  EXPECT_EQ(addresses.error().code, ErrorCode::rendezvous);
}

}  // namespace
}  // namespace muster::worker
