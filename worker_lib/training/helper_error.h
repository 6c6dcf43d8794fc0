// How the training helpers perform operations: in their own name, so that ranks do not take them
// for the same operations of another call, and messages begin with what the user called.
#pragma once

#include <string>
#include <utility>

#include "muster/error.h"
#include "worker_lib/purpose.h"

namespace muster::worker {

// Runs `operation`; what it throws begins with the caller's name and has it as its operation().
template <typename Operation>
auto in_the_name_of(CallPurpose purpose, Operation&& operation) {
  const PurposeScope scope(purpose);
  try {
    return operation();
  } catch (const DistributedError& error) {
    const std::string caller = name_of(purpose);
    const std::string said = error.what();
    throw DistributedError(error.code(),
                           said.starts_with(caller + " ") ? said : caller + ": " + said, caller,
                           error.group(), error.failed_ranks());
  }
}

}  // namespace muster::worker
