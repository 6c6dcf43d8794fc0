// The simulator must find bugs planted in copies of the machines and in the simulated keeper,
// compiled only for this test, each within a thousand seeds.
#include "tests/sim/planted_bugs.h"

#include <string>
#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/sim/hosting_planted_bugs.h"
#include "tests/sim/hosting_sim.h"
#include "tests/sim/membership_planted_bugs.h"
#include "tests/sim/membership_sim.h"
#include "tests/sim/worker_group_sim.h"

#ifndef MUSTER_PLANTED_BUGS
#error "this test needs the copies of the machines that are compiled with MUSTER_PLANTED_BUGS"
#endif

namespace muster {
namespace {

constexpr uint64_t kSeedsToFindIt = 1000;

template <typename Bug>
using Named = std::pair<const char*, Bug>;

template <typename Bug, typename PlanFor>
void expect_found_only_if_planted(const Named<Bug>& named, Bug& planted, PlanFor plan_for) {
  const auto& [name, bug] = named;
  planted = bug;
  const std::optional<uint64_t> seed = first_failing_seed(plan_for, 1, kSeedsToFindIt);
  const auto found = seed ? simulate(plan_for(*seed)).violation : std::nullopt;
  planted = Bug::none;
  ASSERT_TRUE(seed) << name << " was not found in " << kSeedsToFindIt << " seeds";
  ASSERT_TRUE(found);
  fmt::print("{}: seed {}, {}\n", name, *seed, *found);
  const auto without = simulate(plan_for(*seed));
  EXPECT_FALSE(without.violation) << describe_failure(plan_for(*seed), without);
}

constexpr auto kName = [](const auto& tested) { return std::string(tested.param.first); };

class PlantedBugTest : public testing::TestWithParam<Named<PlantedBug>> {};
class PlantedMembershipBugTest : public testing::TestWithParam<Named<MembershipBug>> {};
class PlantedHostingBugTest : public testing::TestWithParam<Named<HostingBug>> {};

TEST_P(PlantedBugTest, IsFoundWithinAThousandSeedsAndOnlyIfPlanted) {
  expect_found_only_if_planted(GetParam(), planted_bug_switch(), sim::plan_for);
}

TEST_P(PlantedMembershipBugTest, IsFoundWithinAThousandSeedsAndOnlyIfPlanted) {
  expect_found_only_if_planted(GetParam(), membership_bug_switch(), roundsim::plan_for);
}

TEST_P(PlantedHostingBugTest, IsFoundWithinAThousandSeedsAndOnlyIfPlanted) {
  expect_found_only_if_planted(GetParam(), hosting_bug_switch(), hostsim::plan_for);
}

INSTANTIATE_TEST_SUITE_P(All, PlantedBugTest, testing::ValuesIn(kWorkerBugs), kName);
INSTANTIATE_TEST_SUITE_P(All, PlantedMembershipBugTest, testing::ValuesIn(kMembershipBugs), kName);
INSTANTIATE_TEST_SUITE_P(All, PlantedHostingBugTest, testing::ValuesIn(kHostingBugs), kName);

TEST(PlantedBugs, BreakNoPromiseIfNoneIsPlanted) {
  planted_bug_switch() = PlantedBug::none;
  EXPECT_EQ(first_failing_seed(sim::plan_for, 1, kSeedsToFindIt), std::nullopt);
}

}  // namespace
}  // namespace muster
