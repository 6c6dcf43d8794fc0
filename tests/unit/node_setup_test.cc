#include "agent/node_setup.h"

#include <algorithm>
#include <functional>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/placement/cpu_limit.h"

namespace muster {
namespace {

TEST(NodeSetup, APlainJobAsksForNothingAndSaysNothing) {
  const auto setup = set_up_node(LaunchSpec{}, {}, std::nullopt);
  ASSERT_TRUE(setup);
  EXPECT_EQ(setup->workers, 1);
  EXPECT_EQ(setup->omp_num_threads,
            std::nullopt);  // One worker: the library's own default is right.
  EXPECT_EQ(setup->lines, std::vector<std::string>{});
  EXPECT_EQ(setup->table, "");
}

TEST(NodeSetup, ThreadsAreSharedOutAndSaidOnce) {
  LaunchSpec spec;
  spec.nproc_per_node = "2";
  const auto setup = set_up_node(spec, {}, std::nullopt);
  ASSERT_TRUE(setup);
  const int usable = usable_cores(allowed_cpus(), cgroup_cpu_quota());
  EXPECT_EQ(setup->omp_num_threads, std::max(1, usable / 2));
  ASSERT_EQ(setup->lines.size(), 1u);
  EXPECT_NE(setup->lines[0].find("OMP_NUM_THREADS="), std::string::npos);
}

TEST(NodeSetup, AUsersThreadsStand) {
  LaunchSpec spec;
  spec.nproc_per_node = "2";
  const auto setup = set_up_node(spec, {{"OMP_NUM_THREADS", "3"}}, std::nullopt);
  ASSERT_TRUE(setup);
  EXPECT_EQ(setup->omp_num_threads, std::nullopt);
  EXPECT_EQ(setup->lines, std::vector<std::string>{});
}

TEST(NodeSetup, TheTableHasARowForEachWorker) {
  LaunchSpec spec;
  spec.nproc_per_node = "3";
  spec.placement.report_bindings = true;
  const auto setup = set_up_node(spec, {{"OMP_NUM_THREADS", "3"}}, DeviceReport{});
  ASSERT_TRUE(setup);
  EXPECT_EQ(std::ranges::count(setup->table, '\n'), 4);
}

TEST(NodeSetup, WhatTheMachineLacksIsAnError) {
  LaunchSpec spec;
  spec.nproc_per_node = "gpu";
  const auto setup = set_up_node(spec, {}, DeviceReport{});
  ASSERT_FALSE(setup);
  EXPECT_EQ(setup.error().code, ExitCode::environment);
}

// The limit belongs to the process, so each case runs in one of its own and exits with its verdict.
int in_a_child(const std::function<int()>& work) {
  const pid_t pid = fork();
  if (pid == 0) _exit(work());
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Descriptors, ALowSoftLimitIsRaisedAndTheOldOneReturned) {
  EXPECT_EQ(in_a_child([] {
              const rlimit low{64, 4096};
              setrlimit(RLIMIT_NOFILE, &low);
              const auto inherited = make_room_for_descriptors(100);
              rlimit now{};
              getrlimit(RLIMIT_NOFILE, &now);
              return inherited && *inherited == 64 && now.rlim_cur > 500 ? 0 : 1;
            }),
            0);
}

TEST(Descriptors, AHardLimitThatIsTooLowNamesTheNumberToAskFor) {
  EXPECT_EQ(in_a_child([] {
              const rlimit low{64, 64};
              setrlimit(RLIMIT_NOFILE, &low);
              const auto inherited = make_room_for_descriptors(100);
              const bool named = !inherited && inherited.error().code == ExitCode::environment &&
                                 inherited.error().message.find("ulimit -n ") != std::string::npos;
              return named ? 0 : 1;
            }),
            0);
}

}  // namespace
}  // namespace muster
