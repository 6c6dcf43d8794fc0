#include "rendezvous/membership/datagram_budget.h"

#include <gtest/gtest.h>

#include "rendezvous/membership/agent_protocol.h"

namespace muster {
namespace {

using membership::kDatagramBytesMax;
using std::chrono::hours;
using std::chrono::nanoseconds;
using std::chrono::seconds;

constexpr Instant kStart{seconds{1000}};

// Returns the number of datagrams that pass in a row at this time.
int passed(DatagramBudget& budget, Instant now, size_t payload_bytes, size_t receivers) {
  int count = 0;
  for (; !budget.is_spent(now); ++count)
    budget.spend(now, payload_bytes, receivers);
  return count;
}

TEST(DatagramBudget, PassesABurstAndThenItsRate) {
  DatagramBudget budget;
  EXPECT_EQ(passed(budget, kStart, kDatagramBytesMax, 1), 64);  // 63 whole ones and a bit.
  EXPECT_EQ(passed(budget, kStart + seconds{1}, kDatagramBytesMax, 1), 31);
  EXPECT_EQ(passed(budget, kStart + seconds{2}, kDatagramBytesMax, 1), 32);
}

TEST(DatagramBudget, SavesNoMoreThanABurst) {
  DatagramBudget budget;
  passed(budget, kStart, kDatagramBytesMax, 1);
  EXPECT_EQ(passed(budget, kStart + hours{1}, kDatagramBytesMax, 1), 64);
}

TEST(DatagramBudget, ChargesForEmptyDatagrams) {
  DatagramBudget budget;
  EXPECT_NEAR(passed(budget, kStart, 0, 1), 4096, 1);
  EXPECT_NEAR(passed(budget, kStart + seconds{1}, 0, 0), 2048, 1);  // Even without receivers.
}

TEST(DatagramBudget, IsChargedForEachReceiver) {
  DatagramBudget budget;
  EXPECT_EQ(passed(budget, kStart, 256, 1000), 3);
}

TEST(DatagramBudget, PassesTheLargestToAllNodesEveryTwoSeconds) {
  DatagramBudget budget;
  EXPECT_EQ(passed(budget, kStart, kDatagramBytesMax, membership::kNodesMax), 1);
  EXPECT_FALSE(budget.is_spent(kStart + nanoseconds{1}));
  int count = 0;
  for (int ms = 1; ms <= 100'000; ++ms)
    count += passed(budget, kStart + std::chrono::milliseconds{ms}, kDatagramBytesMax, 100'000);
  EXPECT_EQ(count, 50);
}

TEST(DatagramBudget, SmallDatagramsDoNotBlockALargeOne) {
  DatagramBudget budget;
  passed(budget, kStart, 0, 1);
  budget.spend(kStart + seconds{1}, 0, 1);
  EXPECT_FALSE(budget.is_spent(kStart + seconds{1}));  // Far from full.
}

}  // namespace
}  // namespace muster
