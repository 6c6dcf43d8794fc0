// Programs of an engine that muster runs for an answer, or for their effect: srun's companions
// squeue, scancel and scontrol. Blocks, within a limit.
#pragma once

#include <string>
#include <vector>

#include "agent/process/worker_environment.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"

namespace muster {

// Where a program's complaints go: to ours, or to what it printed.
enum class HelperStderr { ours, printed };

struct HelperOutcome {
  int exit_code = 0;    // 128 + n for signal n.
  std::string printed;  // At most 1 MiB.
};

// Fails with ExitCode::environment if it cannot be started, or takes longer than `limit`, and is
// then killed.
Result<HelperOutcome> run_helper(const std::vector<std::string>& argv,
                                 const Environment& environment, Duration limit,
                                 HelperStderr complaints = HelperStderr::ours);

}  // namespace muster
