// The identity of a process, from its options and its environment.
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker_lib/joining/contract_env.h"
#include "worker_lib/joining/job.h"

namespace muster::worker {
namespace {

using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

Outcome<Identity> identity_of(const Variables& variables, const InitOptions& options = {}) {
  return find_identity(options, [&](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(std::string(name));
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

Variables contract_of_rank_5() {
  return {{"RANK", "5"},
          {"WORLD_SIZE", "8"},
          {"LOCAL_RANK", "1"},
          {"LOCAL_WORLD_SIZE", "4"},
          {"GROUP_RANK", "1"},
          {"GROUP_WORLD_SIZE", "2"},
          {"MASTER_ADDR", "node0"},
          {"MASTER_PORT", "29500"},
          {"TORCHELASTIC_USE_AGENT_STORE", "True"},
          {"TORCHELASTIC_RESTART_COUNT", "3"},
          {"TORCHELASTIC_RUN_ID", "job-7"}};
}

Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more)
    variables[name] = value;
  return variables;
}

Variables without(Variables variables, const std::vector<std::string>& names) {
  for (const std::string& name : names)
    variables.erase(name);
  return variables;
}

TEST(WorkerEnv, ReadsTheWholeContract) {
  const Outcome<Identity> self = identity_of(contract_of_rank_5());
  ASSERT_TRUE(self.has_value()) << self.error().message;
  Identity expected;
  expected.rank = 5;
  expected.world_size = 8;
  expected.local_rank = 1;
  expected.local_world_size = 4;
  expected.node_rank = 1;
  expected.place_told = {.local_rank = true, .local_world_size = true, .node_rank = true};
  expected.restart_count = 3;
  expected.run_id = "job-7";
  expected.launcher = Launcher::contract;
  expected.meeting_point = MeetAtAddress{"node0", 29500, true};
  EXPECT_EQ(*self, expected);
}

TEST(WorkerEnv, NeedsOnlyFourVariables) {
  const Outcome<Identity> self = identity_of(
      {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29500"}});
  ASSERT_TRUE(self.has_value()) << self.error().message;
  EXPECT_EQ(self->local_rank, 0);
  EXPECT_EQ(self->local_world_size, 1);
  EXPECT_EQ(self->restart_count, 0);
  EXPECT_EQ(self->meeting_point, MeetingPoint(MeetAtAddress{"10.0.0.1", 29500, false}));
}

TEST(WorkerEnv, AnEmptyEnvironmentIsAWorldOfOne) {
  const Outcome<Identity> self = identity_of({});
  ASSERT_TRUE(self.has_value());
  EXPECT_EQ(*self, Identity());
  EXPECT_EQ(self->meeting_point, MeetingPoint(MeetNobody{}));
}

// `nodes` has one letter for each rank, the name of its node.
Members world_on(const std::string& nodes) {
  Members world;
  for (size_t rank = 0; rank < nodes.size(); ++rank) {
    world.peers.push_back(
        {GlobalRank{static_cast<int>(rank)}, std::string(1, nodes[rank]), "host", 100, ""});
  }
  return world;
}

std::string place_of(Identity self, const std::string& nodes) {
  complete_place(self, world_on(nodes));
  return fmt::format("{} of {} on {}", self.local_rank, self.local_world_size, self.node_rank);
}

TEST(WorkerEnv, APlaceThatIsSetIsKept) {
  const InitOptions by_hand{
      .init_method = "tcp://node0:29500", .rank = 2, .world_size = 4, .local_rank = 3};
  Outcome<Identity> self = identity_of({}, by_hand);
  ASSERT_TRUE(self.has_value()) << self.error().message;
  EXPECT_EQ(place_of(*self, "xyyx"), "3 of 2 on 1");
  self = identity_of({{"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "1"}},
                     {.init_method = "file:///tmp/m", .rank = 2, .world_size = 4});
  ASSERT_TRUE(self.has_value()) << self.error().message;
  EXPECT_EQ(place_of(*self, "xyyx"), "0 of 1 on 1");
  self = identity_of(contract_of_rank_5());
  ASSERT_TRUE(self.has_value()) << self.error().message;
  EXPECT_EQ(place_of(*self, "xxxxxxxx"), "1 of 4 on 1");
}

// Each of two hosts has a launcher of its own, whose ranks join one world by themselves.
TEST(WorkerEnv, ByAddressOrFileTheNodeRankFollowsFromTheHosts) {
  for (const char* method : {"tcp://node0:29500", "file:///tmp/m"}) {
    Outcome<Identity> self = identity_of({{"GROUP_RANK", "0"},
                                          {"GROUP_WORLD_SIZE", "1"},
                                          {"LOCAL_RANK", "1"},
                                          {"LOCAL_WORLD_SIZE", "2"}},
                                         {.init_method = method, .rank = 3, .world_size = 4});
    ASSERT_TRUE(self.has_value()) << self.error().message;
    EXPECT_EQ(place_of(*self, "xxyy"), "1 of 2 on 1") << method;
  }
}

TEST(WorkerEnv, AWorldOfOneNeedsNoMeetingPoint) {
  const Outcome<Identity> self = identity_of({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  ASSERT_TRUE(self.has_value()) << self.error().message;
  EXPECT_EQ(self->meeting_point, MeetingPoint(MeetNobody{}));
}

TEST(WorkerEnv, AWorldOfOneUnderAnAgentMeetsTheAgent) {
  const Outcome<Identity> self = identity_of({{"RANK", "0"},
                                              {"WORLD_SIZE", "1"},
                                              {"MASTER_ADDR", "localhost"},
                                              {"MASTER_PORT", "4242"},
                                              {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  ASSERT_TRUE(self.has_value()) << self.error().message;
  EXPECT_EQ(self->meeting_point, MeetingPoint(MeetAtAddress{"localhost", 4242, true}));
}

struct WrongEnvironment {
  Variables variables;
  std::string expected;
};

// The other variables are valid in each.
std::vector<WrongEnvironment> wrong_environments() {
  const Variables good = contract_of_rank_5();
  const std::string help =
      "with init_method env:// a rank needs RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; start "
      "the program with muster, or set all four";
  return {
      {without(good, {"WORLD_SIZE"}), "WORLD_SIZE is not set: " + help},
      {without(good, {"RANK"}), "RANK is not set: " + help},
      {without(good, {"MASTER_ADDR"}), "MASTER_ADDR is not set: " + help},
      {without(good, {"MASTER_PORT"}), "MASTER_PORT is not set: " + help},
      {without(good, {"MASTER_ADDR", "MASTER_PORT"}),
       "MASTER_ADDR and MASTER_PORT are not set: " + help},
      {{{"RANK", "0"}}, "WORLD_SIZE, MASTER_ADDR and MASTER_PORT are not set: " + help},
      {{{"WORLD_SIZE", "1"}}, "RANK, MASTER_ADDR and MASTER_PORT are not set: " + help},
      {with(good, {{"RANK", "x"}}), "RANK=x is not a number of at least 0"},
      {with(good, {{"RANK", ""}}), "RANK= is not a number of at least 0"},
      {with(good, {{"RANK", "-1"}}), "RANK=-1 is not a number of at least 0"},
      {with(good, {{"RANK", "1.5"}}), "RANK=1.5 is not a number of at least 0"},
      {with(good, {{"RANK", " 1"}}), "RANK= 1 is not a number of at least 0"},
      {with(good, {{"RANK", "99999999999"}}), "RANK=99999999999 is not a number of at least 0"},
      {with(good, {{"RANK", "8"}}), "RANK=8 is not below WORLD_SIZE=8"},
      {with(good, {{"WORLD_SIZE", "0"}}), "WORLD_SIZE=0 is not a number of at least 1"},
      {with(good, {{"WORLD_SIZE", "5"}}), "RANK=5 is not below WORLD_SIZE=5"},
      {with(good, {{"LOCAL_RANK", "4"}}), "LOCAL_RANK=4 is not below LOCAL_WORLD_SIZE=4"},
      {with(good, {{"LOCAL_RANK", "one"}}), "LOCAL_RANK=one is not a number of at least 0"},
      {with(good, {{"LOCAL_WORLD_SIZE", "9"}}), "LOCAL_WORLD_SIZE=9 is more than WORLD_SIZE=8"},
      {with(good, {{"GROUP_RANK", "2"}}), "GROUP_RANK=2 is not below GROUP_WORLD_SIZE=2"},
      {with(good, {{"MASTER_PORT", "http"}}), "MASTER_PORT=http is not a number from 1 to 65535"},
      {with(good, {{"MASTER_PORT", "0"}}), "MASTER_PORT=0 is not a number from 1 to 65535"},
      {with(good, {{"MASTER_PORT", "65536"}}), "MASTER_PORT=65536 is not a number from 1 to 65535"},
      {with(good, {{"MASTER_ADDR", ""}}),
       "MASTER_ADDR is empty: it must be the address or the name of rank 0's host"},
      {with(good, {{"TORCHELASTIC_USE_AGENT_STORE", "maybe"}}),
       "TORCHELASTIC_USE_AGENT_STORE=maybe is neither True nor False"},
      {with(good, {{"TORCHELASTIC_RESTART_COUNT", "two"}}),
       "TORCHELASTIC_RESTART_COUNT=two is not a number of at least 0"},
      {{{"LOCAL_RANK", "junk"}}, "LOCAL_RANK=junk is not a number of at least 0"},
  };
}

TEST(WorkerEnv, NamesWrongMissingAndContradictoryVariables) {
  size_t checked = 0;
  for (const WrongEnvironment& wrong : wrong_environments()) {
    const Outcome<Identity> self = identity_of(wrong.variables);
    ASSERT_FALSE(self.has_value()) << "accepted, but should be: " << wrong.expected;
    EXPECT_EQ(self.error().code, ErrorCode::environment);
    EXPECT_EQ(self.error().message, wrong.expected);
    ++checked;
  }
  RecordProperty("environments", static_cast<int>(checked));
  std::printf("%zu wrong environments\n", checked);
}

TEST(WorkerEnv, RefusesAWrongVariableInAWorldOfOne) {
  const Outcome<Identity> self = identity_of(
      {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "junk"}});
  ASSERT_FALSE(self.has_value());
  EXPECT_EQ(self.error().message, "MASTER_PORT=junk is not a number from 1 to 65535");
}

TEST(WorkerEnv, OptionsOverrideVariables) {
  InitOptions options;
  options.rank = 2;
  options.world_size = 3;
  options.local_rank = 2;
  const Outcome<Identity> self = identity_of({{"RANK", "0"},
                                              {"WORLD_SIZE", "8"},
                                              {"LOCAL_RANK", "0"},
                                              {"MASTER_ADDR", "a"},
                                              {"MASTER_PORT", "1"}},
                                             options);
  ASSERT_TRUE(self.has_value()) << self.error().message;
  EXPECT_EQ(self->rank, 2);
  EXPECT_EQ(self->world_size, 3);
  EXPECT_EQ(self->local_rank, 2);
}

TEST(WorkerEnv, AnOptionMayContradictAVariable) {
  InitOptions options;
  options.rank = 4;
  const Outcome<Identity> self =
      identity_of({{"WORLD_SIZE", "4"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}, options);
  ASSERT_FALSE(self.has_value());
  EXPECT_EQ(self.error().message, "RANK=4 is not below WORLD_SIZE=4");
}

// ---- options

TEST(WorkerEnv, RefusesWrongOptions) {
  struct Case {
    InitOptions options;
    std::string expected;
  };
  using std::chrono::milliseconds;
  const std::vector<Case> cases{
      {{.rank = -1}, "InitOptions::rank is -1: it must be 0 or more"},
      {{.world_size = 0}, "InitOptions::world_size is 0: it must be 1 or more"},
      {{.rank = 2, .world_size = 2}, "InitOptions::rank 2 is not below InitOptions::world_size 2"},
      {{.local_rank = -3}, "InitOptions::local_rank is -3: it must be 0 or more"},
      {{.timeout = milliseconds(0)}, "InitOptions::timeout is 0 ms: it must be more than 0"},
      {{.device = -1}, "InitOptions::device is -1: it must be 0 or more"},
      {{.init_method = "udp://x:1"},
       "init_method udp://x:1: choose env://, tcp://HOST:PORT or file:///PATH"},
      {{.init_method = "tcp://x"},
       "init_method tcp://x: it must be tcp://HOST:PORT with a port from 1 to 65535"},
      {{.init_method = "tcp://:29500"},
       "init_method tcp://:29500: it must be tcp://HOST:PORT with a port from 1 to 65535"},
      {{.init_method = "tcp://x:0"},
       "init_method tcp://x:0: it must be tcp://HOST:PORT with a port from 1 to 65535"},
      {{.init_method = "tcp://x:70000"},
       "init_method tcp://x:70000: it must be tcp://HOST:PORT with a port from 1 to 65535"},
      {{.init_method = "file://relative"},
       "init_method file://relative: it must be file:///PATH with the absolute path of a file that "
       "all ranks can access"},
      {{.init_method = "tcp://x:1"},
       "init_method tcp://x:1: InitOptions::rank and InitOptions::world_size must be given"},
      {{.init_method = "tcp://x:1", .rank = 0},
       "init_method tcp://x:1: InitOptions::world_size must be given"},
      {{.init_method = "file:///x", .world_size = 1},
       "init_method file:///x: InitOptions::rank must be given"},
  };
  for (const Case& each : cases) {
    const Outcome<Identity> self = identity_of({}, each.options);
    ASSERT_FALSE(self.has_value()) << "accepted, but should be: " << each.expected;
    EXPECT_EQ(self.error().code, ErrorCode::invalid_argument) << each.expected;
    EXPECT_EQ(self.error().message, each.expected);
  }
  std::printf("%zu wrong options\n", cases.size());
}

TEST(WorkerEnv, ATcpMethodNamesTheMeetingPoint) {
  InitOptions options{.init_method = "tcp://[fd00::1]:4242", .rank = 1, .world_size = 2};
  Outcome<Identity> self = identity_of({{"LOCAL_RANK", "1"}}, options);
  ASSERT_TRUE(self.has_value()) << self.error().message;
  EXPECT_EQ(self->meeting_point, MeetingPoint(MeetAtAddress{"fd00::1", 4242, false}));
  EXPECT_EQ(self->launcher, Launcher::none);
  EXPECT_EQ(self->local_rank, 1);
  options.init_method = "tcp://node0.cluster:29500";
  self = identity_of({}, options);
  ASSERT_TRUE(self.has_value()) << self.error().message;
  EXPECT_EQ(self->meeting_point, MeetingPoint(MeetAtAddress{"node0.cluster", 29500, false}));
}

TEST(WorkerEnv, ExplicitMethodsIgnoreALaunchersMeetingPoint) {
  const InitOptions options{.init_method = "file:///shared/x", .rank = 0, .world_size = 2};
  const Outcome<Identity> self = identity_of(contract_of_rank_5(), options);
  ASSERT_TRUE(self.has_value()) << self.error().message;
  EXPECT_EQ(self->rank, 0);
  EXPECT_EQ(self->world_size, 2);
  EXPECT_EQ(self->meeting_point, MeetingPoint(MeetAtFile{"/shared/x", false}));
}

TEST(WorkerEnv, TheAddressOfTheAgentsStoreIsKnownToBeServed) {
  InitOptions options{.init_method = "tcp://node0:29500", .rank = 0, .world_size = 2};
  Outcome<Identity> self = identity_of(contract_of_rank_5(), options);
  ASSERT_TRUE(self.has_value()) << self.error().message;
  EXPECT_EQ(self->meeting_point, MeetingPoint(MeetAtAddress{"node0", 29500, true}));
  EXPECT_EQ(self->restart_count, 3);
  options.init_method = "tcp://node0:29501";
  self = identity_of(contract_of_rank_5(), options);
  ASSERT_TRUE(self.has_value()) << self.error().message;
  EXPECT_EQ(self->meeting_point, MeetingPoint(MeetAtAddress{"node0", 29501, false}));
}

// ---- other launchers

Variables open_mpi_on_one_node() {
  return {{"OMPI_COMM_WORLD_RANK", "1"},       {"OMPI_COMM_WORLD_SIZE", "4"},
          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
          {"PMIX_NAMESPACE", "1644494849"},    {"PMIX_SERVER_TMPDIR", "/tmp/ompi.host.0/pid.3835"}};
}

std::string file_of(const Outcome<Identity>& self) {
  if (!self) return self.error().message;
  const auto* at = std::get_if<MeetAtFile>(&self->meeting_point);
  return at != nullptr && at->derived ? at->path : "no derived file";
}

TEST(WorkerEnv, OpenMpiOnOneNodeMeetsAtAFileOfItsJob) {
  const Outcome<Identity> self = identity_of(open_mpi_on_one_node());
  ASSERT_TRUE(self.has_value()) << self.error().message;
  EXPECT_EQ(self->launcher, Launcher::open_mpi);
  EXPECT_EQ(self->rank, 1);
  EXPECT_EQ(self->world_size, 4);
  EXPECT_EQ(self->local_rank, 1);
  EXPECT_EQ(self->local_world_size, 4);
  EXPECT_THAT(file_of(self), HasSubstr("/openmpi-1644494849-pid.3835"));
}

TEST(WorkerEnv, OpenMpiMeetsAtMasterAddr) {
  const Outcome<Identity> self = identity_of(
      with(open_mpi_on_one_node(), {{"MASTER_ADDR", "node3"}, {"MASTER_PORT", "29500"}}));
  ASSERT_TRUE(self.has_value()) << self.error().message;
  EXPECT_EQ(self->meeting_point, MeetingPoint(MeetAtAddress{"node3", 29500, false}));
}

TEST(WorkerEnv, AnAgentsStoreIsNotTakenFromAnOuterLauncher) {
  const Outcome<Identity> self =
      identity_of(with(open_mpi_on_one_node(), {{"MASTER_ADDR", "node3"},
                                                {"MASTER_PORT", "29500"},
                                                {"TORCHELASTIC_USE_AGENT_STORE", "True"}}));
  ASSERT_TRUE(self.has_value()) << self.error().message;
  EXPECT_EQ(self->meeting_point, MeetingPoint(MeetAtAddress{"node3", 29500, false}));
}

TEST(WorkerEnv, LaunchersWithoutAMeetingPointSayWhatToSet) {
  const Variables two_nodes = with(open_mpi_on_one_node(), {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
  const Variables slurm_two_nodes{
      {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_LOCALID", "0"}, {"SLURM_NNODES", "2"}};
  const std::vector<WrongEnvironment> cases{
      {two_nodes,
       "MASTER_ADDR and MASTER_PORT are not set, and the ranks are on several nodes: mpirun -x "
       "MASTER_ADDR=HOST -x MASTER_PORT=29500, HOST being the node of rank 0"},
      {slurm_two_nodes,
       "MASTER_ADDR and MASTER_PORT are not set, and the ranks are on several nodes: export "
       "MASTER_ADDR=HOST MASTER_PORT=29500 before srun, HOST being the node of rank 0"},
      {with(two_nodes, {{"MASTER_ADDR", "x"}}),
       "MASTER_PORT is not set, but MASTER_ADDR is: set both (mpirun -x MASTER_ADDR=HOST -x "
       "MASTER_PORT=29500), or, on one node, neither"},
      {with(open_mpi_on_one_node(), {{"OMPI_COMM_WORLD_RANK", "4"}}),
       "OMPI_COMM_WORLD_RANK=4 is not below OMPI_COMM_WORLD_SIZE=4"},
      {without(open_mpi_on_one_node(), {"OMPI_COMM_WORLD_SIZE"}),
       "OMPI_COMM_WORLD_RANK is set but OMPI_COMM_WORLD_SIZE is not"},
      {with(open_mpi_on_one_node(), {{"OMPI_COMM_WORLD_LOCAL_RANK", "4"}}),
       "OMPI_COMM_WORLD_LOCAL_RANK=4 is not below OMPI_COMM_WORLD_LOCAL_SIZE=4"},
      {with(slurm_two_nodes, {{"SLURM_PROCID", "none"}}),
       "SLURM_PROCID=none is not a number of at least 0"},
  };
  for (const WrongEnvironment& wrong : cases) {
    const Outcome<Identity> self = identity_of(wrong.variables);
    ASSERT_FALSE(self.has_value()) << "accepted, but should be: " << wrong.expected;
    EXPECT_EQ(self.error().code, ErrorCode::environment);
    EXPECT_EQ(self.error().message, wrong.expected);
  }
}

Variables slurm_step() {
  return {
      {"SLURM_JOB_ID", "77"},   {"SLURM_STEP_ID", "2"},        {"SLURM_PROCID", "3"},
      {"SLURM_NTASKS", "16"},   {"SLURM_STEP_NUM_TASKS", "5"}, {"SLURM_LOCALID", "1"},
      {"SLURM_NODEID", "1"},    {"SLURM_STEP_NUM_NODES", "2"}, {"SLURM_STEP_TASKS_PER_NODE", "2,3"},
      {"MASTER_ADDR", "node0"}, {"MASTER_PORT", "29500"}};
}

TEST(WorkerEnv, ALauncherThatIsNotReadIsNoWorldOfOne) {
  const auto why = [](std::string_view seen) {
    return fmt::format(
        "{} is set, so that this process seems to be one of several, but muster cannot join them "
        "by these variables: set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, start the program "
        "with muster, or say RANK=0 WORLD_SIZE=1",
        seen);
  };
  const std::vector<WrongEnvironment> cases{
      {{{"FLUX_TASK_RANK", "0"}, {"FLUX_JOB_SIZE", "3"}}, why("FLUX_TASK_RANK=0 FLUX_JOB_SIZE=3")},
      {{{"PALS_RANKID", "2"}, {"PALS_LOCAL_RANKID", "2"}}, why("PALS_RANKID=2")},
      {{{"JSM_NAMESPACE_RANK", "1"}, {"JSM_NAMESPACE_SIZE", "2"}},
       why("JSM_NAMESPACE_RANK=1 JSM_NAMESPACE_SIZE=2")},
      {{{"ALPS_APP_PE", "4"}}, why("ALPS_APP_PE=4")},
      {{{"MV2_COMM_WORLD_RANK", "0"}, {"MV2_COMM_WORLD_SIZE", "8"}},
       why("MV2_COMM_WORLD_RANK=0 MV2_COMM_WORLD_SIZE=8")},
      {{{"PMI_ID", "1"}, {"PMI_PORT", "node0:40001"}}, why("PMI_ID=1")},
      {{{"PMIX_RANK", "0"}, {"MASTER_ADDR", "x"}, {"MASTER_PORT", "1"}}, why("PMIX_RANK=0")},
      {{{"PMI_RANK", "1"}, {"PMI_SIZE", "3"}},
       "MASTER_ADDR and MASTER_PORT are not set, and PMI_RANK does not tell that the ranks are on "
       "one node: mpiexec -genv MASTER_ADDR HOST -genv MASTER_PORT 29500, HOST being the node of "
       "rank 0"},
  };
  for (const WrongEnvironment& wrong : cases) {
    const Outcome<Identity> self = identity_of(wrong.variables);
    ASSERT_FALSE(self.has_value()) << "accepted, but should be: " << wrong.expected;
    EXPECT_EQ(self.error().code, ErrorCode::environment);
    EXPECT_EQ(self.error().message, wrong.expected);
  }
  for (const Variables& alone :
       std::vector<Variables>{{{"FLUX_TASK_RANK", "0"}, {"FLUX_JOB_SIZE", "1"}},
                              {{"PALS_RANKID", "0"}, {"RANK", "0"}, {"WORLD_SIZE", "1"}}})
    EXPECT_TRUE(identity_of(alone).has_value());
}

TEST(WorkerEnv, UsesSlurmsStepAndNotItsAllocation) {
  Outcome<Identity> self = identity_of(slurm_step());
  ASSERT_TRUE(self.has_value()) << self.error().message;
  Identity expected;
  expected.rank = 3;
  expected.world_size = 5;
  expected.local_rank = 1;
  expected.local_world_size = 3;
  expected.node_rank = 1;
  expected.place_told = {.local_rank = true, .local_world_size = true, .node_rank = true};
  expected.launcher = Launcher::slurm;
  expected.meeting_point = MeetAtAddress{"node0", 29500, false};
  EXPECT_EQ(*self, expected);
  self = identity_of(with(slurm_step(), {{"SLURM_STEP_TASKS_PER_NODE", "junk"}}));
  ASSERT_TRUE(self.has_value()) << self.error().message;
  expected.local_world_size = 1;
  expected.place_told.local_world_size = false;
  EXPECT_EQ(*self, expected);
}

TEST(WorkerEnv, SlurmOnOneNodeMeetsAtAFileOfItsStep) {
  const Outcome<Identity> self = identity_of(
      without(with(slurm_step(), {{"SLURM_STEP_NUM_NODES", "1"}, {"SLURM_NODEID", "0"}}),
              {"MASTER_ADDR", "MASTER_PORT", "SLURM_STEP_TASKS_PER_NODE"}));
  EXPECT_THAT(file_of(self), HasSubstr("/slurm-77-2"));
  EXPECT_EQ(self->local_world_size, 5);
}

TEST(WorkerEnv, ASlurmBatchScriptIsAWorldOfOne) {
  const Variables batch{{"ENVIRONMENT", "BATCH"},
                        {"SLURM_JOB_ID", "77"},
                        {"SLURM_PROCID", "0"},
                        {"SLURM_NTASKS", "16"},
                        {"SLURM_LOCALID", "0"}};
  const Outcome<Identity> self = identity_of(batch);
  ASSERT_TRUE(self.has_value()) << self.error().message;
  EXPECT_EQ(self->world_size, 1);
  const Outcome<Identity> step = identity_of(with(batch, {{"SLURM_STEP_ID", "0"}}));
  ASSERT_TRUE(step.has_value()) << step.error().message;
  EXPECT_EQ(step->world_size, 16);
}

TEST(WorkerEnv, ReadsHydrasVariables) {
  const Outcome<Identity> self = identity_of(
      {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}});
  ASSERT_TRUE(self.has_value()) << self.error().message;
  EXPECT_EQ(self->launcher, Launcher::hydra);
  EXPECT_EQ(self->rank, 1);
  EXPECT_EQ(self->local_world_size, 2);
  EXPECT_THAT(file_of(self), HasSubstr("/hydra-parent-"));
}

TEST(WorkerEnv, TheContractComesBeforeOtherLaunchers) {
  const Outcome<Identity> self =
      identity_of(with(with(contract_of_rank_5(), open_mpi_on_one_node()), slurm_step()));
  ASSERT_TRUE(self.has_value()) << self.error().message;
  EXPECT_EQ(self->launcher, Launcher::contract);
  EXPECT_EQ(self->rank, 5);
  EXPECT_EQ(self->local_world_size, 4);
}

TEST(WorkerEnv, ReadsTheProcessesOwnEnvironment) {
  EXPECT_EQ(process_environment("MUSTER_TEST_THAT_NOBODY_SETS"), std::nullopt);
  ASSERT_EQ(setenv("MUSTER_TEST_EMPTY", "", 1), 0);
  EXPECT_EQ(process_environment("MUSTER_TEST_EMPTY"), "");
  unsetenv("MUSTER_TEST_EMPTY");
}

}  // namespace
}  // namespace muster::worker
