// Runs one of our own hidden device commands in a child and gives up on it in time: a driver that
// hangs costs the caller the limit and no more. The child is killed on expiry; if it sits in the
// kernel and cannot die yet, it stays behind as a zombie for the caller's reaper.
// Blocks the calling thread, so the agent calls it before its loop runs, or on a helper thread; the
// loop itself should spawn the command like any other process and feed the output to
// parse_device_report().
#pragma once

#include <string>
#include <vector>

#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"

namespace muster {

// The child's stdout once it has exited with 0. Fails with ExitCode::environment when it cannot be
// started, fails, or is not done after `limit`. stderr and stdin of the child are /dev/null.
// REQUIRES: argv is not empty; argv[0] is a path.
Result<std::string> run_device_child(const std::vector<std::string>& argv, Duration limit);

}  // namespace muster
