// Runs one of the launcher's hidden device commands in a child and blocks the calling thread until
// it ends, or kills it at a time limit. A child that cannot die yet, being in the kernel, stays
// behind as a zombie for the caller's reaper. For tests: the agent itself asks by HelperProcess.
#pragma once

#include <string>
#include <vector>

#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"

namespace muster {

// Returns the child's stdout once it has exited with 0. Fails with ExitCode::environment if it
// cannot be started, fails, or does not finish within `limit`. The child's stdin and stderr are
// /dev/null. REQUIRES: argv is not empty; argv[0] is a path.
Result<std::string> run_device_child(const std::vector<std::string>& argv, Duration limit);

}  // namespace muster
