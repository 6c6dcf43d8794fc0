// What a rank finds out about its own node: its GPUs, and its addresses for other ranks.
#include "worker_lib/joining/own_address.h"

#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/temp_tree.h"
#include "worker_lib/joining/gpu_count.h"

namespace muster::worker {
namespace {

using ::testing::StartsWith;

// ---- GPUs

TEST(WorkerGpuCount, CountsListedDevicesThatExist) {
  const TempTree folder;
  for (const char* name : {"nvidia0", "nvidia1", "nvidia2", "nvidiactl", "nvidia-uvm", "null"})
    folder.write(name, "");
  const std::string devices = folder.root().string();
  EXPECT_EQ(count_visible_gpus(std::nullopt, devices), 3);
  EXPECT_EQ(count_visible_gpus("", devices), 0);
  EXPECT_EQ(count_visible_gpus("-1", devices), 0);
  EXPECT_EQ(count_visible_gpus("2", devices), 1);
  EXPECT_EQ(count_visible_gpus("0,2", devices), 2);
  EXPECT_EQ(count_visible_gpus("0,-1,2", devices), 1);
  EXPECT_EQ(count_visible_gpus("GPU-aa,GPU-bb", devices), 2);
  EXPECT_EQ(count_visible_gpus("0,1,2,3,4", devices), 3);
  EXPECT_EQ(count_visible_gpus("0", devices + "/none"), 0);
  const TempTree windows;
  windows.write("dxg", "");
  EXPECT_EQ(count_visible_gpus(std::nullopt, windows.root().string()), 1);
}

// ---- addresses

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
