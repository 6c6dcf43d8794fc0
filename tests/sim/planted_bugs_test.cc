// The simulator must find bugs planted in a copy of the machine, compiled only for this test, each
// within a thousand seeds.
#include "tests/sim/planted_bugs.h"

#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/sim/worker_group_sim.h"

#ifndef MUSTER_PLANTED_BUGS
#error "this test needs the copy of the machine that is compiled with MUSTER_PLANTED_BUGS"
#endif

namespace muster::sim {
namespace {

constexpr uint64_t kSeedsToFindIt = 1000;

struct Planted {
  PlantedBug bug;
  const char* name;
};

class PlantedBugTest : public testing::TestWithParam<Planted> {
 protected:
  void TearDown() override { planted_bug_switch() = PlantedBug::none; }
};

TEST_P(PlantedBugTest, IsFoundWithinAThousandSeedsAndOnlyIfPlanted) {
  planted_bug_switch() = GetParam().bug;
  const std::optional<uint64_t> seed = first_failing_seed(plan_for, 1, kSeedsToFindIt);
  ASSERT_TRUE(seed) << GetParam().name << " was not found in " << kSeedsToFindIt << " seeds";
  const Report found = simulate(plan_for(*seed));
  ASSERT_TRUE(found.violation);
  fmt::print("{}: seed {}, {}\n", GetParam().name, *seed, *found.violation);

  planted_bug_switch() = PlantedBug::none;
  const Report without = simulate(plan_for(*seed));
  EXPECT_FALSE(without.violation) << describe_failure(plan_for(*seed), without);
}

INSTANTIATE_TEST_SUITE_P(
    All, PlantedBugTest,
    testing::Values(Planted{PlantedBug::double_start, "double_start"},
                    Planted{PlantedBug::lost_exit, "lost_exit"},
                    Planted{PlantedBug::grace_never_ends, "grace_never_ends"},
                    Planted{PlantedBug::budget_off_by_one, "budget_off_by_one"},
                    Planted{PlantedBug::restart_before_reaped, "restart_before_reaped"}),
    [](const auto& tested) { return std::string(tested.param.name); });

TEST(PlantedBugs, BreakNoPromiseIfNoneIsPlanted) {
  planted_bug_switch() = PlantedBug::none;
  EXPECT_EQ(first_failing_seed(plan_for, 1, kSeedsToFindIt), std::nullopt);
}

}  // namespace
}  // namespace muster::sim
