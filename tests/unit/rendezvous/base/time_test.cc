#include "rendezvous/base/time.h"

#include <algorithm>
#include <chrono>
#include <type_traits>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace muster {
namespace {

constexpr Duration kLongest = Duration::max();

TEST(Instants, AWaitThatFitsEndsAfterItsLength) {
  EXPECT_EQ(instant_after(Instant(Duration(5)), Duration(7)), Instant(Duration(12)));
  EXPECT_EQ(instant_after(Instant(Duration(5)), Duration(0)), Instant(Duration(5)));
  EXPECT_EQ(instant_after(Instant(Duration(-9)), Duration(4)), Instant(Duration(-5)));
  EXPECT_EQ(instant_after(Instant(), kLongest), kNever);
}

TEST(Instants, AWaitThatDoesNotFitNeverEnds) {
  EXPECT_EQ(instant_after(kNever, Duration(0)), kNever);
  EXPECT_EQ(instant_after(kNever, Duration(1)), kNever);
  EXPECT_EQ(instant_after(kNever, kLongest), kNever);
  EXPECT_EQ(instant_after(Instant(Duration(1)), kLongest), kNever);
  EXPECT_EQ(instant_after(kNever - Duration(1), Duration(1)), kNever);
  EXPECT_EQ(instant_after(kNever - Duration(2), Duration(1)), kNever - Duration(1));
}

RC_GTEST_PROP(Instants, AWaitNeverEndsInThePastNorALongerOneEarlier,
              (int64_t now_ns, uint64_t one, uint64_t other)) {
  const auto wait_of = [](uint64_t bits) { return Duration(static_cast<int64_t>(bits >> 1)); };
  const Instant now{Duration(now_ns)};
  const auto [shorter, longer] = std::minmax({wait_of(one), wait_of(other)});
  RC_ASSERT(instant_after(now, shorter) >= now);
  RC_ASSERT(instant_after(now, longer) >= instant_after(now, shorter));
}

TEST(DeadlineAfter, DoesNotOverflow) {
  using std::chrono::milliseconds;
  const Deadline now = Deadline(std::chrono::hours{5});
  EXPECT_EQ(deadline_after(now, milliseconds{7}), now + milliseconds{7});
  EXPECT_EQ(deadline_after(now, milliseconds::max()), Deadline::max());
}

template <typename T>
concept CanBeRead = requires { T::now(); };

// A machine that read a clock would behave differently in the simulator.
static_assert(!CanBeRead<Clock> && CanBeRead<std::chrono::steady_clock>);
static_assert(!std::is_convertible_v<Deadline, Instant> &&
              !std::is_convertible_v<Instant, Deadline>);

}  // namespace
}  // namespace muster
