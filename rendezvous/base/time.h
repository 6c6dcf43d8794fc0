// Time as the machines see it. `Clock` has no now(), so reading the time inside a machine does not
// compile: its owner converts from std::chrono::steady_clock and passes the instant in.
#pragma once

#include <chrono>

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

// The time by which a blocking operation must finish.
using Deadline = std::chrono::steady_clock::time_point;

inline Instant to_instant(Deadline time) {
  return Instant(time.time_since_epoch());
}

// "No deadline": the value of next_deadline() when no Tick is needed.
inline constexpr Instant kNever = Instant::max();

// Returns `now + wait`, or kNever on overflow: a user or another machine may send any wait.
// REQUIRES: wait >= 0.
inline Instant instant_after(Instant now, Duration wait) {
  return now > kNever - wait ? kNever : now + wait;
}

// The same for a blocking operation: "for ever" is a legal time-out.
template <typename Wait>
Deadline deadline_after(Deadline now, Wait wait) {
  // Compares in the coarser unit: `wait` may exceed the range of the finer one.
  const auto most = std::chrono::duration_cast<Wait>(Deadline::max() - now);
  return wait >= most ? Deadline::max() : now + wait;
}

inline double to_seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}
// REQUIRES: `seconds` fits.
inline Duration from_seconds(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

}  // namespace muster
