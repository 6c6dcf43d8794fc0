// The simulator must find bugs planted in copies of the machines, each within a thousand seeds.
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/sim/agreement_planted_bugs.h"
#include "tests/sim/agreement_sim.h"

#ifndef MUSTER_PLANTED_BUGS
#error "this test needs the copies of the machines that are compiled with MUSTER_PLANTED_BUGS"
#endif

namespace muster {
namespace {

constexpr uint64_t kSeedsMax = 1000;

class PlantedAgreementBugTest
    : public testing::TestWithParam<std::pair<const char*, AgreementBug>> {};

TEST_P(PlantedAgreementBugTest, IsFoundWithinAThousandSeedsAndOnlyIfPlanted) {
  agreesim::Tally tally;
  agreement_bug_switch() = GetParam().second;
  std::optional<std::string> found;
  uint64_t seed = 0;
  while (seed < kSeedsMax && !found)
    found = agreesim::broken_promise(++seed, tally);
  agreement_bug_switch() = AgreementBug::none;
  ASSERT_TRUE(found) << "not found in " << kSeedsMax << " seeds";
  fmt::print("{}: seed {}, {}\n", GetParam().first, seed, *found);
  EXPECT_EQ(agreesim::broken_promise(seed, tally), std::nullopt);
}

INSTANTIATE_TEST_SUITE_P(All, PlantedAgreementBugTest, testing::ValuesIn(kAgreementBugs),
                         [](const auto& tested) { return std::string(tested.param.first); });

}  // namespace
}  // namespace muster
