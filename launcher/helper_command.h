// Programs of an engine that muster runs for an answer, or for their effect: srun's companions
// squeue and scancel. Blocks, within a limit.
#pragma once

#include <string>
#include <vector>

#include "agent/process/worker_environment.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"

namespace muster {

struct HelperOutcome {
  int exit_code = 0;    // 128 + n for signal n.
  std::string printed;  // On stdout; at most 1 MiB.
};

// Fails with ExitCode::environment if it cannot be started, or takes longer than `limit`, and is
// then killed. Its stderr is ours.
Result<HelperOutcome> run_helper(const std::vector<std::string>& argv,
                                 const Environment& environment, Duration limit);

}  // namespace muster
