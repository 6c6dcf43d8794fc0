#include "worker_lib/backends/cpu/waiting.h"

#include <algorithm>
#include <climits>
#include <ctime>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace muster::worker {

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
