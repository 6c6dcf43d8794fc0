#include "agent/hang/limits.h"

#include <gtest/gtest.h>

namespace muster::hang {
namespace {

using std::chrono::seconds;

const ring::Call kReduceOfEight = {
    .kind = ring::CallKind::all_reduce, .type = ring::ElementType::float32, .count = 8};
const LimitKey kKey = limit_key("world", kReduceOfEight);

LearntLimits warm(const Limits& limits = {}) {
  LearntLimits learnt(limits);
  for (uint64_t i = 0; i < LearntLimits::kWarmUp; ++i)
    learnt.note_call(kKey);
  return learnt;
}

TEST(LearntLimits, TheMaximumAppliesBeforeTwentyCalls) {
  LearntLimits learnt{Limits{}};
  for (uint64_t i = 0; i + 1 < LearntLimits::kWarmUp; ++i)
    learnt.note_call(kKey);
  EXPECT_EQ(learnt.busy(kKey), seconds(600));
  learnt.note_call(kKey);
  EXPECT_EQ(learnt.busy(kKey), seconds(60));
}

TEST(LearntLimits, AreFiveTimesTheLongestWaitWithinBounds) {
  LearntLimits learnt = warm();
  learnt.note_wait(kKey, seconds(5));
  EXPECT_EQ(learnt.busy(kKey), seconds(60));
  learnt.note_wait(kKey, seconds(30));
  learnt.note_wait(kKey, seconds(2));
  EXPECT_EQ(learnt.busy(kKey), seconds(150));
  learnt.note_wait(kKey, seconds(100'000));
  EXPECT_EQ(learnt.busy(kKey), seconds(600));
}

TEST(LearntLimits, EachGroupOperationAndSizeHasItsOwnLimit) {
  LearntLimits learnt = warm();
  learnt.note_wait(kKey, seconds(50));
  ring::Call larger = kReduceOfEight;
  larger.count = 16;
  EXPECT_NE(limit_key("world", larger), kKey);
  EXPECT_EQ(learnt.busy(limit_key("world", larger)), seconds(600));
  EXPECT_EQ(learnt.busy(limit_key("tp", kReduceOfEight)), seconds(600));
  larger.count = 9;
  EXPECT_EQ(learnt.busy(limit_key("world", larger)), seconds(250));
}

TEST(LearntLimits, AGivenTimeoutIsUsedExactly) {
  LearntLimits learnt = warm({.busy_timeout = seconds(7)});
  learnt.note_wait(kKey, seconds(100));
  EXPECT_EQ(learnt.busy(kKey), seconds(7));
  EXPECT_EQ(learnt.patient(kKey), seconds(7));
}

TEST(LearntLimits, ALimitThatMisjudgedIsDoubled) {
  LearntLimits learnt = warm();
  EXPECT_EQ(learnt.double_busy(kKey), seconds(120));
  EXPECT_EQ(learnt.double_busy(kKey), seconds(240));
  EXPECT_EQ(learnt.patient(kKey), seconds(2400));
  EXPECT_EQ(learnt.hang(kKey), seconds(12));
  EXPECT_EQ(learnt.double_hang(kKey), seconds(24));
  EXPECT_EQ(learnt.hang(limit_key("tp", kReduceOfEight)), seconds(12));
  for (int i = 0; i < 100; ++i)
    learnt.double_hang(kKey);
  EXPECT_GT(learnt.hang(kKey), seconds(12));
}

TEST(LearntLimits, AreForgottenWithTheirGroup) {
  LearntLimits learnt = warm();
  learnt.forget_groups([](const std::string& group) { return group != "world"; });
  EXPECT_EQ(learnt.busy(kKey), seconds(600));
}

}  // namespace
}  // namespace muster::hang
