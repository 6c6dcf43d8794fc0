// How the inside of the worker library fails: as values. Only the public calls throw, and they make
// one DistributedError of a Failure, with the operation's and the group's name in front.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <tl/expected.hpp>

#include "muster/error.h"

namespace muster::worker {

struct Failure {
  ErrorCode code = ErrorCode::system;
  std::string message;  // One line, no full stop: what happened, to whom, and what to do next.
  std::vector<GlobalRank> ranks = {};  // Who died, did not come, or did something else; ascending.

  friend bool operator==(const Failure&, const Failure&) = default;
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
