#include "agent/process/worker_environment.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

RoundView second_node() {
  RoundView round;
  round.node_rank = 1;
  round.nodes = 2;
  round.local_world_size = 3;
  round.base_rank = 2;
  round.world_size = 5;
  round.base_role_rank = 2;
  round.role_world_size = 5;
  round.role = "trainer";
  round.master_addr = "node-1";
  round.master_port = 45678;
  round.restarts = 1;
  round.max_restarts = 3;
  round.start_count = 2;
  round.run_id = "job7";
  round.worker_secret = "\x01\xfe";
  return round;
}

WorkerVariables local_rank_one() {
  WorkerVariables worker;
  worker.local_rank = 1;
  worker.shown_local_rank = 1;
  worker.error_file = "/logs/attempt_1/1/error.json";
  worker.signals_to_handle = "SIGTERM,SIGINT";
  return worker;
}

TEST(WorkerEnvironment, HasTheWholeContractAndNothingElse) {
  const Environment expected = {
      {"GROUP_RANK", "1"},
      {"GROUP_WORLD_SIZE", "2"},
      {"LOCAL_RANK", "1"},
      {"LOCAL_WORLD_SIZE", "3"},
      {"MASTER_ADDR", "node-1"},
      {"MASTER_PORT", "45678"},
      {"MUSTER_START_COUNT", "2"},
      {"MUSTER_WORKER_SECRET", "01fe"},
      {"RANK", "3"},
      {"ROLE_NAME", "trainer"},
      {"ROLE_RANK", "3"},
      {"ROLE_WORLD_SIZE", "5"},
      {"TORCHELASTIC_ERROR_FILE", "/logs/attempt_1/1/error.json"},
      {"TORCHELASTIC_MAX_RESTARTS", "3"},
      {"TORCHELASTIC_RESTART_COUNT", "1"},
      {"TORCHELASTIC_RUN_ID", "job7"},
      {"TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT"},
      {"TORCHELASTIC_USE_AGENT_STORE", "False"},
      {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
      {"WORLD_SIZE", "5"},
  };
  EXPECT_EQ(worker_environment({}, second_node(), local_rank_one()), expected);
}

TEST(WorkerEnvironment, KeepsInheritedVariablesAndOverwritesItsOwn) {
  const Environment inherited = {{"RANK", "77"}, {"HOME", "/root"}, {"EMPTY", ""}};
  const Environment result = worker_environment(inherited, second_node(), local_rank_one());
  EXPECT_EQ(result.at("RANK"), "3");
  EXPECT_EQ(result.at("HOME"), "/root");
  EXPECT_EQ(result.at("EMPTY"), "");
}

TEST(WorkerEnvironment, LeavesOutTheTokenOfTheJob) {
  const Environment inherited{{"MUSTER_TOKEN", "secret"}, {"MUSTER_OTHER", "kept"}};
  const Environment result = worker_environment(inherited, second_node(), local_rank_one());
  EXPECT_FALSE(result.contains("MUSTER_TOKEN"));
  EXPECT_EQ(result.at("MUSTER_OTHER"), "kept");
}

TEST(WorkerEnvironment, HasTheRingOfTheWorkerItselfOrNone) {
  const Environment inherited{{"MUSTER_RECORD_FD", "100:1"}};
  WorkerVariables worker = local_rank_one();
  EXPECT_FALSE(worker_environment(inherited, second_node(), worker).contains("MUSTER_RECORD_FD"));
  worker.record_fd = "101:2";
  EXPECT_EQ(worker_environment(inherited, second_node(), worker).at("MUSTER_RECORD_FD"), "101:2");
}

TEST(WorkerEnvironment, PutsThePythonHookBeforeTheUsersPythonPath) {
  WorkerVariables worker = local_rank_one();
  const auto path = [&worker](const Environment& inherited) {
    return worker_environment(inherited, second_node(), worker).at("PYTHONPATH");
  };
  EXPECT_EQ(path({{"PYTHONPATH", "/own:/lib"}}), "/own:/lib");
  worker.python_hook = "/run/7.python";
  EXPECT_EQ(path({{"PYTHONPATH", "/own:/lib"}}), "/run/7.python:/own:/lib");
  // An empty entry would be the current folder.
  EXPECT_EQ(path({{"PYTHONPATH", ""}}), "/run/7.python");
  EXPECT_EQ(path({}), "/run/7.python");
}

TEST(WorkerEnvironment, ChainsTheUsersProfilerBehindThePlugin) {
  WorkerVariables worker = local_rank_one();
  const auto variables = [&worker](const Environment& inherited) {
    Environment result = worker_environment(inherited, second_node(), worker);
    std::erase_if(result,
                  [](const auto& one) { return one.first.find("NCCL_P") == one.first.npos; });
    return result;
  };
  const std::string other = "/run/6.python/libnccl-profiler-muster.so";
  EXPECT_EQ(variables({{"NCCL_PROFILER_PLUGIN", "own"}}),
            (Environment{{"NCCL_PROFILER_PLUGIN", "own"}}));
  // The plugin of an outer muster, which runs this launcher as a worker.
  EXPECT_EQ(variables({{"NCCL_PROFILER_PLUGIN", other}}), Environment{});
  EXPECT_EQ(variables({{"NCCL_PROFILER_PLUGIN", other}, {"MUSTER_NCCL_PROFILER_CHAIN", "own"}}),
            (Environment{{"NCCL_PROFILER_PLUGIN", "own"}}));
  worker.nccl_plugin = "/run/7.python/libnccl-profiler-muster.so";
  EXPECT_EQ(variables({}), (Environment{{"NCCL_PROFILER_PLUGIN", worker.nccl_plugin}}));
  EXPECT_EQ(variables({{"NCCL_PROFILER_PLUGIN", other}}),
            (Environment{{"NCCL_PROFILER_PLUGIN", worker.nccl_plugin}}));
  EXPECT_EQ(variables({{"NCCL_PROFILER_PLUGIN", "own"}}),
            (Environment{{"NCCL_PROFILER_PLUGIN", worker.nccl_plugin},
                         {"MUSTER_NCCL_PROFILER_CHAIN", "own"}}));
}

TEST(WorkerEnvironment, RecordsKernelsOnlyOnRequestAndWithAPlugin) {
  WorkerVariables worker = local_rank_one();
  worker.record_kernels = true;
  const Environment inherited{{"MUSTER_RECORD_KERNELS", "1"}};
  const auto is_set = [&] {
    return worker_environment(inherited, second_node(), worker).contains("MUSTER_RECORD_KERNELS");
  };
  EXPECT_FALSE(is_set());
  worker.nccl_plugin = "/run/7.python/libnccl-profiler-muster.so";
  EXPECT_TRUE(is_set());
  worker.record_kernels = false;
  EXPECT_FALSE(is_set());
}

TEST(WorkerEnvironment, NamesInterfacesUnlessTheUserNamedThem) {
  WorkerVariables worker = local_rank_one();
  worker.gloo_interface = "eth1";
  worker.nccl_interface = "=eth1";
  const Environment result =
      worker_environment({{"NCCL_SOCKET_IFNAME", "ib0"}}, second_node(), worker);
  EXPECT_EQ(result.at("GLOO_SOCKET_IFNAME"), "eth1");
  EXPECT_EQ(result.at("NCCL_SOCKET_IFNAME"), "ib0");
}

TEST(WorkerEnvironment, KeepsTheUsersErrorHandlingAndThreads) {
  const Environment inherited = {{"TORCH_NCCL_ASYNC_ERROR_HANDLING", "0"},
                                 {"OMP_NUM_THREADS", "7"}};
  WorkerVariables worker = local_rank_one();
  worker.omp_num_threads = 2;
  const Environment result = worker_environment(inherited, second_node(), worker);
  EXPECT_EQ(result.at("TORCH_NCCL_ASYNC_ERROR_HANDLING"), "0");
  EXPECT_EQ(result.at("OMP_NUM_THREADS"), "7");
}

TEST(WorkerEnvironment, SetsThreadsTimerAndStoreIfTheyApply) {
  WorkerVariables worker = local_rank_one();
  worker.omp_num_threads = 2;
  worker.timer_file = "/tmp/timer";
  RoundView round = second_node();
  round.agent_store = true;
  const Environment result = worker_environment({}, round, worker);
  EXPECT_EQ(result.at("OMP_NUM_THREADS"), "2");
  EXPECT_EQ(result.at("TORCHELASTIC_TIMER_FILE"), "/tmp/timer");
  EXPECT_EQ(result.at("TORCHELASTIC_USE_AGENT_STORE"), "True");
}

TEST(WorkerEnvironment, SetsOrRemovesDeviceVariables) {
  const Environment inherited = {{"CUDA_VISIBLE_DEVICES", "0,1"}, {"HIP_VISIBLE_DEVICES", "0"}};
  WorkerVariables worker = local_rank_one();
  worker.shown_local_rank = 0;
  worker.device_variables = {{"CUDA_VISIBLE_DEVICES", "1"}, {"HIP_VISIBLE_DEVICES", std::nullopt}};
  const Environment result = worker_environment(inherited, second_node(), worker);
  EXPECT_EQ(result.at("CUDA_VISIBLE_DEVICES"), "1");
  EXPECT_FALSE(result.contains("HIP_VISIBLE_DEVICES"));
  EXPECT_EQ(result.at("LOCAL_RANK"), "0");
  EXPECT_EQ(result.at("RANK"), "3");  // Follows from the real local rank.
}

TEST(WorkerEnvironment, BecomesStringsForExecve) {
  EXPECT_EQ(environment_strings({{"B", "2=3"}, {"A", ""}}),
            (std::vector<std::string>{"A=", "B=2=3"}));
}

}  // namespace
}  // namespace muster
