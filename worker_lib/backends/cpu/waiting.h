// How a rank waits for a change in shared memory: it spins for a short while (which notices the
// change within nanoseconds), then yields the core between checks, then sleeps on a futex. Every
// wait has a deadline and ends when the abort word is set.
//
// The sleeping part is an event count: a waiter counts itself in `sleepers`, checks once more and
// sleeps while `rung` keeps its value; a writer stores the change and only then checks for
// sleepers. Both orders are sequentially consistent, so one of the two sees the other (Dekker's
// argument). Lives in zeroed shared memory; any thread of any process.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include <sched.h>

#include "worker_lib/operation.h"

namespace muster::worker {

inline constexpr size_t kCacheLine = 64;

constexpr size_t round_to_lines(size_t bytes) {
  return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
}

// Threads sleep here until something changes. Its initial state is all zeroes.
struct alignas(kCacheLine) Doorbell {
  std::atomic<uint32_t> rung;
  std::atomic<uint32_t> sleepers;
};
static_assert(sizeof(Doorbell) == kCacheLine);
static_assert(std::atomic<uint32_t>::is_always_lock_free);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

enum class Waited : uint8_t { ready, timed_out, aborted };

struct Patience {
  uint32_t spins = 0;                    // Checks with a pause between them.
  std::chrono::nanoseconds yielding{0};  // Then checks with sched_yield() between them.
};

// A check costs about 140 cycles where `pause` takes that long (Intel since 2017), so the spins
// take a few microseconds, enough for a running rank to arrive. After that the awaited rank may
// need this very core, whatever the number of cores (other programs run, too): 4 ranks on 4 cores
// shared with compilers met in 150 to 280 us with 4,000 checks, in 4 to 8 us with 20 to 30. A yield
// hands the core over at once and spares each rank a sleep and a wake-up: 4 ranks of Python on 2
// cores met in 65 to 80 us, in 150 to 175 us if they slept after 20 us; 8 and 16 ranks are alike.
inline constexpr Patience kPatience{.spins = 30, .yielding = std::chrono::microseconds{200}};

// Wakes the threads that sleep at the bell; costs one load if there are none. REQUIRES: their
// condition was stored before, with a sequentially consistent store (or exchange, or fetch_add).
inline void ring(Doorbell& bell);

// Blocks until `ready()` (called often: cheap, no visible side effects, loads with acquire or
// stronger; loads that race with ring() must be sequentially consistent). `abort_word` is nonzero
// once waiting must end: see Segment. The thread that makes ready() true rings `bell`.
template <typename Ready>
inline Waited wait_until(Doorbell& bell, const std::atomic<uint32_t>& abort_word, Patience patience,
                         Deadline deadline, const Ready& ready);

inline void pause_cpu() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

// Pauses between two polls, after `idle` without progress. Yields the core early: the scheduler
// tends to place a peer that was just woken on the same core.
void linger(std::chrono::nanoseconds idle);

namespace detail {

void wake_all(Doorbell& bell);
// Sleeps while `rung` equals `seen`, for at most 50 ms: that bounds the cost of a lost wake-up (the
// waking process was killed between its store and its futex call).
void sleep_at(Doorbell& bell, uint32_t seen, Deadline deadline);

// Other programs (compilers, data loaders) may want the core: a yield then gives it away for a
// whole time slice (milliseconds), while a sleeping thread gets it back as soon as it is woken.
// After a yield of at least kTakenFrom, this thread sleeps instead of yielding for a while.
inline constexpr std::chrono::nanoseconds kTakenFrom = std::chrono::microseconds{500};
void note_wanted_core(Deadline now);
bool is_core_wanted(Deadline now);

template <typename Ready>
Waited wait_patiently(Doorbell& bell, const std::atomic<uint32_t>& abort_word, Patience patience,
                      Deadline deadline, const Ready& ready) {
  const auto start = std::chrono::steady_clock::now();
  auto yielded = start;  // When this thread last yielded its core.
  bool sleeping = is_core_wanted(start);
  for (;;) {
    if (ready()) return Waited::ready;
    if (abort_word.load(std::memory_order_acquire) != 0) return Waited::aborted;
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline) return Waited::timed_out;
    if (!sleeping && now - yielded >= kTakenFrom) note_wanted_core(now);
    sleeping = sleeping || now - start >= patience.yielding || is_core_wanted(now);
    if (!sleeping) {
      yielded = now;
      sched_yield();
      continue;
    }
    bell.sleepers.fetch_add(1);
    const uint32_t seen = bell.rung.load();
    if (!ready() && abort_word.load() == 0) sleep_at(bell, seen, deadline);
    bell.sleepers.fetch_sub(1);
  }
}

}  // namespace detail

inline void ring(Doorbell& bell) {
  if (bell.sleepers.load() != 0) [[unlikely]] {
    detail::wake_all(bell);
  }
}

template <typename Ready>
inline Waited wait_until(Doorbell& bell, const std::atomic<uint32_t>& abort_word, Patience patience,
                         Deadline deadline, const Ready& ready) {
  for (uint32_t spin = 0; spin <= patience.spins; ++spin) {
    if (ready()) return Waited::ready;
    if (abort_word.load(std::memory_order_relaxed) != 0) return Waited::aborted;
    pause_cpu();
  }
  return detail::wait_patiently(bell, abort_word, patience, deadline, ready);
}

}  // namespace muster::worker
