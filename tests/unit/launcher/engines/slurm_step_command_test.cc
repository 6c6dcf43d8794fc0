#include "launcher/engines/slurm_step_command.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace muster {
namespace {

const SlurmStepNames kNames{"/opt/muster", "muster-1", "s3cret"};

StepToStart on_nodes(int nodes, int parts = 1) {
  return {{{nodes, "SLURM_JOB_NUM_NODES"}, parts, true}, false, false};
}

TEST(SlurmStepCommand, StartsATaskOnEachNode) {
  const SlurmStepCommand command = slurm_step_command(
      on_nodes(4), kNames, {"--max-restarts", "1", "train.py"}, {{"HOME", "/h"}});
  EXPECT_EQ(command.text(),
            "srun --job-name=muster-1 --export=ALL --nodes=4 --ntasks=4 --ntasks-per-node=1 "
            "--kill-on-bad-exit=0 --wait=0 /opt/muster --max-restarts 1 train.py");
  EXPECT_EQ(command.environment, (Environment{{"HOME", "/h"}, {"MUSTER_TOKEN", "s3cret"}}));
}

TEST(SlurmStepCommand, KeepsTheNodesOfAnElasticJob) {
  StepToStart step = on_nodes(2);
  step.elastic = true;
  EXPECT_NE(slurm_step_command(step, kNames, {}, {}).text().find(" --no-kill "), std::string::npos);
}

TEST(SlurmStepCommand, HasNoTokenIfTheUserGivesOne) {
  StepToStart step = on_nodes(2);
  EXPECT_EQ(slurm_step_command(step, kNames, {}, {{"MUSTER_TOKEN", "mine"}}).environment,
            (Environment{{"MUSTER_TOKEN", "mine"}}));
  step.token_file = true;
  EXPECT_EQ(slurm_step_command(step, kNames, {}, {}).environment, Environment{});
}

TEST(SlurmStepCommand, AsksForAllGpusOfAJobThatAskedByTask) {
  const Environment by_task{{"SLURM_GPUS_PER_TASK", "2"}, {"SLURM_NTASKS", "8"}};
  const SlurmStepCommand command = slurm_step_command(on_nodes(2), kNames, {}, by_task);
  EXPECT_NE(command.text().find(" --gpus=16 "), std::string::npos) << command.text();
  EXPECT_FALSE(command.environment.contains("SLURM_GPUS_PER_TASK"));
  EXPECT_TRUE(command.environment.contains("SLURM_NTASKS"));
}

TEST(SlurmStepCommand, LeavesOutVariablesOfTheScriptThatSrunTakesAsDefaults) {
  const Environment misleading{{"SLURM_NTASKS_PER_GPU", "1"}, {"SRUN_CPUS_PER_TASK", "1"},
                               {"SLURM_EXACT", "1"},          {"SLURM_DISTRIBUTION", "cyclic"},
                               {"SLURM_HOSTFILE", "/x"},      {"SLURM_LABELIO", "1"}};
  EXPECT_EQ(slurm_step_command(on_nodes(2), kNames, {}, misleading).environment,
            (Environment{{"MUSTER_TOKEN", "s3cret"}}));
}

TEST(SlurmStepCommand, CoversAllPartsOfAHeterogeneousJob) {
  const Environment of_part_0{
      {"SLURM_NTASKS", "2"}, {"SLURM_GPUS_PER_NODE", "1"}, {"SLURM_JOB_ID", "7"}};
  const SlurmStepCommand command = slurm_step_command(on_nodes(3, 2), kNames, {}, of_part_0);
  EXPECT_EQ(command.text(),
            "srun --job-name=muster-1 --export=ALL --het-group=0-1 --ntasks-per-node=1 "
            "--kill-on-bad-exit=0 --wait=0 /opt/muster");
  EXPECT_EQ(command.environment, (Environment{{"MUSTER_TOKEN", "s3cret"}, {"SLURM_JOB_ID", "7"}}));
}

TEST(SlurmStepCommand, IsShownAsItCanBeTyped) {
  const std::string text =
      slurm_step_command(on_nodes(1), kNames, {"sh", "-c", "echo 'a b'", ""}, {}).text();
  EXPECT_TRUE(text.ends_with(" sh -c 'echo '\\''a b'\\''' ''")) << text;
}

TEST(SlurmStepCommand, FindsItsStepByTheName) {
  using Ids = std::vector<std::string>;
  const std::string listing = "17.0 other\n17.3 muster-1\n18.3 muster-1\n17.extern extern\n";
  EXPECT_EQ(step_ids_in(listing, "muster-1"), (Ids{"17.3", "18.3"}));
  EXPECT_EQ(step_ids_in(listing, "muster-2"), Ids{});
  EXPECT_EQ(step_ids_in("", "muster-1"), Ids{});
}

}  // namespace
}  // namespace muster
