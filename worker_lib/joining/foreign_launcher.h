// The variables by which mpirun, mpiexec and srun describe the processes that they start. The
// variables are parameters; meeting_file_of() also reads this process's parent and user.
#pragma once

#include <optional>
#include <string_view>

#include "worker_lib/joining/env_reader.h"
#include "worker_lib/joining/identity.h"

namespace muster::worker {

// Variable names of launchers other than muster. An empty name: the launcher does not set it.
struct LauncherNames {
  Launcher launcher;
  std::string_view rank;
  std::string_view size;
  std::string_view local_rank;
  std::string_view local_size;
  std::string_view node_rank;
  std::string_view how_to_set;  // Environment variables for all ranks.
};

// The launcher that started this process; null if the contract's own variables are set, or none.
const LauncherNames* find_launcher(const EnvReader& env);

// The tasks on `node`, from Slurm's list of tasks for each node: "2(x3),1" is 2,2,2,1.
std::optional<int> slurm_local_size(const EnvReader& env, int node);

// Whether all ranks are on this node, as far as the launcher tells.
bool is_on_one_node(EnvReader& env, const LauncherNames& names, const Identity& self);

// A file that the ranks of one launch on one node, and no others, derive without communication.
MeetingPoint meeting_file_of(const EnvReader& env, Launcher launcher);

}  // namespace muster::worker
