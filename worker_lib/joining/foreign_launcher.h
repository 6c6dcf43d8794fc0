// The variables by which mpirun, mpiexec and srun describe the processes that they start. They are
// parameters; meeting_file_of() also reads this process's parent and user.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/base/env_reader.h"
#include "rendezvous/base/task_variables.h"
#include "worker_lib/joining/identity.h"

namespace muster::worker {

// Returns this process's launcher's; null if the contract's own variables are set, or none.
const TaskVariables* find_launcher(const EnvReader& env);

// Returns an error for a launcher whose variables say that this process is one of several, or may
// be, but do not let it join; nullopt: no such launcher.
std::optional<std::string> unread_launcher(const EnvReader& env);

Launcher launcher_of(const TaskVariables& names);
// Advice on setting environment variables for all ranks.
std::string_view how_to_set(const TaskVariables& names);

// True if all ranks are on this node, as far as the variables tell.
bool is_on_one_node(EnvReader& env, const TaskVariables& names, const Identity& self);

// Returns a file that only the ranks of one launch on one node derive.
MeetingPoint meeting_file_of(const EnvReader& env, TaskStarter starter);

}  // namespace muster::worker
