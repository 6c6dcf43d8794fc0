// Failures inside the worker library are values. Only the public calls throw: they turn a Failure
// into one DistributedError, with the operation's and the group's name in front.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tl/expected.hpp>

#include "muster/error.h"

namespace muster::worker {

struct Failure {
  ErrorCode code = ErrorCode::system;
  std::string message;  // One line, no full stop: what happened, on which rank, what to do next.
  // The ranks where it began, ascending: they died, were missing, called something else or abort(),
  // or their kernel refused something. Equal on all ranks that meet the failure; empty: unknown.
  std::vector<GlobalRank> ranks = {};
  // Time when this process learned of it (new_failure_time()); copies keep it; 0: failed no group.
  // Like is_suspicion, it concerns this process only, and == ignores it.
  int64_t known_ns = 0;
  // True while only this rank's view is known: `ranks` are those that it waited for, or that called
  // something else. The ranks to blame are determined before the failure is reported.
  bool is_suspicion = false;

  friend bool operator==(const Failure& a, const Failure& b) {
    return a.code == b.code && a.message == b.message && a.ranks == b.ranks;
  }
};

struct Done {
  friend bool operator==(const Done&, const Done&) = default;
};

template <typename T = Done>
using Outcome = tl::expected<T, Failure>;

inline tl::unexpected<Failure> failed(ErrorCode code, std::string message,
                                      std::vector<GlobalRank> ranks = {}) {
  return tl::unexpected<Failure>(Failure{code, std::move(message), std::move(ranks)});
}

}  // namespace muster::worker
