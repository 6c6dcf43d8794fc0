// How the training helpers perform operations: in their own name, so that ranks do not take them
// for the same operations of another call, and messages begin with what the user called.
#pragma once

#include <string>
#include <utility>

#include "muster/error.h"
#include "worker_lib/failure.h"
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

// Throws what all members of a group find out in the same call, and leaves the group usable. Says
// so to all others before: where this rank ends for it, one that has not come so far would name it,
// and not who it began with.
[[noreturn]] void raise_shared(const Failure& failure, std::string operation, std::string group);

}  // namespace muster::worker
