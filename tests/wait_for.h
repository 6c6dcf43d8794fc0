// How tests wait: for a fact, or for a time that is itself what is tested. Nothing else in them
// sleeps, since on a busy machine no time is long enough for another thread to get somewhere.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string_view>
#include <thread>

#include <gtest/gtest.h>

namespace muster::test {

// Waits until `condition` holds. Fails the test and returns false if that does not happen in two
// minutes, which a test that passes never waits for.
template <typename Condition>
bool wait_for(Condition condition, std::string_view what) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) {
      ADD_FAILURE() << "never happened: " << what;
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// For a delay that is the subject of the test: a slow peer, a random moment, a time that must have
// passed, or one in which nothing may happen. Never for something that has to happen by then.
inline void pause_for(std::chrono::nanoseconds time, std::string_view /*why*/) {
  std::this_thread::sleep_for(time);
}
inline void pause_until(std::chrono::steady_clock::time_point time, std::string_view /*why*/) {
  std::this_thread::sleep_until(time);
}

// The longest that something may take of which `promise` is promised: `factor` times as long, and
// more where the machine has more to run than it has cores.
inline std::chrono::nanoseconds within(std::chrono::nanoseconds promise, int factor = 10) {
  double load = 0;
  getloadavg(&load, 1);
  const double share = load / std::max(1U, std::thread::hardware_concurrency());
  return std::chrono::duration_cast<std::chrono::nanoseconds>(promise * factor *
                                                              std::max(1.0, share));
}

}  // namespace muster::test
