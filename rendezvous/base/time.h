// Time as the machines see it. `Clock` declares no now(), so reading the time inside a machine does
// not compile: a shell converts from std::chrono::steady_clock and hands the instant in.
#pragma once

#include <chrono>
#include <cstdint>

namespace muster {

using Duration = std::chrono::nanoseconds;

struct Clock {
  using duration = Duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<Clock>;
  static constexpr bool is_steady = true;
};

using Instant = Clock::time_point;

// By when something that blocks is to be done.
using Deadline = std::chrono::steady_clock::time_point;

// "No deadline": the value of next_deadline() when a Tick would never do anything.
inline constexpr Instant kNever = Instant::max();

// `now + wait`, or kNever where that would overflow: a wait may be whatever a user or another
// machine named. REQUIRES: wait >= 0.
inline Instant instant_after(Instant now, Duration wait) {
  return now > kNever - wait ? kNever : now + wait;
}

}  // namespace muster
