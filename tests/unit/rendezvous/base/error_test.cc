#include "rendezvous/base/error.h"

#include <csignal>

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(Errors, FailMakesAResultThatHoldsTheError) {
  const Result<int> failed = fail(ExitCode::usage, "--nnodes: 0 is no number of nodes");
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error(), (Error{ExitCode::usage, "--nnodes: 0 is no number of nodes"}));
  const Result<void> nothing = fail(ExitCode::environment, "x");
  EXPECT_EQ(nothing.error(), (Error{ExitCode::environment, "x"}));
}

TEST(Errors, CompareByCodeAndMessage) {
  const Error error{ExitCode::usage, "x"};
  EXPECT_EQ(error, (Error{ExitCode::usage, "x"}));
  EXPECT_NE(error, (Error{ExitCode::internal, "x"}));
  EXPECT_NE(error, (Error{ExitCode::usage, "y"}));
  EXPECT_EQ(Error().code, ExitCode::internal);  // An error that was never filled in is our bug.
}

TEST(Errors, AFailedCheckAbortsAndSaysWhere) {
  const auto broken = [] { CHECK(1 + 1 == 3); };
  EXPECT_EXIT(broken(), testing::KilledBySignal(SIGABRT),
              "^muster: internal error: CHECK\\(1 \\+ 1 == 3\\) failed at .*error_test\\.cc:[0-9]+ "
              "\\[this is a bug\\]\n");
}

TEST(Errors, ACheckIsEvaluatedOnceAndIsOneStatement) {
  int evaluated = 0;
  bool other_branch = false;
  if (evaluated == 0)
    CHECK(++evaluated > 0);
  else
    other_branch = true;
  EXPECT_EQ(evaluated, 1);
  EXPECT_FALSE(other_branch);
}

}  // namespace
}  // namespace muster
