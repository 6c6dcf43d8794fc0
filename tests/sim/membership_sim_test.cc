// Simulates the rendezvous over thousands of seeds, with the machines as shipped.
#include "tests/sim/membership_sim.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/sanitized.h"

namespace muster::roundsim {
namespace {

using membership::EndWhy;
using membership::StopWhy;

// Four parts, so that ctest can run them in parallel.
constexpr uint64_t kSeedsInPart = kSanitized ? 500 : 2500;

class MembershipSimTest : public testing::TestWithParam<uint64_t> {};

TEST_P(MembershipSimTest, KeepsEveryPromiseOnThousandsOfSchedules) {
  uint64_t events = 0;
  const uint64_t first = 1 + GetParam() * kSeedsInPart;
  for (uint64_t seed = first; seed < first + kSeedsInPart; ++seed) {
    const Plan plan = plan_for(seed);
    const Outcome outcome = simulate(plan);
    events += outcome.steps;
    ASSERT_FALSE(outcome.violation) << describe_failure(plan);
  }
  fmt::print("{} schedules from seed {}, {} events, no promise broken\n", kSeedsInPart, first,
             events);
}

INSTANTIATE_TEST_SUITE_P(Parts, MembershipSimTest, testing::Range(uint64_t{0}, uint64_t{4}));

// A simulator that never reaches a case proves nothing about it.
TEST(MembershipSim, ReachesEveryEndAndEveryReasonToStop) {
  std::map<EndWhy, int> ends;
  std::map<StopWhy, int> stops;
  int returns = 0;
  int restarted_and_succeeded = 0;
  int gave_up = 0;
  int many_rounds = 0;
  for (uint64_t seed = 1; seed <= 1500; ++seed) {
    const Outcome outcome = simulate(plan_for(seed));
    ASSERT_FALSE(outcome.violation) << "seed " << seed;
    for (const EndWhy why : outcome.reached.ends)
      ++ends[why];
    for (const StopWhy why : outcome.reached.stops)
      ++stops[why];
    returns += outcome.reached.host_returns;
    restarted_and_succeeded += outcome.succeeded && outcome.reached.restarts > 0;
    gave_up += outcome.reached.agents_gave_up;
    many_rounds += outcome.reached.rounds >= 4;
  }
  for (const EndWhy why :
       {EndWhy::success, EndWhy::failed, EndWhy::stopped, EndWhy::lost, EndWhy::timeout}) {
    EXPECT_GT(ends[why], 10) << static_cast<int>(why);
  }
  for (const StopWhy why :
       {StopWhy::failure, StopWhy::lost, StopWhy::left, StopWhy::joined, StopWhy::host}) {
    EXPECT_GT(stops[why], 10) << static_cast<int>(why);
  }
  EXPECT_GT(returns, 50);
  EXPECT_GT(restarted_and_succeeded, 10);
  EXPECT_GT(gave_up, 10);
  EXPECT_GT(many_rounds, 50);
}

// A restarted host met no agent that knew its first round, and numbered from 1 again; then an agent
// of the old round 1 joined while the new one was being stopped.
TEST(MembershipSim, NeverTakesARoundOfAnEarlierHostForACurrentOne) {
  EXPECT_FALSE(simulate(plan_for(169183)).violation) << describe_failure(plan_for(169183));
}

TEST(MembershipSim, GivesOneTranscriptForOneSeed) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    EXPECT_EQ(simulate(plan_for(seed), true).trace, simulate(plan_for(seed), true).trace)
        << "seed " << seed;
  }
}

TEST(MembershipSim, FormsTenThousandInFiveSecondsAtConstantBytesPerAgent) {
  std::map<int, ScaleFigures> figures;
  for (const int nodes : {100, 1000, 10000}) {
    const ScaleFigures& here = figures[nodes] = form_at_scale(nodes);
    ASSERT_FALSE(here.violation) << *here.violation;
    fmt::print(
        "{} agents: formed after {:.3f} s of virtual time, {:.0f} bytes per agent, {} events, "
        "{:.2f} s of processor time\n",
        nodes, std::chrono::duration<double>(here.formed_after).count(), here.bytes_per_agent,
        here.steps, here.cpu_seconds);
    EXPECT_LT(here.formed_after, std::chrono::seconds{5});
  }
  EXPECT_LT(figures[10000].bytes_per_agent, 1.2 * figures[100].bytes_per_agent);
}

}  // namespace
}  // namespace muster::roundsim
