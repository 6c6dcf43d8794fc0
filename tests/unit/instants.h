// Instants as tests write them: milliseconds from the beginning of the clock, which the machines
// never ask.
#pragma once

#include <chrono>
#include <cstdint>

#include "rendezvous/base/time.h"

namespace muster {

constexpr Instant at_ms(int64_t ms) {
  return Instant{std::chrono::milliseconds{ms}};
}

}  // namespace muster
