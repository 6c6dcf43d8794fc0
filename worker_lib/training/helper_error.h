// How the training helpers perform operations: under their own name, so that ranks do not mistake
// them for the same operations of another call, and messages begin with what the user called.
#pragma once

#include <string>

#include "muster/error.h"
#include "worker_lib/failure.h"
#include "worker_lib/purpose.h"
#include "worker_lib/recorder/call_site.h"

namespace muster::worker {

// Runs `operation`; the messages of its exceptions begin with the caller's name, their operation().
// A part of the public function that calls it, for its CallSite.
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

// Throws what all members of a group find out in the same call, and leaves the group usable. First
// tells all others: if this rank exits because of it, a rank that has not got that far would
// otherwise blame this one instead of the origin.
[[noreturn]] void raise_shared(const Failure& failure, std::string operation, std::string group);

}  // namespace muster::worker
