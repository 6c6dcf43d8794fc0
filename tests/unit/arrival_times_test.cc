#include "agent/output/arrival_times.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

constexpr Instant at(int64_t ms) {
  return Instant{std::chrono::milliseconds{ms}};
}

TEST(ArrivalTimes, KnowsWhenEachByteCame) {
  ArrivalTimes times;
  times.add(10, at(100));
  times.add(25, at(200));
  EXPECT_EQ(times.at(0), at(100));
  EXPECT_EQ(times.at(9), at(100));
  EXPECT_EQ(times.at(10), at(200));
  EXPECT_EQ(times.at(24), at(200));
  EXPECT_EQ(times.at(25), std::nullopt);
}

TEST(ArrivalTimes, BytesOfOneMomentShareAnEntry) {
  ArrivalTimes times;
  times.add(10, at(100));
  times.add(20, at(100) + std::chrono::microseconds(400));
  times.add(30, at(101));
  EXPECT_EQ(times.at(15), at(100));
  EXPECT_EQ(times.at(25), at(101));
}

TEST(ArrivalTimes, ForgetsTheOldestAndThenSaysTooLateATime) {
  ArrivalTimes times;
  for (uint64_t i = 1; i <= ArrivalTimes::kEntriesMax + 5; ++i)
    times.add(i, at(static_cast<int64_t>(10 * i)));
  EXPECT_EQ(times.at(0), at(60));
  EXPECT_EQ(times.at(5), at(60));
  EXPECT_EQ(times.at(6), at(70));
}

TEST(ArrivalTimes, AfterAStandstillShowTheOrderOfTheStreams) {
  const auto last = [](size_t followers, int64_t now) {
    return time_after_standstill(at(100), at(now), followers);
  };
  EXPECT_EQ(last(0, 500), at(500));
  EXPECT_EQ(last(1, 500), at(498));
  EXPECT_EQ(last(5, 500), at(490));
  EXPECT_EQ(last(3, 104), at(101));  // Not before it began.
  EXPECT_EQ(last(3, 90), at(90));
}

}  // namespace
}  // namespace muster
