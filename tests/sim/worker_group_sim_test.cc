// Simulates the worker group over thousands of seeds, with the machine as shipped.
#include "tests/sim/worker_group_sim.h"

#include <map>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/transcripts/worker_group_transcript.h"

namespace muster::sim {
namespace {

constexpr uint64_t kSeeds = 6000;

TEST(WorkerGroupSim, KeepsEveryPromiseOnThousandsOfSchedules) {
  uint64_t events = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const Plan plan = plan_for(seed);
    const Report report = simulate(plan);
    events += static_cast<uint64_t>(report.steps);
    ASSERT_FALSE(report.violation) << describe_failure(plan, report);
    ASSERT_TRUE(report.outcome) << describe_failure(plan, report);
  }
  fmt::print("{} schedules, {} events, no promise broken\n", kSeeds, events);
}

// The name of an effect or outcome begins its text.
std::string first_word(const std::string& text) {
  return text.substr(0, text.find_first_of("{,"));
}

// A simulator that never reaches a case proves nothing about it.
TEST(WorkerGroupSim, ReachesEveryEffectAndEveryOutcome) {
  std::map<std::string, int> effects;
  std::map<std::string, int> outcomes;
  int jumps = 0;
  int restarted_and_succeeded = 0;
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    const Report report = simulate(plan_for(seed));
    ASSERT_TRUE(report.outcome) << "seed " << seed;
    ++outcomes[first_word(group::to_text(*report.outcome))];
    restarted_and_succeeded +=
        report.outcome->end == JobEnd::success && report.outcome->restarts > 0;
    for (const std::string& line : report.trace) {
      constexpr size_t kTimeWidth = 14;  // "     0.000    ".
      if (line.size() > kTimeWidth) ++effects[first_word(line.substr(kTimeWidth))];
      jumps += line.find("we stood still") != std::string::npos;
    }
  }
  for (const char* effect :
       {"RequestRound", "Spawn", "WorkerFailed", "Stop", "Kill", "ReportStopping", "WatchLeftovers",
        "ReportLeftovers", "SuspendWorkers", "ResumeWorkers", "ForwardSignal", "BackOff", "Note",
        "Finish"}) {
    EXPECT_GT(effects[effect], 20) << effect;
  }
  for (const char* outcome :
       {"success", "failed", "stopped", "spawn_failed", "round_failed", "unkillable"}) {
    EXPECT_GT(outcomes[outcome], 10) << outcome;
  }
  EXPECT_GT(jumps, 10);
  EXPECT_GT(restarted_and_succeeded, 10);
}

TEST(WorkerGroupSim, GivesOneTranscriptForOneSeed) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    EXPECT_EQ(simulate(plan_for(seed)).trace, simulate(plan_for(seed)).trace) << "seed " << seed;
  }
}

}  // namespace
}  // namespace muster::sim
