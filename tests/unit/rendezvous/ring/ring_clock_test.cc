#include "rendezvous/ring/ring_clock.h"

#include <cstdint>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace muster::ring {
namespace {

TEST(RingClock, TicksLieOnTheLineThroughTwoClockPairs) {
  const ClockPair a{1'000, 500};
  const ClockPair b{4'000, 1'500};
  EXPECT_EQ(ns_of(1'000, a, b), 500U);
  EXPECT_EQ(ns_of(2'500, a, b), 1'000U);
  EXPECT_EQ(ns_of(4'000, a, b), 1'500U);
  EXPECT_EQ(ns_of(7'000, a, b), 2'500U);
  EXPECT_EQ(ns_of(700, a, b), 400U);
}

TEST(RingClock, OneClockPairGivesNoRate) {
  EXPECT_EQ(ns_of(9, {5, 7}, {5, 7}), 7U);
  EXPECT_EQ(ns_of(9, {5, 7}, {4, 70}), 7U) << "the second one is not later";
}

TEST(RingClock, AWeekLaterTheTimeIsExactToANanosecond) {
  const ClockPair a{7'000'000'000'000'000, 3'000'000'000'000'000};
  constexpr uint64_t kWeek = 604'800'000'000'000;
  const ClockPair b{a.ticks + 3 * kWeek, a.ns + kWeek};
  for (const uint64_t ns : {uint64_t{1}, uint64_t{999'999'937}, kWeek / 2 + 1, kWeek - 1})
    EXPECT_EQ(ns_of(a.ticks + 3 * ns, a, b), a.ns + ns);
}

RC_GTEST_PROP(RingClock, AnyNumbersGiveABoundedTime, ()) {
  const auto any = [] {
    return *rc::gen::oneOf(rc::gen::arbitrary<uint64_t>(),
                           rc::gen::element<uint64_t>(0, 1, UINT64_MAX, uint64_t{1} << 63));
  };
  const ClockPair a{any(), any()};
  const uint64_t ns = ns_of(any(), a, {any(), any()});
  RC_ASSERT(ns == a.ns || ns <= uint64_t{1} << 62);
}

TEST(RingClock, BothClocksAgree) {
  for (const bool tsc : {false, tsc_is_invariant()}) {
    const ClockPair a = clock_pair(tsc);
    while (monotonic_ns() < a.ns + 20'000'000) {
    }
    const uint64_t before = monotonic_ns();
    const uint64_t between = ticks(tsc);
    const uint64_t after = monotonic_ns();
    const ClockPair b = clock_pair(tsc);
    // A pair is as exact as reading the clock takes, unless the thread is interrupted.
    constexpr uint64_t kInterrupted = 5'000'000;
    EXPECT_GE(ns_of(between, a, b) + kInterrupted, before) << tsc;
    EXPECT_LE(ns_of(between, a, b), after + kInterrupted) << tsc;
  }
}

}  // namespace
}  // namespace muster::ring
