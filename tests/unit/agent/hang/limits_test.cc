#include "agent/hang/limits.h"

#include <gtest/gtest.h>

namespace muster::hang {
namespace {

using std::chrono::seconds;

const ring::Call kReduceOfEight = {
    .kind = ring::CallKind::all_reduce, .type = ring::ElementType::float32, .count = 8};
const LimitKey kKey = limit_key("world", kReduceOfEight);

TEST(LearntLimits, EachGroupOperationAndSizeHasItsOwnFactor) {
  LearntLimits learnt{Limits{}};
  learnt.double_busy(kKey);
  ring::Call other = kReduceOfEight;
  other.count = 16;
  EXPECT_NE(limit_key("world", other), kKey);
  EXPECT_EQ(learnt.busy(limit_key("world", other)), seconds(900));
  EXPECT_EQ(learnt.busy(limit_key("tp", kReduceOfEight)), seconds(900));
  other.count = 9;
  EXPECT_EQ(learnt.busy(limit_key("world", other)), seconds(1800)) << "about the same size";
}

TEST(LearntLimits, ALimitThatMisjudgedIsDoubled) {
  LearntLimits learnt{{.busy_timeout = seconds(60)}};
  EXPECT_EQ(learnt.double_busy(kKey), seconds(120));
  EXPECT_EQ(learnt.double_busy(kKey), seconds(240));
  EXPECT_EQ(learnt.busy(kKey), seconds(240));
  EXPECT_EQ(learnt.hang(kKey), seconds(12));
  EXPECT_EQ(learnt.double_hang(kKey), seconds(24));
  EXPECT_EQ(learnt.hang(limit_key("tp", kReduceOfEight)), seconds(12));
  for (int i = 0; i < 100; ++i)
    learnt.double_hang(kKey);
  EXPECT_GT(learnt.hang(kKey), seconds(12));
}

TEST(LearntLimits, AreForgottenWithTheirGroup) {
  LearntLimits learnt{Limits{}};
  learnt.double_busy(kKey);
  learnt.forget_groups([](const std::string& group) { return group != "world"; });
  EXPECT_EQ(learnt.busy(kKey), seconds(900));
}

}  // namespace
}  // namespace muster::hang
