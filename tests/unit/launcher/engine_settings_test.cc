#include "launcher/engine_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rendezvous/backends/job_ports.h"
#include "tests/unit/launcher/command_line_samples.h"
#include "tests/unit/launcher/engines/engine_environments.h"

namespace muster {
namespace {

Environment slurm_with_gpus() {
  Environment environment = slurm_two_nodes();
  environment["SLURM_GPUS_ON_NODE"] = "8";
  return environment;
}

LaunchSpec launched(const Words& flags, const Environment& environment) {
  return spec_despite_warnings(flags, environment);
}

std::string line_taken(const Words& flags, const Environment& environment) {
  const Words warnings = warnings_of(flags, environment);
  return warnings.empty() ? "" : warnings.front();
}

// ---- without a flag

TEST(EngineSettings, NodesMeetByTheFactsOfTheEngine) {
  const LaunchSpec spec = launched({}, slurm_with_gpus());
  EXPECT_EQ(spec.nproc_per_node, "8");
  const RendezvousSpec& nodes = spec.rendezvous;
  EXPECT_EQ(nodes.nnodes_min, 2);
  EXPECT_EQ(nodes.nnodes_max, 2);
  EXPECT_EQ(nodes.node_rank, 1);
  EXPECT_EQ(nodes.id, "slurm-1.0.0");
  EXPECT_EQ(nodes.endpoint_host, "node1");
  const auto ports = ports_of_job("slurm-1.0.0");
  EXPECT_EQ(nodes.ports_of_node_0, std::vector<uint16_t>(ports.begin(), ports.end()));
  EXPECT_EQ(spec.task, std::nullopt);
  EXPECT_EQ(line_taken({}, slurm_with_gpus()),
            "Slurm 1.0: node 1 of 2, 8 workers (SLURM_GPUS_ON_NODE), host node1");
}

TEST(EngineSettings, ATaskThatSharesItsNodeHasItsPlace) {
  const LaunchSpec spec = launched({}, slurm_four_tasks());
  EXPECT_EQ(spec.nproc_per_node, "1");
  EXPECT_EQ(spec.rendezvous.nnodes_max, 4);
  EXPECT_EQ(spec.rendezvous.node_rank, 3);
  EXPECT_EQ(spec.task, (TaskPlace{.local_rank = 3, .local_size = 4}));
  EXPECT_EQ(line_taken({}, slurm_four_tasks()), "") << "only rank 0 prints it";
  Environment first = slurm_four_tasks();
  first["SLURM_PROCID"] = first["SLURM_LOCALID"] = "0";
  EXPECT_EQ(line_taken({}, first),
            "Slurm 2.0: 4 ranks (SLURM_STEP_NUM_TASKS), 4 of them on this node, host node1");
}

TEST(EngineSettings, ASingleTaskIsAJobOfOneNodeWithItsGpus) {
  LaunchSpec alone = spec_of({});
  alone.engine = engine_of_slurm("2");
  alone.shutdown_timeout_s = 25;
  EXPECT_EQ(spec_of({}, slurm_one_task()), alone);
  Environment environment = slurm_one_task();
  environment["SLURM_GPUS_ON_NODE"] = "2";
  EXPECT_EQ(launched({}, environment).nproc_per_node, "2");
  EXPECT_EQ(line_taken({}, environment), "Slurm 2.0: 2 workers (SLURM_GPUS_ON_NODE)");
}

TEST(EngineSettings, ATimeLimitAndAQueueNeedSlurm) {
  EXPECT_EQ(launched({"--notice-before", "90"}, slurm_one_task()).notice_before_s, 90);
  EXPECT_EQ(launched({"--requeue"}, slurm_one_task()).requeue_max, 1000);
  EXPECT_EQ(launched({"--requeue=2"}, slurm_one_task()).requeue_max, 2);
  EXPECT_EQ(complaint_about({"--requeue=0"}, slurm_one_task()).substr(0, 12), "--requeue 0:");
  for (const char* const flag : {"--requeue", "--notice-before=5"}) {
    const std::string said = complaint_about({flag}, pytorch_job());
    EXPECT_NE(said.find("works in Slurm jobs only"), std::string::npos) << said;
  }
  Environment environment = slurm_one_task();
  environment["SLURM_JOB_END_TIME"] = "1795000000";
  EXPECT_EQ(launched({}, environment).engine.ends_at, 1795000000);
}

// A grace in the variable that torchrun reads is the user's own too.
TEST(EngineSettings, TheGraceIsShorterThanTheEnginesUnlessTheUserSetsIt) {
  EXPECT_EQ(launched({}, pytorch_job()).shutdown_timeout_s, 25);
  EXPECT_EQ(spec_of({}, {{"KUBERNETES_SERVICE_HOST", "10.0.0.1"}}).shutdown_timeout_s, 25);
  EXPECT_EQ(launched({"--shutdown-timeout", "30"}, pytorch_job()).shutdown_timeout_s, 30);
  Environment environment = slurm_one_task();
  environment["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] = "60";
  EXPECT_EQ(launched({}, environment).shutdown_timeout_s, 60);
  EXPECT_EQ(spec_of({}).shutdown_timeout_s, 30);
}

TEST(EngineSettings, APortThatTheEngineHasChosenIsTheOnlyOne) {
  const RendezvousSpec nodes = launched({}, pytorch_job()).rendezvous;
  EXPECT_EQ(nodes.ports_of_node_0, std::vector<uint16_t>{23456});
  EXPECT_EQ(nodes.endpoint_host, "mnist-master-0");
}

TEST(EngineSettings, PmiIsAskedForTheHostIfNoVariableNamesIt) {
  const LaunchSpec spec = launched({}, open_mpi_two_nodes());
  EXPECT_TRUE(spec.rendezvous.ask_pmi);
  EXPECT_EQ(spec.rendezvous.nnodes_max, 3);
  EXPECT_EQ(spec.rendezvous.node_rank, 2);
}

TEST(EngineSettings, AStepIsStartedOnReservedNodes) {
  const auto step = [](const Words& flags) {
    const ParsedCommandLine line = parsed(with_program(flags), slurm_salloc_shell());
    const auto* start = std::get_if<StepToStart>(&line.what);
    return start == nullptr ? std::nullopt : std::optional(*start);
  };
  const ReservedNodes two{{2, "SLURM_JOB_NUM_NODES"}, 1, false};
  EXPECT_EQ(step({}), (StepToStart{two, false}));
  EXPECT_EQ(step({"--nnodes", "1:2"}), (StepToStart{two, true}));
  for (const Words& here : {Words{"--nnodes", "1"},
                            {"--standalone"},
                            {"--engine", "none"},
                            {"--node-rank", "0"},
                            {"--master-addr", "node1"},
                            {"--rdzv-backend", "c10d", "--rdzv-endpoint", "node1"}})
    EXPECT_EQ(step(here), std::nullopt) << here.front();
}

// The muster of the script reports a typing error; that of the step knows the rank of its node.
TEST(EngineSettings, TheLogFolderMayHaveTheRankThatTheEngineGives) {
  const Words ranked{"--log-dir", "{node_rank}", "--nnodes", "1:2"};
  EXPECT_EQ(launched(ranked, slurm_with_gpus()).log.dir, "{node_rank}");
  EXPECT_TRUE(
      std::holds_alternative<StepToStart>(parsed(with_program(ranked), slurm_salloc_shell()).what));
  EXPECT_THAT(complaint_about({"--log-dir", "{node}"}, slurm_salloc_shell()),
              testing::StartsWith("--log-dir {node}: node is not a field"));
}

// ---- beside flags

TEST(EngineSettings, AFlagReplacesItsOwnFact) {
  const Environment environment = slurm_with_gpus();
  EXPECT_EQ(launched({"--nproc-per-node", "2"}, environment).nproc_per_node, "2");
  EXPECT_EQ(launched({"--rdzv-id", "mine"}, environment).rendezvous.id, "mine");
  EXPECT_EQ(launched({"--rdzv-id", "mine"}, environment).rendezvous.ports_of_node_0.front(),
            ports_of_job("slurm-1.0.0").front())
      << "another job may have that name";
  EXPECT_EQ(launched({"--rdzv-id", "mine"}, environment).rendezvous.engine_id, "slurm-1.0.0");
  EXPECT_EQ(launched({"--node-rank", "0"}, environment).rendezvous.node_rank, 0);
  const RendezvousSpec elastic = launched({"--nnodes", "1:2"}, environment).rendezvous;
  EXPECT_EQ(elastic.nnodes_min, 1);
  EXPECT_EQ(elastic.node_rank, 1);
  EXPECT_FALSE(elastic.ports_of_node_0.empty());
}

TEST(EngineSettings, AnEndpointReplacesTheMeetingPlaceOfTheEngine) {
  const RendezvousSpec elsewhere =
      launched({"--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "other:29400"},
               slurm_with_gpus())
          .rendezvous;
  EXPECT_EQ(elsewhere.endpoint_host, "other");
  EXPECT_EQ(elsewhere.node_rank, std::nullopt);
  EXPECT_TRUE(elsewhere.ports_of_node_0.empty());
  const RendezvousSpec by_hand =
      launched({"--nnodes", "2", "--node-rank", "1", "--master-addr", "n"}, slurm_two_nodes())
          .rendezvous;
  EXPECT_EQ(by_hand.backend, "static");
  EXPECT_EQ(by_hand.endpoint_host, "n");
  for (const Words& alone : {Words{"--standalone"}, {"--nnodes", "1"}, {"--engine", "none"}}) {
    EXPECT_EQ(launched(alone, slurm_two_nodes()).rendezvous.nnodes_max, 1) << alone.front();
    EXPECT_EQ(line_taken(alone, slurm_two_nodes()), "") << alone.front();
  }
}

TEST(EngineSettings, SingleNodeJobsAreNeverMadeByAccident) {
  EXPECT_EQ(
      complaint_about({"--rdzv-backend", "c10d", "--rdzv-endpoint", "other"}, slurm_two_nodes()),
      "Slurm 1.0: 2 processes of muster were (SLURM_STEP_NUM_NODES=2) started, each of which would "
      "be a job of its own without --nnodes beside --rdzv-endpoint other: give --nnodes as well, "
      "or "
      "leave both out; --nnodes 1 says that this is meant; --engine none ignores what it says");
}

TEST(EngineSettings, FlagsThatContradictTheTasksAreRefused) {
  EXPECT_EQ(complaint_about({"--nproc-per-node", "8"}, slurm_four_tasks()),
            "--nproc-per-node 8: Slurm 2.0 started 4 tasks on this node, each of which has one "
            "worker; start one task on each node, or leave the flag out");
  EXPECT_EQ(
      complaint_about({"--nnodes", "2:4"}, slurm_four_tasks()),
      "--nnodes 2:4: with several tasks on a node the ranks are the engine's, and their number "
      "is fixed; start one task on each node");
  EXPECT_EQ(complaint_about({"--gpu-binding", "exclusive"}, slurm_four_tasks()).substr(0, 61),
            "--gpu-binding exclusive: with several tasks on a node the eng");
  EXPECT_EQ(
      complaint_about({"--nnodes", "3"}, slurm_two_nodes()),
      "--nnodes 3: Slurm 1.0 started 2 processes of muster (SLURM_STEP_NUM_NODES=2); start as "
      "many as the job has nodes, or leave the flag out");
  EXPECT_EQ(complaint_about({"--nnodes", "3"}, open_mpi_two_nodes()), "no complaint");
  EXPECT_NE(complaint_about({}, {{"PMIX_RANK", "1"}}).find("share a machine"), std::string::npos);
}

TEST(EngineSettings, APodNeedsTheNumberOfPods) {
  Environment pod = indexed_job("2");
  pod["JOBSET_NAME"] = "train";
  EXPECT_EQ(
      complaint_about({}, pod),
      "the JobSet train: JOB_COMPLETION_INDEX=2 says which pod this is, and not how many there "
      "are: set PET_NNODES to the job's number of completions in the pod template, or give "
      "--nnodes; --nnodes 1 says that each is a job of its own; --engine none ignores what it "
      "says");
  const RendezvousSpec nodes = launched({"--nnodes", "4"}, pod).rendezvous;
  EXPECT_EQ(nodes.node_rank, 2);
  EXPECT_EQ(nodes.endpoint_host, "train-0.train");
  pod["PET_NNODES"] = "1";
  EXPECT_EQ(launched({}, pod).rendezvous.nnodes_max, 1);
}

}  // namespace
}  // namespace muster
