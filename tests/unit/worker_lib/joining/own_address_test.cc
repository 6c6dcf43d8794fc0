// The addresses of a rank for other ranks.
#include "worker_lib/joining/own_address.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::worker {
namespace {

using ::testing::StartsWith;

TEST(WorkerOwnAddress, IsLoopbackIfRankZeroIsAtLoopback) {
  EXPECT_EQ(own_address("127.0.0.1", 29500, ""), "127.0.0.1");
  EXPECT_THAT(own_address("localhost", 29500, "").value_or("failed"),
              testing::AnyOf("127.0.0.1", "::1"));
}

TEST(WorkerOwnAddress, IsThatOfTheNamedInterface) {
  EXPECT_EQ(own_address("127.0.0.1", 29500, "lo"), "127.0.0.1");
  EXPECT_EQ(own_address("127.0.0.1", 29500, "lo,eth7"), "127.0.0.1");
  const Outcome<std::string> missing = own_address("127.0.0.1", 29500, "nosuch0");
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code, ErrorCode::environment);
  EXPECT_THAT(missing.error().message, StartsWith("GLOO_SOCKET_IFNAME=nosuch0: "));
}

TEST(WorkerOwnAddress, RankZeroListensAtTheMasterAddressOrOnAll) {
  using Addresses = std::vector<SocketAddress>;
  EXPECT_EQ(listening_addresses("127.0.0.1", 5), (Addresses{{IpAddress::loopback_v4(), 5}}));
  // Not an address of this machine but, say, of a service in front of it.
  EXPECT_EQ(listening_addresses("192.0.2.123", 5), (Addresses{{IpAddress::any_v6(), 5}}));
}

}  // namespace
}  // namespace muster::worker
