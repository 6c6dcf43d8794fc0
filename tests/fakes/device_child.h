// Runs one of the launcher's hidden device commands in a child with a time limit, so that a hanging
// driver costs the caller no more than that. On expiry the child is killed; if it is in the kernel
// and cannot die yet, it stays behind as a zombie for the caller's reaper. Blocks the calling
// thread, so the agent calls it before its loop runs or on a helper thread; the loop itself should
// spawn the command like any other process and feed the output to parse_device_report().
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
