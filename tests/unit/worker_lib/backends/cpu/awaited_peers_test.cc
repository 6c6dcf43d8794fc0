#include "worker_lib/backends/cpu/awaited_peers.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

namespace muster::worker {
namespace {

TEST(AwaitedPeers, MergeBothListsInAscendingOrder) {
  AwaitedPeers awaited(200);
  EXPECT_EQ(awaited.peers(), std::vector<int>{});
  awaited.wait_for(std::vector<int>{199, 64, 0, 63, 64}, std::vector<int>{127, 128, 63});
  EXPECT_EQ(awaited.peers(), (std::vector<int>{0, 63, 64, 127, 128, 199}));
  awaited.wait_for(std::vector<int>{65});
  EXPECT_EQ(awaited.peers(), std::vector<int>{65}) << "the earlier ones are replaced";
  awaited.wait_for({});
  EXPECT_EQ(awaited.peers(), std::vector<int>{});
}

TEST(AwaitedPeers, HoldTheLastRankOfAGroupOfAnySize) {
  for (const int size : {1, 63, 64, 65, 128, 129}) {
    AwaitedPeers awaited(size);
    awaited.wait_for(std::array{size - 1});
    EXPECT_EQ(awaited.peers(), std::vector<int>{size - 1}) << size;
  }
}

TEST(AwaitedPeers, KeepOnlyTheLastCalls) {
  AwaitedPeers awaited(2);
  EXPECT_EQ(awaited.calls(), std::vector<NumberedCall>{});
  std::vector<NumberedCall> entered;
  for (uint64_t number = 1; number <= 3 * kCallsKept + 1; ++number) {
    awaited.enter(number, {number * 10, 1, 2});
    entered.push_back({number, {number * 10, 1, 2}});
    if (entered.size() > kCallsKept) entered.erase(entered.begin());
    std::vector<NumberedCall> kept = awaited.calls();
    std::ranges::sort(kept, {}, &NumberedCall::number);
    EXPECT_EQ(kept, entered) << "after " << number;
  }
}

}  // namespace
}  // namespace muster::worker
