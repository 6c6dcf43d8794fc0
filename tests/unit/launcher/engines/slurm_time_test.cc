#include <string>

#include <gtest/gtest.h>

#include "launcher/engines/slurm_step_command.h"

namespace muster {
namespace {

TEST(SlurmTime, IsReadAsSqueuePrintsIt) {
  EXPECT_EQ(slurm_seconds("0:07\n"), 7);
  EXPECT_EQ(slurm_seconds("1:02"), 62);
  EXPECT_EQ(slurm_seconds("59:59"), 3599);
  EXPECT_EQ(slurm_seconds("23:59:59"), 86399);
  EXPECT_EQ(slurm_seconds("6-23:00:01"), 6 * 86400 + 23 * 3600 + 1);
  EXPECT_EQ(slurm_seconds("-0:03"), 0) << "the job is over its limit";
}

TEST(SlurmTime, IsNotReadFromOtherText) {
  for (const char* const text :
       {"", "INVALID", "UNLIMITED", "1:2:3:4", "x:1", "1:", "--1", "1-", "99999999999999999999"}) {
    EXPECT_EQ(slurm_seconds(text), std::nullopt) << text;
  }
}

TEST(SlurmTime, AJobMayHaveNoLimit) {
  EXPECT_TRUE(is_unlimited(" UNLIMITED\n"));
  EXPECT_FALSE(is_unlimited("1:00"));
}

// Text as Slurm 22.05 prints it.
TEST(SlurmTime, AJobThatHasToMakeRoomForAnotherIsPreempted) {
  const auto job = [](const std::string& state, const std::string& time) {
    return slurm_job_state("JobId=1 JobName=train JobState=" + state +
                           " Reason=None Dependency=(null) Requeue=1 StartTime=2026-11-27T11:37:57 "
                           "PreemptEligibleTime=2026-11-27T11:37:57 PreemptTime=" +
                           time + " SuspendTime=None\n");
  };
  EXPECT_EQ(job("RUNNING", "2026-11-27T11:37:58"), (SlurmJobState{true, true}));
  EXPECT_EQ(job("RUNNING", "None"), (SlurmJobState{true, false}));
  EXPECT_EQ(job("SIGNALING", "2026-11-27T11:37:58"), (SlurmJobState{true, true}));
  EXPECT_EQ(job("COMPLETING", "2026-11-27T11:37:58"), (SlurmJobState{false, true}));
  EXPECT_EQ(slurm_job_state(""), SlurmJobState{});
}

}  // namespace
}  // namespace muster
