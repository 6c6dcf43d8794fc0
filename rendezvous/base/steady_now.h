// The time now, for shells: machines cannot read it, see time.h.
// Any thread.
#pragma once

#include <chrono>

#include "rendezvous/base/time.h"

namespace muster {

inline Instant steady_now() {
  return to_instant(std::chrono::steady_clock::now());
}

}  // namespace muster
