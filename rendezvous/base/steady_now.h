// The time now, for shells: machines cannot read it, see time.h.
// Any thread.
#pragma once

#include <algorithm>
#include <chrono>

#include "rendezvous/base/time.h"

namespace muster {

inline Instant steady_now() {
  return to_instant(std::chrono::steady_clock::now());
}

// The time-out of poll(2) and epoll_wait(2): rounded up, so that `until` has passed afterwards, at
// most a minute, or -1 for kNever.
inline int poll_timeout(Instant until) {
  if (until == kNever) return -1;
  const auto left =
      std::clamp<Duration>(until - steady_now(), Duration{0}, std::chrono::minutes(1));
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count());
}
inline int poll_timeout(Deadline until) {
  return poll_timeout(to_instant(until));
}

}  // namespace muster
