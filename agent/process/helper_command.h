// Runs programs for their output or effect: py-spy, and srun's companions squeue, scancel and
// scontrol. Blocks, within a limit.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "agent/process/worker_environment.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"

namespace muster {

// The destination of a program's stderr: our own, or HelperOutcome::printed.
enum class HelperStderr { ours, printed };

struct HelperOutcome {
  int exit_code = 0;    // 128 + n for signal n.
  std::string printed;  // At most 4 MiB.
};

bool is_executable_file(const std::string& path);

// The first executable regular file called `name` on `path_list`, with a slash; empty: none. An
// empty entry is the current folder, as for a shell.
std::string find_on_path(std::string_view name, std::string_view path_list);

// Looks for the program on PATH unless its name has a slash. Fails with ExitCode::environment if it
// cannot be started, or takes longer than `limit`, after which it is killed.
Result<HelperOutcome> run_helper(const std::vector<std::string>& argv,
                                 const Environment& environment, Duration limit,
                                 HelperStderr complaints = HelperStderr::ours);

}  // namespace muster
