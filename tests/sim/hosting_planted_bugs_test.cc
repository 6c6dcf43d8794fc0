// The simulator must find bugs planted in a copy of Hosting and in the simulated keeper, each
// within a thousand seeds.
#include "tests/sim/hosting_planted_bugs.h"

#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/sim/hosting_sim.h"

#ifndef MUSTER_PLANTED_BUGS
#error "this test needs the copies of the machines that are compiled with MUSTER_PLANTED_BUGS"
#endif

namespace muster::hostsim {
namespace {

constexpr uint64_t kHostingSeedsToFindIt = 1000;

struct PlantedInHosting {
  HostingBug bug;
  const char* name;
};

class PlantedHostingBugTest : public testing::TestWithParam<PlantedInHosting> {
 protected:
  void TearDown() override { hosting_bug_switch() = HostingBug::none; }
};

TEST_P(PlantedHostingBugTest, IsFoundWithinAThousandSeedsAndOnlyIfPlanted) {
  hosting_bug_switch() = GetParam().bug;
  const std::optional<uint64_t> seed = first_failing_seed(plan_for, 1, kHostingSeedsToFindIt);
  ASSERT_TRUE(seed) << GetParam().name << " was not found in " << kHostingSeedsToFindIt << " seeds";
  const Outcome found = simulate(plan_for(*seed));
  ASSERT_TRUE(found.violation);
  fmt::print("{}: seed {}, {}\n", GetParam().name, *seed, *found.violation);

  hosting_bug_switch() = HostingBug::none;
  const Outcome without = simulate(plan_for(*seed));
  EXPECT_FALSE(without.violation) << describe_failure(plan_for(*seed));
}

INSTANTIATE_TEST_SUITE_P(
    All, PlantedHostingBugTest,
    testing::Values(PlantedInHosting{HostingBug::blind_retry, "blind_retry"},
                    PlantedInHosting{HostingBug::no_fence, "no_fence"},
                    PlantedInHosting{HostingBug::stranger_follows, "stranger_follows"},
                    PlantedInHosting{HostingBug::lease_off_by_one, "lease_off_by_one"},
                    PlantedInHosting{HostingBug::watch_gap, "watch_gap"}),
    [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace muster::hostsim
