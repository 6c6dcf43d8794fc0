#include "worker_lib/work_state.h"

#include <array>
#include <chrono>
#include <optional>
#include <thread>

#include <gtest/gtest.h>

namespace muster::worker {
namespace {

constexpr Deadline kPastDeadline = Deadline::min();
const std::optional<Outcome<>> kWellDone = Outcome<>(Done{});
const std::optional<Outcome<>> kLostPeer =
    Outcome<>(failed(ErrorCode::peer_failed, "rank 2 died", {{2}}));

TEST(HostWork, IsUnderWayUntilItCompletes) {
  HostWork work;
  EXPECT_FALSE(work.is_complete());
  EXPECT_EQ(work.outcome(), std::nullopt);
  EXPECT_EQ(work.source(), -1);
  EXPECT_EQ(work.wait(kPastDeadline), std::nullopt) << "a query does not wait";
  EXPECT_EQ(work.synchronize(kPastDeadline), std::nullopt);
  work.complete(Done{}, 3);
  EXPECT_TRUE(work.is_complete());
  EXPECT_EQ(work.outcome(), kWellDone);
  EXPECT_EQ(work.source(), 3);
}

TEST(HostWork, KeepsItsOutcomeForLaterWaits) {
  HostWork work;
  work.complete(*kLostPeer);
  for (const Deadline until : {kPastDeadline, Deadline::max(), std::chrono::steady_clock::now()}) {
    EXPECT_EQ(work.wait(until), kLostPeer);
    EXPECT_EQ(work.synchronize(until), kLostPeer);
  }
  EXPECT_EQ(work.source(), -1);
}

TEST(HostWork, WakesAllWaitersWhenItCompletes) {
  HostWork work;
  std::array<std::optional<Outcome<>>, 3> seen;
  std::array<std::thread, 3> threads;
  const std::array<Deadline, 3> until{Deadline::max(), Deadline::max(),
                                      std::chrono::steady_clock::now() + std::chrono::hours(1)};
  for (size_t i = 0; i < threads.size(); ++i)
    threads[i] = std::thread([&, i] { seen[i] = work.wait(until[i]); });
  while (!work.is_awaited())
    std::this_thread::yield();
  work.complete(*kLostPeer);
  for (std::thread& thread : threads)
    thread.join();
  for (const auto& outcome : seen)
    EXPECT_EQ(outcome, kLostPeer);
}

// Other ranks learn whether the program or only the library waits for a call.
TEST(HostWork, IsAwaitedWhileAThreadWaits) {
  HostWork work;
  EXPECT_FALSE(work.is_awaited());
  work.wait(kPastDeadline);
  EXPECT_FALSE(work.is_awaited());
  std::thread waiting([&] { work.wait(Deadline::max()); });
  while (!work.is_awaited())
    std::this_thread::yield();
  EXPECT_FALSE(work.is_complete());
  work.complete(Done{});
  waiting.join();
  EXPECT_FALSE(work.is_awaited());
}

}  // namespace
}  // namespace muster::worker
