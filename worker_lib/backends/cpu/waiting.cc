#include "worker_lib/backends/cpu/waiting.h"

#include <algorithm>
#include <climits>
#include <ctime>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rendezvous/base/cpu_limit.h"

namespace muster::worker {

Patience patience_for(int ranks) {
  static const int cores = usable_cores();
  return patience_for(ranks, cores);
}

// A check costs about 140 cycles where `pause` takes that long (Intel since 2017), so these take a
// few microseconds, enough for a running rank to arrive. After that the core may be needed by the
// very rank that is waited for, whatever the count of cores says (other programs run, too): 4 ranks
// on 4 cores shared with compilers met in 150 to 280 us with 4,000 checks, in 4 to 8 us with 20 to
// 30. If there are certainly too few cores, sleeping early keeps many ranks from yielding to each
// other in turn.
Patience patience_for(int ranks, int cores) {
  if (ranks <= cores) return {.spins = 30, .yielding = std::chrono::microseconds{200}};
  return {.spins = 10, .yielding = std::chrono::microseconds{20}};
}

void linger(std::chrono::nanoseconds idle) {
  constexpr std::chrono::microseconds kAlone{5};
  if (idle < kAlone) {
    pause_cpu();
  } else {
    sched_yield();
  }
}

namespace detail {
namespace {

constexpr std::chrono::nanoseconds kLongestSleep = std::chrono::milliseconds{50};

uint32_t* futex_word(std::atomic<uint32_t>& word) {
  return reinterpret_cast<uint32_t*>(&word);
}

}  // namespace

void wake_all(Doorbell& bell) {
  bell.rung.fetch_add(1);
  syscall(SYS_futex, futex_word(bell.rung), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void sleep_at(Doorbell& bell, uint32_t seen, Deadline deadline) {
  const auto left = deadline - std::chrono::steady_clock::now();
  const auto nanoseconds =
      std::clamp<std::chrono::nanoseconds>(left, std::chrono::nanoseconds{0}, kLongestSleep);
  timespec timeout{};
  timeout.tv_nsec = static_cast<long>(nanoseconds.count());
  syscall(SYS_futex, futex_word(bell.rung), FUTEX_WAIT, seen, &timeout, nullptr, 0);
}

namespace {

constexpr std::chrono::milliseconds kSleepInstead{100};
thread_local Deadline core_wanted_until{};

}  // namespace

void note_wanted_core(Deadline now) {
  core_wanted_until = now + kSleepInstead;
}

bool is_core_wanted(Deadline now) {
  return now < core_wanted_until;
}

}  // namespace detail
}  // namespace muster::worker
