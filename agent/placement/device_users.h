// Before a restart, the GPU memory of the old processes must be free again, or the new ones fail
// with "out of memory" on a machine that looks idle. This is the pure part: given the pids of the
// last attempt and the driver's report, which processes still hold how much, and a line about it.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "agent/placement/devices.h"

namespace muster {

// Those of `old_pids` (workers of the last attempt and all their descendants) that the driver still
// lists, in its order. The driver lists a dead process until its memory is freed, so an empty
// answer means that it is free. In a container without the host's PID namespace the driver may
// report the host's pids; these match nothing, so nothing waits for them.
std::vector<GpuProcess> remaining_holders(const std::set<int>& old_pids,
                                          std::vector<GpuProcess> users);

// "GPU memory of the last attempt is still held: GPU 0 by pid 12 (3.1 GiB), GPU 1 by pid 13".
// Empty if there are none.
std::string describe_holders(const std::vector<GpuProcess>& holders);

}  // namespace muster
