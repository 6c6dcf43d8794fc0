// Instants for tests: milliseconds since the clock's origin. The machines under test never read a
// clock.
#pragma once

#include <chrono>
#include <cstdint>

#include "rendezvous/base/time.h"

namespace muster {

constexpr Instant at_ms(int64_t ms) {
  return Instant{std::chrono::milliseconds{ms}};
}

}  // namespace muster
