#include "agent/job/drain.h"

#include <string>

#include <gtest/gtest.h>

namespace muster {
namespace {

// Logs the calls of its callbacks in `done_`.
class DrainTest : public testing::Test {
 protected:
  void wait_for(const std::string& what) {
    drain_.when_done([this, what] { done_ += what + " "; });
  }

  bool settling_ = false;
  std::string done_;
  Drain drain_{{.read = [this] { done_ += "read "; },
                .is_settling = [this] { return settling_; },
                .take =
                    [this](const AttemptRemains& remains) {
                      done_ += remains.workers.empty() ? "nothing " : "remains ";
                    }}};
  const AttemptRemains remains_ = [] {
    AttemptRemains remains;
    remains.workers.emplace_back();
    return remains;
  }();
};

TEST_F(DrainTest, RunsTheNextStepAtOnceIfNoStreamIsOpen) {
  drain_.begin();
  wait_for("next");
  EXPECT_EQ(done_, "next ");
}

TEST_F(DrainTest, RunsTheWaitingStepsOnceAllIsRead) {
  drain_.open();
  wait_for("next");
  drain_.begin();
  drain_.begin();
  wait_for("end");
  drain_.finish(remains_);
  EXPECT_EQ(done_, "read remains next end ");
  drain_.finish({});
  EXPECT_EQ(done_, "read remains next end ") << "it is closed";
}

TEST_F(DrainTest, IgnoresRemainsThatArriveAfterReadingWasGivenUp) {
  drain_.open();
  drain_.begin();
  wait_for("end");
  drain_.finish({});
  drain_.finish(remains_);
  EXPECT_EQ(done_, "read nothing end ") << "the rest comes too late";
}

TEST_F(DrainTest, HoldsTheRemainsUntilTheFirstFailureIsExplained) {
  drain_.open();
  drain_.begin();
  wait_for("end");
  settling_ = true;
  drain_.finish(remains_);
  drain_.finish({});
  EXPECT_EQ(done_, "read ");
  settling_ = false;
  drain_.settled();
  EXPECT_EQ(done_, "read remains end ");
}

TEST_F(DrainTest, WaitsForTheExplanationThoughNoStreamIsOpen) {
  settling_ = true;
  wait_for("next");
  EXPECT_EQ(done_, "");
  settling_ = false;
  drain_.settled();
  EXPECT_EQ(done_, "next ");
}

TEST_F(DrainTest, KeepsReadingAfterAnExplanation) {
  drain_.open();
  drain_.begin();
  wait_for("end");
  drain_.settled();
  EXPECT_EQ(done_, "read ");
}

TEST_F(DrainTest, LetsAStepOpenTheNextAttempt) {
  drain_.open();
  drain_.when_done([this] {
    drain_.open();
    wait_for("later");
  });
  drain_.begin();
  drain_.finish(remains_);
  EXPECT_TRUE(drain_.is_open());
  EXPECT_EQ(done_, "read remains ");
}

}  // namespace
}  // namespace muster
