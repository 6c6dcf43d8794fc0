// The time of day, for people and for what files say of themselves.
#pragma once

#include <chrono>

namespace muster {

using WallTime = std::chrono::sys_time<std::chrono::nanoseconds>;

}  // namespace muster
