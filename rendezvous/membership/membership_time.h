// Sums of instants and of durations that other machines named, which may be anything: none
// overflows. Pure.
#pragma once

#include "rendezvous/base/time.h"

namespace muster::membership {

// `now + wait`, or "never" where that would overflow. REQUIRES: wait >= 0.
inline Instant instant_after(Instant now, Duration wait) {
  return now > kNever - wait ? kNever : now + wait;
}

}  // namespace muster::membership
