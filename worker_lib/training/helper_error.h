// How the training helpers perform operations: under the helper's name, so that ranks do not take
// them for the same operations of another call, and messages begin with the user's call.
#pragma once

#include <string>

#include "muster/error.h"
#include "worker_lib/failure.h"
#include "worker_lib/purpose.h"
#include "worker_lib/recorder/call_site.h"

namespace muster::worker {

// Runs `operation` so that its exceptions have the caller as operation() and at the start of their
// messages. Always inlined into the public function that calls it, for the CallSite.
template <typename Operation>
[[gnu::always_inline]] inline auto in_the_name_of(CallPurpose purpose, Operation&& operation) {
  const CallSite site;
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

// Throws a failure that all members of a group detect in the same call; leaves the group usable.
// Unless this rank is the origin, first reports the failure to the others: if this rank exits
// because of it, a rank that has not got that far would otherwise blame this rank.
[[noreturn]] void raise_shared(const Failure& failure, std::string operation, std::string group);

}  // namespace muster::worker
