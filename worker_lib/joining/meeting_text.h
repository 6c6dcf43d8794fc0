// Small things that the steps of a meeting share: time and failures as they say them.
// Pure, but for what time it is.
#pragma once

#include <algorithm>
#include <chrono>
#include <string>

#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"
#include "worker_lib/failure.h"
#include "worker_lib/operation.h"
#include "worker_lib/time_text.h"

namespace muster::worker {

inline Duration time_left(Deadline deadline) {
  return std::max<Duration>(deadline - std::chrono::steady_clock::now(), Duration::zero());
}

// "within 3 s": the time that was given, which began a moment before `begun` was looked at.
inline std::string within_limit(std::chrono::steady_clock::time_point begun, Deadline deadline) {
  using Hundredths = std::chrono::duration<int64_t, std::centi>;
  const auto limit = std::chrono::round<Hundredths>(deadline - begun);
  return within(std::chrono::duration_cast<std::chrono::milliseconds>(limit));
}

inline tl::unexpected<Failure> store_failure(const Error& error) {
  const bool ours = error.code == ExitCode::environment;
  return failed(ours ? ErrorCode::environment : ErrorCode::rendezvous, error.message);
}

}  // namespace muster::worker
