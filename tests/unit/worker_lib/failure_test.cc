#include "worker_lib/failure.h"

#include <vector>

#include <gtest/gtest.h>

namespace muster::worker {
namespace {

// Processes compare a failure that each of them learned of at a different time.
TEST(Failure, EqualityIgnoresTimeAndSuspicion) {
  const Failure failure{ErrorCode::timeout, "rank 2 did not come", {{2}}};
  Failure elsewhere = failure;
  elsewhere.known_ns = 5;
  elsewhere.is_suspicion = true;
  EXPECT_EQ(elsewhere, failure);
  EXPECT_NE((Failure{ErrorCode::aborted, "rank 2 did not come", {{2}}}), failure);
  EXPECT_NE((Failure{ErrorCode::timeout, "rank 2 did not go", {{2}}}), failure);
  EXPECT_NE((Failure{ErrorCode::timeout, "rank 2 did not come", {}}), failure);
}

TEST(Failure, AnOutcomeIsDoneUntilItFails) {
  Outcome<> outcome;
  EXPECT_TRUE(outcome.has_value());
  outcome = failed(ErrorCode::peer_failed, "rank 1 died", {{1}});
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error(), (Failure{ErrorCode::peer_failed, "rank 1 died", {{1}}}));
  EXPECT_FALSE(outcome.error().is_suspicion);
  EXPECT_EQ(outcome.error().known_ns, 0);
}

}  // namespace
}  // namespace muster::worker
