#include <gtest/gtest.h>

#include "agent/hang/limits.h"
#include "agent/launch_spec.h"

namespace muster::hang {
namespace {

using namespace std::chrono_literals;

TEST(HangLimits, AreTheDefaultsWithoutAFlag) {
  EXPECT_EQ(limits_of({}), Limits{});
}

TEST(HangLimits, ScaleWithAShortTimeout) {
  const Limits limits = limits_of({.off = false, .hang_timeout_s = 1.2, .busy_timeout_s = 3});
  EXPECT_EQ(limits.hang_timeout, 1200ms);
  EXPECT_EQ(limits.notice_after, 1s);
  EXPECT_EQ(limits.look, 120ms);
  EXPECT_EQ(limits.busy_timeout, Duration{3s});
}

TEST(HangLimits, KeepTheNoticeTimeForALongTimeout) {
  Limits expected;
  expected.hang_timeout = 10min;
  EXPECT_EQ(limits_of({.off = false, .hang_timeout_s = 600, .busy_timeout_s = {}}), expected);
}

TEST(HangLimits, HoldTheLongestTimeThatCanBeGiven) {
  const Limits limits = limits_of({.off = false, .hang_timeout_s = 1e9, .busy_timeout_s = 1e9});
  EXPECT_EQ(limits.hang_timeout, std::chrono::seconds(1'000'000'000));
  EXPECT_EQ(limits.busy_timeout, Duration{std::chrono::seconds(1'000'000'000)});
  EXPECT_EQ(limits.notice_after, 10s);
}

}  // namespace
}  // namespace muster::hang
