// Simulates the end of an agent over thousands of seeds.
#include "tests/sim/end_sim.h"

#include <gtest/gtest.h>

namespace muster::sim {
namespace {

TEST(EndSim, KeepsEveryPromiseOnThousandsOfSchedules) {
  int stay = 0;
  int lose_files = 0;
  int abandon = 0;
  constexpr int kSchedules = 20000;
  for (uint64_t seed = 1; seed <= kSchedules; ++seed) {
    const EndReport report = simulate_end(seed);
    ASSERT_FALSE(report.violation) << end_transcript(seed, report);
    stay += !report.has_left;
    lose_files += report.has_left && report.has_lost_files;
    abandon += report.abandons_output;
  }
  // A simulator that never reaches a case proves nothing about it.
  EXPECT_GT(stay, 100);
  EXPECT_GT(lose_files, 100);
  EXPECT_GT(abandon, 1000);
  EXPECT_LT(abandon, kSchedules / 2);
}

}  // namespace
}  // namespace muster::sim
