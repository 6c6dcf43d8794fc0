#include "worker_lib/joining/foreign_launcher.h"

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "worker_lib/watch/process_life.h"

namespace muster::worker {
namespace {

using LauncherVariables = std::map<std::string, std::string, std::less<>>;

EnvironmentLookup looking_up(const LauncherVariables& variables) {
  return [variables](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

// ---- which launcher

TEST(ForeignLauncher, IsRecognisedByItsRankVariable) {
  struct Case {
    LauncherVariables variables;
    std::optional<Launcher> launcher;
  };
  const std::vector<Case> cases{
      {{}, {}},
      {{{"OMPI_COMM_WORLD_RANK", "0"}}, Launcher::open_mpi},
      {{{"SLURM_PROCID", "0"}}, Launcher::slurm},
      {{{"PMI_RANK", "0"}}, Launcher::hydra},
      // A step of Slurm started mpirun's daemons, or provides PMI itself.
      {{{"OMPI_COMM_WORLD_RANK", "0"}, {"SLURM_PROCID", "0"}}, Launcher::open_mpi},
      {{{"SLURM_PROCID", "0"}, {"PMI_RANK", "0"}}, Launcher::slurm},
      // The variables of muster and torchrun take precedence.
      {{{"OMPI_COMM_WORLD_RANK", "0"}, {"RANK", "0"}}, {}},
      {{{"PMI_RANK", "0"}, {"WORLD_SIZE", ""}}, {}},
      {{{"SLURM_PROCID", "0"}, {"ENVIRONMENT", "BATCH"}}, {}},
      {{{"SLURM_PROCID", "0"}, {"ENVIRONMENT", "BATCH"}, {"PMI_RANK", "0"}}, Launcher::hydra},
      {{{"SLURM_PROCID", "0"}, {"ENVIRONMENT", "BATCH"}, {"SLURM_STEP_ID", "0"}}, Launcher::slurm},
      {{{"SLURM_PROCID", "0"}, {"ENVIRONMENT", "BATCH"}, {"SLURM_STEPID", "0"}}, Launcher::slurm},
      {{{"SLURM_PROCID", "0"}, {"ENVIRONMENT", "test"}}, Launcher::slurm},
  };
  for (const Case& one : cases) {
    const EnvironmentLookup lookup = looking_up(one.variables);
    const TaskVariables* const names = find_launcher(EnvReader(lookup));
    EXPECT_EQ(names == nullptr ? std::nullopt : std::optional(launcher_of(*names)), one.launcher)
        << one.variables.size() << " variables";
  }
}

// ---- Slurm's lists

TEST(ForeignLauncher, ReadsTheTasksOfANodeFromTheList) {
  const auto tasks = [](const std::string& list, int node) {
    const EnvironmentLookup lookup = looking_up({{"SLURM_TASKS_PER_NODE", list}});
    return slurm_local_size(EnvReader(lookup), node);
  };
  const std::vector<std::optional<int>> expected{2, 2, 2, 1, 7, 7, {}};
  for (int node = 0; node < 7; ++node)
    EXPECT_EQ(tasks("2(x3),1,7(x2)", node), expected[static_cast<size_t>(node)]) << node;
  EXPECT_EQ(tasks("4(x1000000)", 999'999), 4);
  EXPECT_EQ(tasks("3,junk", 0), 3) << "later entries are not needed";
  for (const char* junk : {"", ",", "x", "2(x", "2(x)", "2(x0)", "2(x-1)", "2(x1", "(x2)", "-2",
                           "2(x99999999999)", "99999999999", "2 (x2)"})
    EXPECT_EQ(tasks(junk, 0), std::nullopt) << junk;
}

TEST(ForeignLauncher, UsesTheTasksOfTheStepAndNotOfTheAllocation) {
  const EnvironmentLookup lookup =
      looking_up({{"SLURM_STEP_TASKS_PER_NODE", "1,2"}, {"SLURM_TASKS_PER_NODE", "8(x2)"}});
  EXPECT_EQ(slurm_local_size(EnvReader(lookup), 1), 2);
  const EnvironmentLookup none = looking_up({});
  EXPECT_EQ(slurm_local_size(EnvReader(none), 0), std::nullopt);
}

// ---- one node

TEST(ForeignLauncher, IsOnOneNodeIfTheLauncherCountsNoOther) {
  const auto on_one_node = [](const LauncherVariables& variables, const Identity& self) {
    const EnvironmentLookup lookup = looking_up(variables);
    EnvReader env(lookup);
    return is_on_one_node(env, *find_launcher(env), self);
  };
  Identity self;
  self.world_size = 4;
  self.local_world_size = 4;
  EXPECT_TRUE(on_one_node({{"PMI_RANK", "0"}}, self));
  self.local_world_size = 2;
  EXPECT_FALSE(on_one_node({{"PMI_RANK", "0"}}, self));
  const auto in_slurm = [&](LauncherVariables more) {
    more["SLURM_PROCID"] = "0";
    return on_one_node(more, self);
  };
  EXPECT_TRUE(in_slurm({{"SLURM_STEP_NUM_NODES", "1"}, {"SLURM_NNODES", "2"}}));
  EXPECT_FALSE(in_slurm({{"SLURM_NNODES", "2"}, {"SLURM_JOB_NUM_NODES", "1"}}));
  EXPECT_FALSE(in_slurm({{"SLURM_JOB_NUM_NODES", "2"}}));
  EXPECT_TRUE(in_slurm({}));
  self.node_rank = 1;
  EXPECT_FALSE(in_slurm({}));
}

// ---- the file

std::string derived_file(const LauncherVariables& variables, TaskStarter starter) {
  const EnvironmentLookup lookup = looking_up(variables);
  const auto file = std::get<MeetAtFile>(meeting_file_of(EnvReader(lookup), starter));
  const std::string folder = fmt::format("/tmp/muster-ranks-{}/", geteuid());
  EXPECT_TRUE(file.derived && file.path.starts_with(folder)) << file.path;
  return file.path.substr(folder.size());
}

TEST(ForeignLauncher, NamesTheFileByTheLaunch) {
  EXPECT_EQ(derived_file({{"SLURM_JOB_ID", "77"}, {"SLURM_STEP_ID", "2"}}, TaskStarter::slurm),
            "slurm-77-2");
  EXPECT_EQ(derived_file({{"PMIX_NAMESPACE", "prterun-n1-4@1"},
                          {"OMPI_MCA_ess_base_jobid", "9"},
                          {"PMIX_SERVER_TMPDIR", "/tmp/ompi/pid.12"}},
                         TaskStarter::open_mpi),
            "openmpi-prterun-n1-4@1-pid.12");
  EXPECT_EQ(derived_file({{"OMPI_MCA_ess_base_jobid", "9"}}, TaskStarter::open_mpi), "openmpi-9");
  EXPECT_EQ(derived_file({{"PMIX_NAMESPACE", "a b"}}, TaskStarter::open_mpi), "openmpi-a_b");
}

// A slash in the name would lead to another folder.
TEST(ForeignLauncher, NamesTheFileByTheParentWithoutALaunchId) {
  std::string parent = life_of_process(getppid()).to_string();
  for (char& c : parent) {
    if (c == '/' || c == ' ') c = '_';
  }
  EXPECT_EQ(derived_file({}, TaskStarter::hydra), "hydra-parent-" + parent);
  EXPECT_EQ(derived_file({{"SLURM_JOB_ID", ""}}, TaskStarter::slurm), "slurm-parent-" + parent);
  EXPECT_EQ(derived_file({{"PMIX_SERVER_TMPDIR", "/tmp/x"}}, TaskStarter::open_mpi),
            "openmpi-parent-" + parent)
      << "a folder alone identifies no launch";
}

}  // namespace
}  // namespace muster::worker
