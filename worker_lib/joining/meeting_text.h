// Small things that the steps of a meeting share: time and failures as they say them.
// Pure, but for what time it is.
#pragma once

#include <algorithm>
#include <chrono>
#include <string>

#include <fmt/format.h>

#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"
#include "worker_lib/failure.h"
#include "worker_lib/operation.h"

namespace muster::worker {

inline Duration time_left(Deadline deadline) {
  return std::max<Duration>(deadline - std::chrono::steady_clock::now(), Duration::zero());
}

// "1.5 s", of the time since.
inline std::string seconds_since(std::chrono::steady_clock::time_point begun) {
  const std::chrono::duration<double> past = std::chrono::steady_clock::now() - begun;
  return fmt::format("{:.3g} s", past.count());
}

inline tl::unexpected<Failure> store_failure(const Error& error) {
  const bool ours = error.code == ExitCode::environment;
  return failed(ours ? ErrorCode::environment : ErrorCode::rendezvous, error.message);
}

}  // namespace muster::worker
