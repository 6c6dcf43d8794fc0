#include "rendezvous/store/ready_order.h"

#include <vector>

#include <gtest/gtest.h>
#include <sys/epoll.h>

namespace muster {
namespace {

using Visit = ReadyOrder::Visit;

constexpr size_t kKiB = 1024;

std::vector<epoll_event> ready(uint64_t first, size_t count) {
  std::vector<epoll_event> events(count);
  for (size_t i = 0; i < count; i++)
    events[i].data.u64 = first + i;
  return events;
}

bool take(ReadyOrder& order, const std::vector<epoll_event>& events, uint64_t requests = 0) {
  return order.take_batch(events, events.size(), requests);
}

std::vector<uint64_t> all_next(ReadyOrder& order) {
  std::vector<uint64_t> tags;
  while (const std::optional<Visit> visit = order.next())
    tags.push_back(visit->tag);
  return tags;
}

TEST(ReadyOrder, IsEmptyBeforeAnyClientIsReady) {
  ReadyOrder order;
  EXPECT_EQ(order.next(), std::nullopt);
  EXPECT_FALSE(take(order, {}));
  EXPECT_EQ(order.next(), std::nullopt);
}

TEST(ReadyOrder, GivesASingleClientAWholeBuffer) {
  ReadyOrder order;
  EXPECT_TRUE(take(order, ready(7, 1)));
  EXPECT_EQ(order.next(), (Visit{7, 64 * kKiB, true}));
  EXPECT_EQ(order.next(), std::nullopt);
}

TEST(ReadyOrder, ReadsLessFromEachIfMoreAreReady) {
  const std::vector<std::pair<size_t, size_t>> expected = {
      {1, 64 * kKiB}, {4, 64 * kKiB}, {16, 16 * kKiB}, {128, 2 * kKiB}, {256, 2 * kKiB}};
  for (const auto& [count, share] : expected) {
    ReadyOrder order;
    take(order, ready(1, count));
    EXPECT_EQ(order.next(), (Visit{1, share, true})) << count;
  }
}

TEST(ReadyOrder, ServesABatchInTheKernelsOrderThenTwoQueuedClients) {
  ReadyOrder order;
  for (uint64_t greedy = 100; greedy < 105; greedy++)
    order.queue_up(greedy);
  take(order, ready(1, 3));
  EXPECT_EQ(all_next(order), (std::vector<uint64_t>{1, 2, 3, 100, 101}));
  take(order, ready(1, 2));
  EXPECT_EQ(all_next(order), (std::vector<uint64_t>{1, 2, 102, 103}));
  EXPECT_TRUE(take(order, {}));  // One client is still queued.
  EXPECT_EQ(all_next(order), (std::vector<uint64_t>{104}));
  EXPECT_FALSE(take(order, {}));
}

TEST(ReadyOrder, GivesQueuedClientsMoreIfFewAreQueued) {
  ReadyOrder order;
  for (uint64_t greedy = 0; greedy < 1000; greedy++)
    order.queue_up(greedy);
  take(order, {});
  EXPECT_EQ(order.next(), (Visit{0, 16 * kKiB, false}));
  ReadyOrder few;
  few.queue_up(5);
  take(few, {});
  EXPECT_EQ(few.next(), (Visit{5, 64 * kKiB, false}));
}

// However long the queue is, a modest client waits for at most two queued clients per batch.
TEST(ReadyOrder, ServesAModestClientInEveryBatch) {
  ReadyOrder order;
  for (uint64_t greedy = 1; greedy <= 2000; greedy++)
    order.queue_up(greedy);
  for (int batch = 0; batch < 100; batch++) {
    take(order, ready(0, 1));
    const std::vector<uint64_t> served = all_next(order);
    ASSERT_EQ(served.size(), 3u);
    EXPECT_EQ(served[0], 0u);
  }
}

TEST(ReadyOrder, ContinuesAnUnfinishedBatchInTheNextTurn) {
  ReadyOrder order;
  take(order, ready(1, 3));
  EXPECT_EQ(order.next()->tag, 1u);
  order.begin_turn();
  EXPECT_EQ(order.next()->tag, 2u);
  EXPECT_EQ(order.next()->tag, 3u);
  EXPECT_EQ(order.next(), std::nullopt);
}

TEST(ReadyOrder, PollsTheKernelAgainOnlyAfterEnoughWork) {
  ReadyOrder order;
  order.begin_turn();
  EXPECT_TRUE(order.worth_asking(0));
  take(order, ready(1, 1), 10);
  EXPECT_FALSE(order.worth_asking(13));
  EXPECT_TRUE(order.worth_asking(14));
  order.begin_turn();
  EXPECT_TRUE(order.worth_asking(10));
}

TEST(ReadyOrder, PollsTheKernelAgainWhileAClientIsQueued) {
  ReadyOrder order;
  order.begin_turn();
  take(order, ready(1, 1));
  EXPECT_FALSE(order.worth_asking(0));
  order.queue_up(1);
  EXPECT_TRUE(order.worth_asking(0));
}

}  // namespace
}  // namespace muster
