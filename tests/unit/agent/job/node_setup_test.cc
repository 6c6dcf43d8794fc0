#include "agent/job/node_setup.h"

#include <algorithm>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "rendezvous/base/cpu_limit.h"
#include "tests/in_child.h"

namespace muster {
namespace {

using test::exit_code_of_child;

TEST(NodeSetup, APlainJobChangesNothingAndPrintsNothing) {
  const auto setup = set_up_node(LaunchSpec{}, {}, std::nullopt);
  ASSERT_TRUE(setup);
  EXPECT_EQ(setup->workers, 1);
  EXPECT_EQ(setup->omp_num_threads,
            std::nullopt);  // The library's own default suits a single worker.
  EXPECT_EQ(setup->lines, std::vector<std::string>{});
  EXPECT_EQ(setup->table, "");
}

TEST(NodeSetup, ThreadsAreDividedAmongWorkersAndPrintedOnce) {
  LaunchSpec spec;
  spec.nproc_per_node = "2";
  const auto setup = set_up_node(spec, {}, std::nullopt);
  ASSERT_TRUE(setup);
  const int usable = usable_cores();
  EXPECT_EQ(setup->omp_num_threads, std::max(1, usable / 2));
  ASSERT_EQ(setup->lines.size(), 1u);
  EXPECT_NE(setup->lines[0].find("OMP_NUM_THREADS="), std::string::npos);
}

TEST(NodeSetup, TheUsersThreadCountIsKept) {
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

TEST(NodeSetup, AMissingDeviceIsAnError) {
  LaunchSpec spec;
  spec.nproc_per_node = "gpu";
  const auto setup = set_up_node(spec, {}, DeviceReport{});
  ASSERT_FALSE(setup);
  EXPECT_EQ(setup.error().code, ExitCode::environment);
}

TEST(Descriptors, ALowSoftLimitIsRaisedAndTheOldOneReturned) {
  EXPECT_EQ(exit_code_of_child([] {
              const rlimit low{64, 4096};
              setrlimit(RLIMIT_NOFILE, &low);
              const auto inherited = make_room_for_descriptors({.workers = 100});
              rlimit now{};
              getrlimit(RLIMIT_NOFILE, &now);
              return inherited && *inherited == 64 && now.rlim_cur > 500 ? 0 : 1;
            }),
            0);
}

TEST(Descriptors, ATooLowHardLimitIsAnErrorThatNamesTheNeededNumber) {
  EXPECT_EQ(exit_code_of_child([] {
              const rlimit low{64, 64};
              setrlimit(RLIMIT_NOFILE, &low);
              const auto inherited = make_room_for_descriptors({.workers = 100});
              const bool named = !inherited && inherited.error().code == ExitCode::environment &&
                                 inherited.error().message.find("ulimit -n ") != std::string::npos;
              return named ? 0 : 1;
            }),
            0);
}

TEST(Descriptors, NeedsFollowFromTheWorkersOfTheCommandLine) {
  LaunchSpec spec;
  spec.nproc_per_node = "200";
  EXPECT_EQ(DescriptorNeeds::of(spec).workers, 200);
  EXPECT_FALSE(DescriptorNeeds::of(spec).at_most);
  for (const char* word : {"auto", "cpu", "gpu", "xpu"}) {
    spec.nproc_per_node = word;
    EXPECT_GE(DescriptorNeeds::of(spec).workers, static_cast<int>(allowed_cpus().size())) << word;
    EXPECT_TRUE(DescriptorNeeds::of(spec).at_most);
  }
}

TEST(Descriptors, TheNamedNumberIncludesInheritedDescriptors) {
  EXPECT_EQ(exit_code_of_child([] {
              for (int i = 0; i < 40; ++i)
                dup2(STDIN_FILENO, 10 + i);
              const rlimit low{64, 64};
              setrlimit(RLIMIT_NOFILE, &low);
              const auto refused = make_room_for_descriptors({.workers = 2, .at_most = true});
              if (refused) return 1;
              const std::string& text = refused.error().message;
              const rlim_t named = std::stoul(text.substr(text.find("workers need ") + 13));
              return named >= 40 + 40 + 16 ? 0 : 2;
            }),
            0);
}

// `ulimit` cannot raise the hard limit of such a user.
TEST(Descriptors, AnUnprivilegedUserIsAdvisedToHaveTheHardLimitRaised) {
  EXPECT_EQ(exit_code_of_child([] {
              const rlimit low{64, 64};
              setrlimit(RLIMIT_NOFILE, &low);
              if (geteuid() == 0 && seteuid(65534) != 0) return 1;
              const auto refused = make_room_for_descriptors({.workers = 100});
              if (refused) return 2;
              const std::string& text = refused.error().message;
              return text.find("have the hard limit raised to 9") != std::string::npos ? 0 : 3;
            }),
            0);
}

// The host of many nodes serves the store to their workers; it starts even if the limit stays low.
TEST(Descriptors, ConnectionsOfOtherNodesRaiseTheLimitAsFarAsAllowed) {
  for (const auto& one : {std::pair<rlim_t, rlim_t>{8192, 1000}, {512, 512}}) {
    EXPECT_EQ(exit_code_of_child([&one] {
                const rlimit low{256, one.first};
                setrlimit(RLIMIT_NOFILE, &low);
                if (!make_room_for_descriptors({.workers = 8, .other_nodes = 63})) return 1;
                rlimit now{};
                getrlimit(RLIMIT_NOFILE, &now);
                return now.rlim_cur >= one.second ? 0 : 2;
              }),
              0);
  }
}

// connections_beside() reserves all descriptors that the next start of the workers opens.
TEST(Descriptors, ConnectionsLeaveEnoughForTheNextStartOfTheWorkers) {
  EXPECT_EQ(exit_code_of_child([] {
              const rlimit low{128, 128};
              setrlimit(RLIMIT_NOFILE, &low);
              const size_t before = connections_beside(2);
              for (int i = 0; i < 20; ++i) {
                if (fcntl(STDIN_FILENO, F_DUPFD, 3) < 0) return 4;
              }
              if (connections_beside(2) + 20 != before) return 1;
              if (before > 128 - 40 - 6 * 2) return 2;
              // Its own workers, its agent and a few more connect even at the lowest limit.
              return connections_beside(11) >= 3 * 11 + 8 ? 0 : 3;
            }),
            0);
}

}  // namespace
}  // namespace muster
