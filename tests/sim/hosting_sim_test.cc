// Simulates the choice of the host over thousands of seeds, with the machines as shipped.
#include "tests/sim/hosting_sim.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/sanitized.h"

namespace muster::hostsim {
namespace {

// Four parts, so that ctest can run them in parallel.
constexpr uint64_t kHostingSeedsInPart = kSanitized ? 500 : 2500;

class HostingSimTest : public testing::TestWithParam<uint64_t> {};

TEST_P(HostingSimTest, KeepsEveryPromiseOnThousandsOfSchedules) {
  uint64_t events = 0;
  const uint64_t first = 1 + GetParam() * kHostingSeedsInPart;
  for (uint64_t seed = first; seed < first + kHostingSeedsInPart; ++seed) {
    const Plan plan = plan_for(seed);
    const Outcome outcome = simulate(plan);
    events += outcome.steps;
    ASSERT_FALSE(outcome.violation) << describe_failure(plan);
  }
  fmt::print("{} schedules from seed {}, {} events, no promise broken\n", kHostingSeedsInPart,
             first, events);
}

INSTANTIATE_TEST_SUITE_P(Parts, HostingSimTest, testing::Range(uint64_t{0}, uint64_t{4}));

// A simulator that never reaches a case proves nothing about it.
TEST(HostingSim, ReachesEveryWayToBecomeHostAndToStopBeingOne) {
  HostingPromises::Reached all;
  int succeeded = 0;
  int many_rounds = 0;
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    const Outcome outcome = simulate(plan_for(seed));
    ASSERT_FALSE(outcome.violation) << "seed " << seed;
    const HostingPromises::Reached& one = outcome.reached;
    all.followed_as_member += one.followed_as_member;
    all.followed_as_stranger += one.followed_as_stranger;
    all.followed_on_machine += one.followed_on_machine;
    all.returned += one.returned;
    all.stepped_down += one.stepped_down;
    all.told_by_keeper += one.told_by_keeper;
    all.found_written += one.found_written;
    succeeded += outcome.succeeded;
    many_rounds += one.rounds >= 4;
  }
  EXPECT_GT(all.followed_as_member, 50);
  EXPECT_GT(all.followed_as_stranger, 20);
  EXPECT_GT(all.followed_on_machine, 50);
  EXPECT_GT(all.returned, 50);
  EXPECT_GT(all.stepped_down, 30);
  EXPECT_GT(all.told_by_keeper, 10);
  EXPECT_GT(all.found_written, 20);
  EXPECT_GT(succeeded, 400);
  EXPECT_GT(many_rounds, 50);
}

TEST(HostingSim, GivesOneTranscriptForOneSeed) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    EXPECT_EQ(simulate(plan_for(seed), true).trace, simulate(plan_for(seed), true).trace)
        << "seed " << seed;
  }
}

}  // namespace
}  // namespace muster::hostsim
