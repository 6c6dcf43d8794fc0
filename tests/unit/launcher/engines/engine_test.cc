#include "launcher/engines/engine.h"

#include <gtest/gtest.h>

#include "launcher/engines/lone_world.h"
#include "launcher/engines/node_list.h"
#include "rendezvous/base/slurm_counts.h"
#include "tests/unit/launcher/command_line_samples.h"
#include "tests/unit/launcher/engines/engine_environments.h"

namespace muster {
namespace {

TEST(Engine, TellsAStepOfSlurmByItsOwnVariables) {
  const std::optional<EngineFacts> facts = detect_engine(slurm_two_nodes());
  ASSERT_TRUE(facts);
  EngineFacts expected;
  expected.engine = "Slurm";
  expected.evidence = "SLURM_STEP_NUM_TASKS=2";
  expected.processes = expected.nodes = 2;
  expected.here = 1;
  expected.one_per_node = "srun --ntasks-per-node=1";
  expected.first_host = "node1";
  expected.job_id = "1";
  EXPECT_EQ(*facts, expected);
}

// A step may have fewer nodes than its job.
TEST(Engine, BelievesTheStepAndNotTheJob) {
  Environment environment = slurm_two_nodes();
  environment["SLURM_JOB_NODELIST"] = environment["SLURM_NODELIST"] = "node[1-4]";
  environment["SLURM_STEP_NODELIST"] = "node[3-4]";
  EXPECT_EQ(detect_engine(environment)->first_host, "node3");
  EXPECT_EQ(detect_engine(environment)->nodes, 2);
}

TEST(Engine, SeesNothingWhereOneProcessIsMeant) {
  EXPECT_EQ(detect_engine({}), std::nullopt);
  EXPECT_EQ(detect_engine(slurm_one_task()), std::nullopt);
  EXPECT_EQ(detect_engine(slurm_salloc_shell()), std::nullopt);
  EXPECT_EQ(detect_engine(slurm_interactive_step()), std::nullopt);
  EXPECT_EQ(detect_engine(open_mpi_alone()), std::nullopt);
  Environment pod = pytorch_job();
  pod["WORLD_SIZE"] = "1";
  EXPECT_EQ(detect_engine(pod), std::nullopt);
}

TEST(Engine, SeesNothingInAWorkerOfAnotherLauncher) {
  Environment worker = slurm_two_nodes();
  worker["TORCHELASTIC_RUN_ID"] = "none";
  EXPECT_EQ(detect_engine(worker), std::nullopt);
  Environment rank = pytorch_job();  // As torch's own launchers set it, here without a run id.
  rank["LOCAL_RANK"] = "0";
  EXPECT_EQ(detect_engine(rank), std::nullopt);
}

// Left over in somebody's shell, say.
TEST(Engine, TakesRanksForPodsOnlyInAPod) {
  Environment shell = pytorch_job();
  shell.erase("KUBERNETES_SERVICE_HOST");
  EXPECT_EQ(detect_engine(shell), std::nullopt);
}

TEST(Engine, ReadsJunkAsNothing) {
  for (const char* junk : {"", "x", "-1", "99999999999999999999"}) {
    Environment environment;
    for (const char* name : {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE",
                             "PMI_SIZE", "PMIX_RANK", "JOB_COMPLETION_INDEX", "WORLD_SIZE"})
      environment[name] = junk;
    EXPECT_EQ(detect_engine(environment), std::nullopt) << junk;
  }
}

TEST(Engine, BelievesWhoStartedTheProcessLast) {
  Environment environment = slurm_two_nodes();
  environment.merge(open_mpi_two_nodes());
  EXPECT_EQ(detect_engine(environment)->engine, "Open MPI's mpirun");
  environment = slurm_two_nodes();
  environment.insert({{"PMI_SIZE", "2"}, {"PMI_RANK", "1"}});  // srun --mpi=pmi2
  EXPECT_EQ(detect_engine(environment)->engine, "Slurm");
}

TEST(NodeList, BeginsWithTheFirstHost) {
  const std::map<std::string, std::string> lists{
      {"", ""},
      {"node1", "node1"},
      {"node1,node2", "node1"},
      {"n[1-3,7],gpu[001-004]-ib", "n1"},
      {"gpu[001-004]-ib", "gpu001-ib"},
      {"rack[2,5]node[07-09]x", "rack2node07x"},
      {"n[", "n"},
  };
  for (const auto& [list, host] : lists)
    EXPECT_EQ(first_host_of(list), host) << list;
}

TEST(NodeList, CountsTheTasksOfEachNode) {
  const auto counts = [](std::string_view text) {
    std::vector<int> all;
    for (int node = 0; node < 5; ++node)
      all.push_back(slurm_tasks_on_node(text, node).value_or(0));
    return all;
  };
  using Counts = std::vector<int>;
  EXPECT_EQ(counts("4"), (Counts{4, 0, 0, 0, 0}));
  EXPECT_EQ(counts("1(x2)"), (Counts{1, 1, 0, 0, 0}));
  EXPECT_EQ(counts("2(x3),1"), (Counts{2, 2, 2, 1, 0}));
  EXPECT_EQ(counts("4,1"), (Counts{4, 1, 0, 0, 0}));
  for (const char* junk : {"", "x", ",", "(x2)"})
    EXPECT_EQ(counts(junk), (Counts{0, 0, 0, 0, 0})) << junk;
}

TEST(LoneWorld, IsRefusedWithTheFlagsToGive) {
  const std::string own = " and without --nnodes each of them would be a job of its own: ";
  const std::string meant = "; --nnodes 1 says that this is meant";
  EXPECT_EQ(complaint_about({}, slurm_two_nodes()),
            "Slurm started 2 processes on 2 nodes (SLURM_STEP_NUM_TASKS=2)," + own +
                "give --nnodes 2 --rdzv-backend c10d --rdzv-endpoint node1:29400 --rdzv-id 1" +
                meant);
  EXPECT_EQ(complaint_about({}, slurm_four_tasks()),
            "Slurm started 4 processes on 1 node (SLURM_STEP_NUM_TASKS=4)," + own +
                "start one muster a node (srun --ntasks-per-node=1) with --nproc-per-node 4" +
                meant);
  EXPECT_EQ(complaint_about({}, slurm_five_tasks()),
            "Slurm started 5 processes on 2 nodes (SLURM_STEP_NUM_TASKS=5)," + own +
                "start one muster a node (srun --ntasks-per-node=1) with --nnodes 2 "
                "--rdzv-backend c10d --rdzv-endpoint node1:29400 --rdzv-id 1 --nproc-per-node N" +
                meant);
  EXPECT_EQ(complaint_about({"--nproc-per-node=2"}, open_mpi_two_nodes()),
            "Open MPI's mpirun started 3 processes on 2 nodes (OMPI_COMM_WORLD_SIZE=3)," + own +
                "start one muster a node (mpirun --map-by ppr:1:node --bind-to none) with "
                "--nnodes 2 --rdzv-backend c10d --rdzv-endpoint HOST:29400 --rdzv-id ID" +
                meant);
  EXPECT_EQ(complaint_about({}, hydra()),
            "mpiexec started 2 processes on 1 node (PMI_SIZE=2)," + own +
                "start one muster a node (mpiexec -ppn 1) with --nproc-per-node 2" + meant);
  EXPECT_EQ(complaint_about({}, pytorch_job()),
            "the PyTorchJob started 4 processes on 4 nodes (WORLD_SIZE=4)," + own +
                "give --nnodes 4 --node-rank $RANK --master-addr $MASTER_ADDR --master-port 23456" +
                meant);
  EXPECT_EQ(complaint_about({}, indexed_job("2")),
            "the Indexed Job started at least 3 processes (JOB_COMPLETION_INDEX=2)," + own +
                "give --nnodes N --node-rank $JOB_COMPLETION_INDEX --master-addr train-0.SERVICE "
                "--master-port 29500" +
                meant);
  EXPECT_EQ(complaint_about({}, {{"PMIX_RANK", "1"}}),
            "a process manager started at least 2 processes (PMIX_RANK=1)," + own +
                "start one muster a node with --nnodes N --rdzv-backend c10d --rdzv-endpoint "
                "HOST:29400 --rdzv-id ID --nproc-per-node N" +
                meant);
}

TEST(LoneWorld, IsSaidWhereOneProcessMayBeMeant) {
  EXPECT_EQ(warnings_of({}, slurm_batch_script()),
            Words({"Slurm runs this on the first of 2 nodes only (SLURM_NNODES=2): start it by "
                   "srun --ntasks-per-node=1 with --nnodes 2 --rdzv-backend c10d --rdzv-endpoint "
                   "node1:29400 --rdzv-id 5; --nnodes 1 says that one node is meant"}));
  EXPECT_EQ(warnings_of({}, indexed_job("0")),
            Words({"JOB_COMPLETION_INDEX=0: if the Indexed Job has more pods than this one, each "
                   "of them is a job of its own without --nnodes: give --nnodes N --node-rank "
                   "$JOB_COMPLETION_INDEX --master-addr train-0.SERVICE --master-port 29500; "
                   "--nnodes 1 says that this is meant"}));
}

TEST(LoneWorld, IsTakenForMeantWhereTheUserSaysSo) {
  for (const Environment& engine :
       {slurm_two_nodes(), slurm_four_tasks(), slurm_batch_script(), open_mpi_two_nodes(), hydra(),
        pytorch_job(), indexed_job("0"), indexed_job("2")}) {
    EXPECT_EQ(warnings_of({"--nnodes=1"}, engine), Words{});
    EXPECT_EQ(warnings_of({"--standalone"}, engine), Words{});
    Environment by_variable = engine;
    by_variable["PET_NNODES"] = "1";
    EXPECT_EQ(warnings_of({}, by_variable), Words{});
    const Words nodes{"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=node1:1"};
    EXPECT_EQ(warnings_of(nodes, engine), Words{});
  }
}

TEST(LoneWorld, IsRefusedOnlyAfterWhatIsWrongOnTheCommandLine) {
  EXPECT_EQ(complaint_about({"--nproc-per-node=x"}, slurm_two_nodes()),
            complaint_about({"--nproc-per-node=x"}));
}

}  // namespace
}  // namespace muster
