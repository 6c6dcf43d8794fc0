// Programs that muster runs for an answer, or for their effect: py-spy, and srun's companions
// squeue, scancel and scontrol. Blocks, within a limit.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "agent/process/worker_environment.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"

namespace muster {

// Where a program's complaints go: to ours, or to what it printed.
enum class HelperStderr { ours, printed };

struct HelperOutcome {
  int exit_code = 0;    // 128 + n for signal n.
  std::string printed;  // At most 4 MiB.
};

bool is_executable_file(const std::string& path);

// The first executable regular file called `name` on `path_list`; empty: none. An empty entry is
// the current folder, as for a shell. The result always has a slash.
std::string find_on_path(std::string_view name, std::string_view path_list);

// A program with a slash in its name is that file; others are looked for on PATH.
// Fails with ExitCode::environment if it cannot be started, or takes longer than `limit`, and is
// then killed.
Result<HelperOutcome> run_helper(const std::vector<std::string>& argv,
                                 const Environment& environment, Duration limit,
                                 HelperStderr complaints = HelperStderr::ours);

}  // namespace muster
