// Helpers for the steps of a meeting: times and failures in words, and lines that waiting ranks
// print.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>

#include <fmt/format.h>

#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"
#include "worker_lib/failure.h"
#include "worker_lib/joining/identity.h"
#include "worker_lib/joining/meeting.h"
#include "worker_lib/operation.h"
#include "worker_lib/time_text.h"

namespace muster::worker {

inline Duration time_left(Deadline deadline) {
  return std::max<Duration>(deadline - std::chrono::steady_clock::now(), Duration::zero());
}

// "within 3 s": the given time-out, which started a moment before `begun` was read.
inline std::string within_limit(std::chrono::steady_clock::time_point begun, Deadline deadline) {
  using Hundredths = std::chrono::duration<int64_t, std::centi>;
  const auto limit = std::chrono::round<Hundredths>(deadline - begun);
  return within(std::chrono::duration_cast<std::chrono::milliseconds>(limit));
}

// Time at which a rank that still waits prints so.
inline Deadline end_of_patience(const MeetingOptions& options) {
  return options.begun + options.patience;
}

inline void say_line(const MeetingOptions& options, const std::string& line) {
  if (options.say) return options.say(line);
  std::fprintf(stderr, "%s\n", line.c_str());
}

// `whom`: "rank 0 at node7:29500", with what to check.
inline void say_that_it_waits(const Identity& self, const MeetingOptions& options,
                              const std::string& whom) {
  say_line(options, fmt::format("muster: rank {} has waited {} for {}", known_rank(self, self.rank),
                                time_text(options.patience), whom));
}

// Lets two ranks per node print while no store can choose one: the first may be missing.
inline bool may_speak(const Identity& self) {
  return !self.place_told.local_rank || self.local_rank < 2;
}

inline tl::unexpected<Failure> meeting_store_failure(const Error& error) {
  const bool ours = error.code == ExitCode::environment;
  return failed(ours ? ErrorCode::environment : ErrorCode::rendezvous, error.message);
}

}  // namespace muster::worker
