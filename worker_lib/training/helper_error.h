// How the training helpers speak of an operation that failed inside them: the user called
// save_checkpoint, so the message begins with that, and goes on with what the operation said.
#pragma once

#include <string>
#include <utility>

#include <fmt/format.h>

#include "muster/error.h"

namespace muster::worker {

// Runs `operation`; what it throws gets `caller` in front and as its operation().
template <typename Operation>
auto in_the_name_of(const char* caller, Operation&& operation) {
  try {
    return operation();
  } catch (const DistributedError& error) {
    throw DistributedError(error.code(), fmt::format("{}: {}", caller, error.what()), caller,
                           error.group(), error.failed_ranks());
  }
}

}  // namespace muster::worker
