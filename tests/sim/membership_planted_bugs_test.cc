// The simulator must find bugs planted in copies of the machines, compiled only for this test, each
// within a thousand seeds.
#include "tests/sim/membership_planted_bugs.h"

#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/sim/membership_sim.h"

#ifndef MUSTER_PLANTED_BUGS
#error "this test needs the copies of the machines that are compiled with MUSTER_PLANTED_BUGS"
#endif

namespace muster::roundsim {
namespace {

constexpr uint64_t kMembershipSeedsToFindIt = 1000;

struct PlantedInMembership {
  MembershipBug bug;
  const char* name;
};

class PlantedMembershipBugTest : public testing::TestWithParam<PlantedInMembership> {
 protected:
  void TearDown() override { membership_bug_switch() = MembershipBug::none; }
};

TEST_P(PlantedMembershipBugTest, IsFoundWithinAThousandSeedsAndOnlyIfPlanted) {
  membership_bug_switch() = GetParam().bug;
  const std::optional<uint64_t> seed = first_failing_seed(plan_for, 1, kMembershipSeedsToFindIt);
  ASSERT_TRUE(seed) << GetParam().name << " was not found in " << kMembershipSeedsToFindIt
                    << " seeds";
  const Outcome found = simulate(plan_for(*seed));
  ASSERT_TRUE(found.violation);
  fmt::print("{}: seed {}, {}\n", GetParam().name, *seed, *found.violation);

  membership_bug_switch() = MembershipBug::none;
  const Outcome without = simulate(plan_for(*seed));
  EXPECT_FALSE(without.violation) << describe_failure(plan_for(*seed));
}

INSTANTIATE_TEST_SUITE_P(
    All, PlantedMembershipBugTest,
    testing::Values(PlantedInMembership{MembershipBug::skipped_epoch_check, "skipped_epoch_check"},
                    PlantedInMembership{MembershipBug::double_start, "double_start"},
                    PlantedInMembership{MembershipBug::lease_off_by_one, "lease_off_by_one"},
                    PlantedInMembership{MembershipBug::failure_counted_twice,
                                        "failure_counted_twice"},
                    PlantedInMembership{MembershipBug::lost_resend, "lost_resend"},
                    PlantedInMembership{MembershipBug::flap_is_a_loss, "flap_is_a_loss"},
                    PlantedInMembership{MembershipBug::no_self_doubt, "no_self_doubt"},
                    PlantedInMembership{MembershipBug::no_patience, "no_patience"}),
    [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace muster::roundsim
