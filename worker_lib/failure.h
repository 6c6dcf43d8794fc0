// How the inside of the worker library fails: as values. Only the public calls throw, and they make
// one DistributedError of a Failure, with the operation's and the group's name in front.
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
  std::string message;  // One line, no full stop: what happened, to whom, and what to do next.
  // Where it began, ascending: who died, did not come, called something else or abort(), or was
  // refused something by its kernel. The same on all ranks that meet it; empty: nobody knows.
  std::vector<GlobalRank> ranks = {};
  // When this process first knew of what failed a group (new_failure_time()), in everything that
  // repeats it; 0: nothing does. Like the next, about this process and no part of what failed.
  int64_t known_ns = 0;
  // Only what this rank itself has seen: `ranks` are those that it waited for, or that called
  // something else than it did. Who is to blame is found out before anybody is told.
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
