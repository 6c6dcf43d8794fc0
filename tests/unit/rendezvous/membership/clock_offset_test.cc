#include "rendezvous/membership/clock_offset.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

namespace muster {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr Instant at_us(int64_t us) {
  return Instant{microseconds{us}};
}

TEST(ClockOffset, KnowsNothingBeforeTheFirstExchange) {
  EXPECT_FALSE(ClockOffset().host_time(at_us(5)));
  EXPECT_FALSE(ClockOffset().own_time(at_us(5)));
}

TEST(ClockOffset, IsTheMiddleOfAnExchangeWithHalfItsLengthAsError) {
  ClockOffset clock;
  clock.exchange(at_us(100), at_us(9'000'000), at_us(300));
  const auto reading = clock.host_time(at_us(200));
  ASSERT_TRUE(reading);
  EXPECT_EQ(reading->at, at_us(9'000'000));
  EXPECT_GE(reading->error, microseconds(100));
  EXPECT_LT(reading->error, microseconds(101));
}

TEST(ClockOffset, TranslatesBackWithTheSameError) {
  ClockOffset clock;
  clock.exchange(at_us(100), at_us(9'000'000), at_us(300));
  EXPECT_EQ(clock.own_time(at_us(9'000'000))->at, at_us(200));
  const Instant later = at_us(200) + hours(1);
  const auto there = clock.host_time(later);
  const auto back = clock.own_time(there->at);
  EXPECT_EQ(back->at, later);
  EXPECT_EQ(back->error, there->error);
  EXPECT_GT(back->error, milliseconds(300));
}

TEST(ClockOffset, KeepsTheBestExchangeUntilDriftMakesItWorse) {
  ClockOffset clock;
  clock.exchange(at_us(0), at_us(1000), at_us(200));
  clock.exchange(at_us(1'000'000), at_us(1'002'000), at_us(1'005'000));  // Slow, so it is ignored.
  EXPECT_LT(clock.host_time(at_us(1'005'000))->error, microseconds(300));
  // An hour later two clocks may be 360 ms apart.
  const Instant later = at_us(0) + hours(1);
  EXPECT_GT(clock.host_time(later)->error, milliseconds(300));
  clock.exchange(later, later + microseconds(2000), later + microseconds(4000));
  EXPECT_LT(clock.host_time(later + microseconds(4000))->error, milliseconds(3));
}

TEST(ClockOffset, ForgetsAnotherHostsClock) {
  ClockOffset clock;
  clock.exchange(at_us(100), at_us(9000), at_us(300));
  clock.forget();
  EXPECT_FALSE(clock.host_time(at_us(200)));
  clock.exchange(at_us(0), at_us(50), at_us(100'000));
  EXPECT_TRUE(clock.host_time(at_us(200)));
}

TEST(ClockOffset, IgnoresAnAnswerBeforeItsQuestion) {
  ClockOffset clock;
  clock.exchange(at_us(300), at_us(9000), at_us(100));
  EXPECT_FALSE(clock.host_time(at_us(200)));
}

// For any delays in either direction, any offset and any drift.
RC_GTEST_PROP(AnyExchanges, KeepTheTruthWithinTheStatedError, ()) {
  const auto offset = microseconds(*rc::gen::inRange<int64_t>(-1'000'000'000, 1'000'000'000));
  const auto drift_per_million = *rc::gen::inRange(-50, 51);
  const auto truth = [&](Instant when) {
    return when + offset + when.time_since_epoch() * drift_per_million / 1'000'000;
  };
  ClockOffset clock;
  Instant now = at_us(0);
  const int count = *rc::gen::inRange(1, 20);
  for (int i = 0; i < count; ++i) {
    now += microseconds(*rc::gen::inRange<int64_t>(0, 3'000'000));
    const Instant sent = now;
    now += microseconds(*rc::gen::inRange<int64_t>(0, 20'000));
    const Instant host = truth(now);
    now += microseconds(*rc::gen::inRange<int64_t>(0, 20'000));
    clock.exchange(sent, host, now);
  }
  const Instant asked = now - microseconds(*rc::gen::inRange<int64_t>(0, 1'000'000));
  const auto reading = clock.host_time(asked);
  RC_ASSERT(reading.has_value());
  const Duration wrong =
      reading->at > truth(asked) ? reading->at - truth(asked) : truth(asked) - reading->at;
  RC_ASSERT(wrong <= reading->error + microseconds(1));
  const auto back = clock.own_time(truth(asked));
  RC_ASSERT((back->at > asked ? back->at - asked : asked - back->at) <=
            back->error + microseconds(1));
}

}  // namespace
}  // namespace muster
