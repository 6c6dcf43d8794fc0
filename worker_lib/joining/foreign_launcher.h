// The variables by which mpirun, mpiexec and srun describe the processes that they start. The
// variables are parameters; meeting_file_of() also reads this process's parent and user.
#pragma once

#include <string_view>

#include "rendezvous/base/env_reader.h"
#include "rendezvous/base/task_variables.h"
#include "worker_lib/joining/identity.h"

namespace muster::worker {

// Those of the launcher that started this process; null if the contract's own variables are set, or
// none.
const TaskVariables* find_launcher(const EnvReader& env);

Launcher launcher_of(const TaskVariables& names);
// How the user sets environment variables for all ranks.
std::string_view how_to_set(const TaskVariables& names);

// Whether all ranks are on this node, as far as the launcher tells.
bool is_on_one_node(EnvReader& env, const TaskVariables& names, const Identity& self);

// A file that the ranks of one launch on one node, and no others, derive without communication.
MeetingPoint meeting_file_of(const EnvReader& env, TaskStarter starter);

}  // namespace muster::worker
