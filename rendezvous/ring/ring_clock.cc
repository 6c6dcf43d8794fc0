#include "rendezvous/ring/ring_clock.h"

#include <ctime>

#include <fcntl.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "rendezvous/base/text.h"
#include "rendezvous/base/unique_fd.h"

namespace muster::ring {
namespace {

bool processor_says_invariant() {
#if defined(__x86_64__)
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d & 1U << 8) != 0;
#else
  return false;
#endif
}

// The kernel stops using the counter if those of the processors disagree.
bool kernel_uses_it() {
  const UniqueFd file(open("/sys/devices/system/clocksource/clocksource0/current_clocksource",
                           O_RDONLY | O_CLOEXEC));
  return trim(read_up_to(file.get(), 64)) == "tsc";
}

}  // namespace

bool tsc_is_invariant() {
  static const bool is_invariant = processor_says_invariant() && kernel_uses_it();
  return is_invariant;
}

uint64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// Takes the tightest of five samples: the thread may be interrupted between two readings.
ClockPair clock_pair(bool tsc) {
  if (!tsc) {
    const uint64_t now = monotonic_ns();
    return {now, now};
  }
  ClockPair best;
  uint64_t shortest = UINT64_MAX;
  for (int i = 0; i < 5; ++i) {
    const uint64_t before = monotonic_ns();
    const uint64_t now = ticks(tsc);
    const uint64_t took = monotonic_ns() - before;
    if (took >= shortest) continue;
    shortest = took;
    best = {now, before + took / 2};
  }
  return best;
}

}  // namespace muster::ring
