// The time of day, for people and for what files say of themselves. What is compared with other
// instants of a job is an Instant (rendezvous/base/time.h): this clock may be set.
#pragma once

#include <chrono>

namespace muster {

using WallTime = std::chrono::sys_time<std::chrono::nanoseconds>;

}  // namespace muster
