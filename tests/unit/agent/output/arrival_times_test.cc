#include "agent/output/arrival_times.h"

#include <gtest/gtest.h>

#include "tests/unit/instants.h"

namespace muster {
namespace {

TEST(ArrivalTimes, KnowsWhenEachByteCame) {
  ArrivalTimes times;
  times.add(10, at_ms(100));
  times.add(25, at_ms(200));
  EXPECT_EQ(times.at(0), at_ms(100));
  EXPECT_EQ(times.at(9), at_ms(100));
  EXPECT_EQ(times.at(10), at_ms(200));
  EXPECT_EQ(times.at(24), at_ms(200));
  EXPECT_EQ(times.at(25), std::nullopt);
}

TEST(ArrivalTimes, BytesOfOneMomentShareAnEntry) {
  ArrivalTimes times;
  times.add(10, at_ms(100));
  times.add(20, at_ms(100) + std::chrono::microseconds(400));
  times.add(30, at_ms(101));
  EXPECT_EQ(times.at(15), at_ms(100));
  EXPECT_EQ(times.at(25), at_ms(101));
}

TEST(ArrivalTimes, ForgetsTheOldestAndThenGivesATimeThatIsTooLate) {
  ArrivalTimes times;
  for (uint64_t i = 1; i <= ArrivalTimes::kEntriesMax + 5; ++i)
    times.add(i, at_ms(static_cast<int64_t>(10 * i)));
  EXPECT_EQ(times.at(0), at_ms(60));
  EXPECT_EQ(times.at(5), at_ms(60));
  EXPECT_EQ(times.at(6), at_ms(70));
}

TEST(ArrivalTimes, ShowTheOrderOfTheStreamsAfterAStandstill) {
  const auto last = [](size_t followers, int64_t now) {
    return time_after_standstill(at_ms(100), at_ms(now), followers);
  };
  EXPECT_EQ(last(0, 500), at_ms(500));
  EXPECT_EQ(last(1, 500), at_ms(498));
  EXPECT_EQ(last(5, 500), at_ms(490));
  EXPECT_EQ(last(3, 104), at_ms(101));  // Not before the standstill.
  EXPECT_EQ(last(3, 90), at_ms(90));
}

}  // namespace
}  // namespace muster
