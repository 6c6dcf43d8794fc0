#include "worker_lib/group/monitored_barrier.h"

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/worker_lib/group/fake_backend.h"

namespace muster::worker::group_test {
namespace {

using Ranks = std::vector<GlobalRank>;

TEST(MonitoredBarrier, AllRanksLeaveWhenTheLastOneArrives) {
  FakeJob job(4);
  std::atomic<int> came{0};
  job.each([&](FakeRank& rank) {
    ProcessGroup world = rank.world();
    for (int round = 1; round <= 20; ++round) {
      ++came;
      world.monitored_barrier();
      EXPECT_GE(came, 4 * round);
    }
  });
  // Earlier barriers leave no keys in the store.
  auto store = job[0].host->connect_store(Deadline::max());
  const auto keys = store->with_prefix("group/world/monitored").list_keys();
  ASSERT_TRUE(keys.has_value());
  for (const std::string& key : *keys)
    EXPECT_TRUE(key.starts_with("20/")) << key;
}

TEST(MonitoredBarrier, EveryRankNamesAllAbsentRanksAndTheGroupGoesOn) {
  FakeJob job(5);
  const std::string what =
      "timeout: monitored_barrier 1 of group world: rank 1 (host, pid 101) and rank 3 (host, pid "
      "103) did not arrive within 100 ms; ";
  const auto early = [&](FakeRank& rank, bool all) {
    Ranks ranks;
    // One of them has a short timeout, and comes last; the others would wait for a minute.
    const auto timeout = rank.me == 4 ? 100ms : 60000ms;
    if (rank.me == 4) wait_until_entered(rank, "world/monitored/1", 2);
    const std::string text =
        thrown_by([&] { rank.world().monitored_barrier({.timeout = timeout}, all); }, &ranks);
    EXPECT_EQ(text, what + "check what they are doing instead, or give a longer timeout");
    EXPECT_EQ(ranks, (Ranks{{1}, {3}}));
  };
  job.each([&](FakeRank& rank) {
    if (rank.me != 1 && rank.me != 3) early(rank, true);
  });
  // Late ranks get the same error, and that they are among the absent.
  job.each([&](FakeRank& rank) {
    if (rank.me != 1 && rank.me != 3) return;
    EXPECT_EQ(thrown_by([&] { rank.world().monitored_barrier(); }),
              what + "this is one of them, and it arrived too late or missed an earlier one");
  });
  job.each([](FakeRank& rank) {
    EXPECT_EQ(rank.world().failure(), std::nullopt);
    rank.world().monitored_barrier();
    rank.world().barrier();
  });
}

TEST(MonitoredBarrier, NamesOnlyTheFirstAbsentRankIfAsked) {
  FakeJob job(4);
  job.each([](FakeRank& rank) {
    if (rank.me == 1 || rank.me == 3) return;
    Ranks ranks;
    const auto timeout = rank.me == 0 ? 50ms : 60000ms;
    thrown_by([&] { rank.world().monitored_barrier({.timeout = timeout}, false); }, &ranks);
    EXPECT_EQ(ranks, Ranks{{1}});
  });
}

TEST(MonitoredBarrier, EndsWhenARankDies) {
  FakeJob job(2);
  std::thread news([&] {
    wait_until_entered(job[0], "world/monitored/1", 1);
    job.watch().died(1);
  });
  EXPECT_EQ(thrown_by([&] { job[0].world().monitored_barrier(); }),
            "peer_failed: monitored_barrier 1 of group world: rank 1 (host, pid 101) died");
  news.join();
}

}  // namespace
}  // namespace muster::worker::group_test
