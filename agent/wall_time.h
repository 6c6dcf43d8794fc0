// The time of day, for display and for timestamps in files. It may be set at any time, so instants
// of a job that are compared with each other are of type Instant (rendezvous/base/time.h).
#pragma once

#include <chrono>

namespace muster {

using WallTime = std::chrono::sys_time<std::chrono::nanoseconds>;

}  // namespace muster
