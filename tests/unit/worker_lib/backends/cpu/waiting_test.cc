// Waiting in shared memory: every stage of patience ends for each of its reasons, and no wake-up is
// lost.
#include "worker_lib/backends/cpu/waiting.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/wait_for.h"

namespace muster::worker {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr Patience kSleepAtOnce{.spins = 0, .yielding = std::chrono::nanoseconds{0}};
constexpr Patience kNeverSleep{.spins = 10, .yielding = std::chrono::hours{1}};

struct Place {
  Doorbell bell{};
  std::atomic<uint32_t> abort{0};
  std::atomic<uint32_t> value{0};

  Waited wait(uint32_t wanted, Patience patience, Deadline deadline) {
    return wait_until(bell, abort, patience, deadline, [&] { return value.load() >= wanted; });
  }
  // Stores first, then rings, as the protocol requires.
  void set(uint32_t now) {
    value.store(now);
    ring(bell);
  }
  // Polls the doorbell's counter, the only sign that a thread sleeps.
  void until_somebody_sleeps() const {
    while (bell.sleepers.load() == 0)
      std::this_thread::yield();
  }
};

Deadline waiting_for(milliseconds time) {
  return steady_clock::now() + time;
}

TEST(Waiting, ReturnsReadyEvenAfterTheDeadline) {
  Place place;
  place.set(1);
  for (const Patience patience : {kSleepAtOnce, kNeverSleep, kPatience}) {
    EXPECT_EQ(place.wait(1, patience, Deadline::min()), Waited::ready);
  }
}

TEST(Waiting, EndsAtTheDeadlineAndNotBefore) {
  Place place;
  for (const Patience patience : {kSleepAtOnce, kNeverSleep, kPatience}) {
    const Deadline deadline = waiting_for(milliseconds{120});
    EXPECT_EQ(place.wait(1, patience, deadline), Waited::timed_out);
    EXPECT_GE(steady_clock::now(), deadline);
  }
  EXPECT_EQ(place.bell.sleepers.load(), 0U);
}

TEST(Waiting, EndsAtOnceIfTheDeadlineHasPassed) {
  Place place;
  EXPECT_EQ(place.wait(1, kSleepAtOnce, Deadline::min()), Waited::timed_out);
}

TEST(Waiting, AcceptsTheLatestDeadlineWithoutOverflow) {
  Place place;
  std::thread setter([&] {
    place.until_somebody_sleeps();
    place.set(1);
  });
  EXPECT_EQ(place.wait(1, kSleepAtOnce, Deadline::max()), Waited::ready);
  setter.join();
}

TEST(Waiting, EndsOnAbortInEveryStage) {
  for (const Patience patience : {kSleepAtOnce, kNeverSleep, kPatience}) {
    Place place;
    std::thread aborter([&] {
      if (patience.yielding.count() == 0) place.until_somebody_sleeps();
      place.abort.store(1);
      detail::wake_all(place.bell);
    });
    EXPECT_EQ(place.wait(1, patience, waiting_for(milliseconds{60'000})), Waited::aborted);
    aborter.join();
  }
}

// The process that set the word may be killed before it wakes the sleepers.
TEST(Waiting, SeesAnAbortWithoutAWakeUp) {
  Place place;
  std::thread aborter([&] {
    place.until_somebody_sleeps();
    place.abort.store(1);
  });
  EXPECT_EQ(place.wait(1, kSleepAtOnce, waiting_for(milliseconds{60'000})), Waited::aborted);
  aborter.join();
}

TEST(Waiting, OneRingWakesAllSleepers) {
  constexpr int kThreads = 8;
  Place place;
  std::atomic<int> woken{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      if (place.wait(1, kSleepAtOnce, Deadline::max()) == Waited::ready) woken.fetch_add(1);
    });
  }
  while (place.bell.sleepers.load() < kThreads)
    std::this_thread::yield();
  place.set(1);
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(woken.load(), kThreads);
}

// A lost wake-up costs 50 ms (the longest sleep); if one in ten were lost, this would take 100 s.
TEST(Waiting, LosesNoWakeUp) {
  constexpr uint32_t kRounds = 10'000;
  Place here;
  Place there;
  std::thread other([&] {
    for (uint32_t round = 1; round <= kRounds; ++round) {
      EXPECT_EQ(here.wait(round, kSleepAtOnce, Deadline::max()), Waited::ready);
      there.set(round);
    }
  });
  const auto start = steady_clock::now();
  for (uint32_t round = 1; round <= kRounds; ++round) {
    here.set(round);
    EXPECT_EQ(there.wait(round, kSleepAtOnce, Deadline::max()), Waited::ready);
  }
  other.join();
  const auto took = steady_clock::now() - start;
  EXPECT_LT(took, test::within(std::chrono::seconds{5}));
  std::printf("%u rounds in %lld ms\n", kRounds,
              static_cast<long long>(std::chrono::duration_cast<milliseconds>(took).count()));
}

TEST(Waiting, SleepsInsteadOfYieldingOnAContestedCore) {
  Place place;
  std::thread waiting([&] {
    detail::note_wanted_core(steady_clock::now() + std::chrono::minutes{10});
    EXPECT_EQ(place.wait(1, kNeverSleep, waiting_for(std::chrono::minutes{1})), Waited::ready);
  });
  place.until_somebody_sleeps();
  place.set(1);
  waiting.join();
}

TEST(Waiting, ForgetsAContestedCoreAfterAWhile) {
  const auto now = steady_clock::now();
  EXPECT_FALSE(detail::is_core_wanted(now));
  detail::note_wanted_core(now);
  EXPECT_TRUE(detail::is_core_wanted(now + milliseconds{50}));
  EXPECT_FALSE(detail::is_core_wanted(now + std::chrono::seconds{1}));
  detail::note_wanted_core({});  // Resets this thread's note.
}

}  // namespace
}  // namespace muster::worker
