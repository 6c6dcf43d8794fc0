// The clock of the records: the time-stamp counter if CPUID says that it is invariant (it ticks at
// one rate and through all sleep states: Intel SDM volume 3, "Invariant TSC") and the kernel uses
// it as its clock source; reading it costs a third of clock_gettime(2). Else nanoseconds of
// CLOCK_MONOTONIC.
#pragma once

#include <algorithm>
#include <cstdint>

namespace muster::ring {

// True if the time-stamp counter is usable as described above; found out once.
bool tsc_is_invariant();

uint64_t monotonic_ns();

// `tsc`: the result of tsc_is_invariant(), cached by the caller.
inline uint64_t ticks(bool tsc) {
#if defined(__x86_64__)
  if (tsc) [[likely]]
    return __builtin_ia32_rdtsc();
#endif
  static_cast<void>(tsc);
  return monotonic_ns();
}

// One moment on both clocks; two of them convert ticks to nanoseconds of CLOCK_MONOTONIC.
struct ClockPair {
  uint64_t ticks = 0;
  uint64_t ns = 0;
};
ClockPair clock_pair(bool tsc);

// Converts by the line through `a` and `b`, which extends beyond both; `a.ns` if they are one
// moment. Safe for any input: out of range becomes 0 or a time generations from now.
inline uint64_t ns_of(uint64_t ticks, const ClockPair& a, const ClockPair& b) {
  const auto distance = [](uint64_t from, uint64_t to) {
    return static_cast<double>(static_cast<int64_t>(to - from));
  };
  const double ticks_between = distance(a.ticks, b.ticks);
  if (ticks_between <= 0) return a.ns;
  const double ns = distance(a.ticks, ticks) * (distance(a.ns, b.ns) / ticks_between);
  constexpr double kMost = 0x1p61;
  const auto offset = static_cast<int64_t>(std::clamp(ns, -kMost, kMost));
  const auto start = static_cast<int64_t>(std::min<uint64_t>(a.ns, uint64_t{1} << 61));
  return static_cast<uint64_t>(std::max<int64_t>(start + offset, 0));
}

}  // namespace muster::ring
