#include "launcher/engines/engine.h"

#include <gtest/gtest.h>

#include "tests/unit/launcher/engines/engine_environments.h"

namespace muster {
namespace {

constexpr std::string_view kHostsOfAPod =
    "# Kubernetes-managed hosts file.\n"
    "127.0.0.1\tlocalhost\n"
    "fe00::0\tip6-localnet\n"
    "10.244.1.7\ttrain-2.workers.default.svc.cluster.local\ttrain-2\n";

EngineOutcome found_in(const Environment& environment, std::string_view family = "auto") {
  return find_engine(
      environment,
      [](std::string_view path) {
        return std::string(path == "/etc/hosts" ? kHostsOfAPod : std::string_view());
      },
      family);
}

EngineFacts facts_of(const Environment& environment) {
  const EngineOutcome outcome = found_in(environment);
  EXPECT_TRUE(outcome) << outcome.error();
  EXPECT_TRUE(outcome && *outcome) << "none";
  return outcome && *outcome ? **outcome : EngineFacts{};
}

std::string complaint_of(const Environment& environment) {
  const EngineOutcome outcome = found_in(environment);
  return outcome ? "no complaint" : outcome.error();
}

Environment changed(Environment environment, const Environment& more) {
  for (const auto& [name, value] : more)
    environment[name] = value;
  return environment;
}

// ---- Slurm

TEST(SlurmFacts, DescribeAStepWithATaskOnEachNode) {
  EngineFacts expected;
  expected.name = "Slurm 1.0";
  expected.nodes = {2, "SLURM_STEP_NUM_NODES"};
  expected.node_rank = {1, "SLURM_NODEID"};
  expected.host = "node1";
  expected.job_id = "slurm-1.0.0";
  expected.engine = engine_of_slurm("1");
  expected.kills_after_30_s = true;
  EXPECT_EQ(facts_of(slurm_two_nodes()), expected);
}

TEST(SlurmFacts, SeveralTasksOnANodeAreRanks) {
  EngineFacts facts = facts_of(slurm_five_tasks());
  EXPECT_EQ(facts.nodes, (EngineNumber{5, "SLURM_STEP_NUM_TASKS"}));
  EXPECT_EQ(facts.node_rank, (EngineNumber{4, "SLURM_PROCID"}));
  EXPECT_EQ(facts.task, (TaskPlace{.local_rank = 0, .local_size = 1, .node = 1, .nodes = 2}));
  EXPECT_EQ(facts.workers, std::nullopt);
  facts = facts_of(changed(slurm_four_tasks(), {{"SLURM_CPUS_PER_TASK", "2"}}));
  EXPECT_EQ(facts.task,
            (TaskPlace{.local_rank = 3, .local_size = 4, .node = 0, .nodes = 1, .cpus = 2}));
}

// A step may have fewer nodes than its job.
TEST(SlurmFacts, ComeFromTheStepAndNotFromTheJob) {
  const EngineFacts facts =
      facts_of(changed(slurm_two_nodes(), {{"SLURM_JOB_NODELIST", "node[1-4]"},
                                           {"SLURM_NODELIST", "node[1-4]"},
                                           {"SLURM_NNODES", "4"},
                                           {"SLURM_STEP_NODELIST", "node[3-4]"}}));
  EXPECT_EQ(facts.host, "node3");
  EXPECT_EQ(facts.nodes.value, 2);
}

TEST(SlurmFacts, GiveARequeuedJobAnotherId) {
  EXPECT_EQ(facts_of(changed(slurm_two_nodes(), {{"SLURM_RESTART_COUNT", "3"}})).job_id,
            "slurm-1.0.3");
}

TEST(SlurmFacts, GiveATaskAWorkerForEachOfItsGpus) {
  const auto workers = [](const Environment& more) {
    const auto found = facts_of(changed(slurm_two_nodes(), more)).workers;
    return found ? found->shown() : "none";
  };
  EXPECT_EQ(workers({}), "none");
  EXPECT_EQ(workers({{"CUDA_VISIBLE_DEVICES", "0,1"}}), "none") << "the variable is not Slurm's";
  EXPECT_EQ(workers({{"SLURM_GPUS_ON_NODE", "0"}}), "none");
  EXPECT_EQ(workers({{"SLURM_GPUS_ON_NODE", "8"}}), "SLURM_GPUS_ON_NODE=8");
  EXPECT_EQ(workers({{"SLURM_GPUS_ON_NODE", "4"}, {"CUDA_VISIBLE_DEVICES", "0,1,2,3"}}),
            "SLURM_GPUS_ON_NODE=4");
  EXPECT_EQ(workers({{"SLURM_GPUS_ON_NODE", "4"}, {"CUDA_VISIBLE_DEVICES", "0,3"}}),
            "CUDA_VISIBLE_DEVICES=2");
  EXPECT_EQ(workers({{"SLURM_GPUS_ON_NODE", "4"}, {"ROCR_VISIBLE_DEVICES", "1"}}),
            "ROCR_VISIBLE_DEVICES=1");
  const EngineFacts task = facts_of(
      changed(slurm_four_tasks(), {{"SLURM_GPUS_ON_NODE", "4"}, {"CUDA_VISIBLE_DEVICES", "3"}}));
  EXPECT_TRUE(task.task && task.task->own_gpu);
  EXPECT_EQ(task.workers, std::nullopt);
}

TEST(SlurmFacts, ABatchScriptAndAShellHaveReservedNodes) {
  const auto reserved = [](const Environment& environment) {
    return facts_of(environment).reserved;
  };
  EXPECT_EQ(reserved(slurm_salloc_shell()), (ReservedNodes{{2, "SLURM_JOB_NUM_NODES"}, 1, false}));
  EXPECT_EQ(reserved(changed(slurm_interactive_step(), {{"SLURMD_NODENAME", "node1"}})),
            (ReservedNodes{{2, "SLURM_JOB_NUM_NODES"}, 1, true}));
  EXPECT_EQ(reserved(changed(slurm_batch_script(), {{"SLURMD_NODENAME", "node1"}})),
            (ReservedNodes{{2, "SLURM_JOB_NUM_NODES"}, 1, true}));
  const Environment one{{"SLURM_JOB_NUM_NODES", "1"}, {"SLURM_NNODES", "1"}};
  EXPECT_EQ(reserved(changed(changed(slurm_batch_script(), one), {{"SLURMD_NODENAME", "node1"}})),
            std::nullopt)
      << "this is the only node";
  EXPECT_EQ(reserved(changed(slurm_salloc_shell(), one)),
            (ReservedNodes{{1, "SLURM_JOB_NUM_NODES"}, 1, false}))
      << "the shell may be anywhere";
}

TEST(SlurmFacts, JoinThePartsOfAHeterogeneousJob) {
  const EngineFacts facts = facts_of(slurm_het_tasks());
  EXPECT_EQ(facts.host, "node3");
  EXPECT_EQ(facts.nodes.value, 10);
  EXPECT_EQ(facts.task, (TaskPlace{.local_rank = 0, .local_size = 4, .node = 1, .nodes = 3}));
  const Environment second_part{{"SLURM_STEP_NODELIST", "node[1,4]"},
                                {"SLURM_STEP_NUM_NODES", "2"},
                                {"SLURM_STEP_NUM_TASKS", "2"},
                                {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
                                {"SLURM_NODEID", "0"},
                                {"SLURM_PROCID", "0"}};
  EXPECT_EQ(facts_of(changed(slurm_het_tasks(), second_part)).host, "node1");
  EXPECT_EQ(facts_of(slurm_het_script()).reserved,
            (ReservedNodes{{3, "SLURM_JOB_NUM_NODES"}, 2, true}));
}

// srun -m arbitrary may put task 0 anywhere.
TEST(SlurmFacts, TasksInAnArbitraryOrderAreNotServed) {
  EXPECT_NE(facts_of(changed(slurm_four_tasks(), {{"SLURM_DISTRIBUTION", "arbitrary"}})).unserved,
            "");
  EXPECT_EQ(facts_of(changed(slurm_two_nodes(), {{"SLURM_DISTRIBUTION", "arbitrary"}})).unserved,
            "");
}

// ---- mpirun, mpiexec

TEST(MpiFacts, EachProcessIsARank) {
  EngineFacts expected;
  expected.name = "mpirun of Open MPI";
  expected.nodes = {3, "OMPI_COMM_WORLD_SIZE"};
  expected.node_rank = {2, "OMPI_COMM_WORLD_RANK"};
  expected.ask_pmi = true;
  expected.task = TaskPlace{.local_rank = 0, .local_size = 1, .nodes = 0};
  expected.engine.one_console = true;
  EXPECT_EQ(facts_of(open_mpi_two_nodes()), expected);
  expected.name = "mpiexec";
  expected.nodes = {2, "PMI_SIZE"};
  expected.node_rank = {1, "PMI_RANK"};
  expected.task = TaskPlace{.local_rank = 1, .local_size = 2, .nodes = 0};
  EXPECT_EQ(facts_of(hydra()), expected);
}

TEST(MpiFacts, ALaunchInASlurmJobIsEndedBySlurm) {
  const Environment job{{"SLURM_JOB_ID", "7"}, {"SLURM_RESTART_COUNT", "3"}};
  const EngineFacts facts = facts_of(changed(open_mpi_two_nodes(), job));
  EXPECT_EQ(facts.name, "mpirun of Open MPI");
  EXPECT_EQ(facts.engine, engine_of_slurm("7", 3));
  EXPECT_TRUE(facts.kills_after_30_s);
}

TEST(MpiFacts, AProcessManagerThatPlacesNoProcessIsNotServed) {
  EXPECT_NE(facts_of({{"PMIX_RANK", "1"}}).unserved, "");
  EXPECT_NE(facts_of({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}).unserved, "");
  EXPECT_EQ(found_in({{"PMIX_RANK", "0"}}), EngineOutcome(std::nullopt)) << "it may be alone";
}

// ---- pods

TEST(KubernetesFacts, APyTorchJobCountsPods) {
  EngineFacts expected;
  expected.name = "the PyTorchJob";
  expected.nodes = {4, "WORLD_SIZE"};
  expected.node_rank = {1, "RANK"};
  expected.host = "mnist-master-0";
  expected.port = 23456;
  expected.job_id = "pytorchjob";
  expected.kills_after_30_s = true;
  EXPECT_EQ(facts_of(pytorch_job()), expected);
}

// Variables of a pod may be left over in a user's shell.
TEST(KubernetesFacts, RanksArePodsOnlyInAPod) {
  Environment shell = pytorch_job();
  shell.erase("KUBERNETES_SERVICE_HOST");
  EXPECT_EQ(found_in(shell), EngineOutcome(std::nullopt));
  EngineFacts pod;
  pod.name = "the pod";
  pod.kills_after_30_s = true;
  EXPECT_EQ(facts_of(changed(pytorch_job(), {{"LOCAL_RANK", "0"}})), pod)
      << "a worker of torch's own launchers";
}

TEST(KubernetesFacts, AnIndexedJobNumbersItsPods) {
  EngineFacts expected;
  expected.name = "the Indexed Job train";
  expected.nodes = {0, "JOB_COMPLETION_INDEX"};
  expected.node_rank = {2, "JOB_COMPLETION_INDEX"};
  expected.host = "train-0.workers";
  expected.job_id = "train.0";
  expected.engine.job = "train";
  expected.kills_after_30_s = true;
  EXPECT_EQ(facts_of(indexed_job("2")), expected);
}

TEST(KubernetesFacts, PodsWithoutNamesAreNotServed) {
  const EngineFacts facts = facts_of(indexed_job("1"));  // The hosts are those of pod 2.
  EXPECT_NE(facts.unserved.find("subdomain"), std::string::npos) << facts.unserved;
  EXPECT_NE(facts_of({{"JOB_COMPLETION_INDEX", "1"}, {"HOSTNAME", "another"}}).unserved, "");
}

TEST(KubernetesFacts, AJobSetNumbersThePodsOfItsJobsOneAfterTheOther) {
  const Environment job_set{{"JOB_COMPLETION_INDEX", "1"},
                            {"HOSTNAME", "llm-workers-2-1"},
                            {"JOBSET_NAME", "llm"},
                            {"JOBSET_REPLICATEDJOB_NAME", "workers"},
                            {"JOBSET_REPLICATEDJOB_REPLICAS", "3"},
                            {"JOBSET_JOB_INDEX", "2"},
                            {"JOBSET_RESTART_ATTEMPT", "4"},
                            {"PET_NNODES", "6"}};
  const EngineFacts facts = facts_of(job_set);
  EXPECT_EQ(facts.name, "the JobSet llm");
  EXPECT_EQ(facts.node_rank.value, 5);
  EXPECT_EQ(facts.host, "llm-workers-0-0.llm");
  EXPECT_EQ(facts.job_id, "llm-workers-0.4");
  EXPECT_EQ(facts.engine, (EngineSpec{.job = "llm", .starts = 4}));
  const EngineFacts one = facts_of(changed(job_set, {{"HOSTNAME", "llm-workers-0-1"},
                                                     {"JOBSET_REPLICATEDJOB_REPLICAS", "1"},
                                                     {"JOBSET_JOB_INDEX", "0"}}));
  EXPECT_EQ(one.node_rank.value, 1);
  EXPECT_EQ(one.host, "llm-workers-0-0.llm");
}

// ---- the choice of the engine

TEST(Engine, IsNoneInAPlainShellInAWorkerOrOnRequest) {
  EXPECT_EQ(found_in({}), EngineOutcome(std::nullopt));
  EXPECT_EQ(found_in(changed(slurm_two_nodes(), {{"TORCHELASTIC_RUN_ID", "none"}})),
            EngineOutcome(std::nullopt))
      << "a worker of muster";
  EXPECT_EQ(found_in(slurm_two_nodes(), "none"), EngineOutcome(std::nullopt));
}

TEST(Engine, IsTheOneThatStartedTheProcessLast) {
  EXPECT_EQ(facts_of(changed(slurm_two_nodes(), open_mpi_two_nodes())).name, "mpirun of Open MPI");
  EXPECT_EQ(facts_of(changed(slurm_two_nodes(), hydra())).name, "mpiexec");
  const Environment pmi2{{"PMI_SIZE", "2"}, {"PMI_RANK", "1"}};  // srun --mpi=pmi2
  EXPECT_EQ(facts_of(changed(slurm_two_nodes(), pmi2)).name, "Slurm 1.0");
}

TEST(Engine, IsTheOneThatTheUserNames) {
  const Environment both = changed(slurm_two_nodes(), open_mpi_two_nodes());
  EXPECT_EQ((**found_in(both, "slurm")).name, "Slurm 1.0");
  EXPECT_EQ(found_in(both, "kubernetes").error(),
            "--engine kubernetes: its variables are not set here; give --engine auto");
}

TEST(Engine, SaysWhichVariableIsDamaged) {
  for (const char* junk : {"", "x", "-1", "99999999999999999999", "0"}) {
    EXPECT_EQ(
        complaint_of(changed(slurm_two_nodes(), {{"SLURM_STEP_NUM_NODES", junk}})),
        "SLURM_STEP_NUM_NODES=" + std::string(junk) +
            " is not a number from 1 to 524287: what the engine says of this job cannot be used; "
            "unset it, or give --engine none and the flags about nodes");
  }
  const auto damaged = [](const Environment& environment, const std::string& what) {
    EXPECT_EQ(complaint_of(environment).substr(0, what.size()), what);
  };
  damaged(changed(slurm_two_nodes(), {{"SLURM_NODEID", "2"}}),
          "SLURM_NODEID=2 is not below SLURM_STEP_NUM_NODES=2: ");
  damaged(
      changed(slurm_four_tasks(), {{"SLURM_STEP_TASKS_PER_NODE", "x"}}),
      "SLURM_PROCID, SLURM_LOCALID and SLURM_STEP_TASKS_PER_NODE do not say which task this is");
  damaged(changed(open_mpi_two_nodes(), {{"OMPI_COMM_WORLD_RANK", "3"}}),
          "OMPI_COMM_WORLD_RANK=3 is not below OMPI_COMM_WORLD_SIZE=3: ");
  damaged(changed(pytorch_job(), {{"RANK", "4"}}), "RANK=4 is not below WORLD_SIZE=4: ");
  damaged(indexed_job("x"), "JOB_COMPLETION_INDEX=x is not a number from 0 to 524287: ");
}

}  // namespace
}  // namespace muster
