// Lets a node that cannot start its workers (the program is missing) tell the others, which would
// wait for it until the join time-out. It joins with a final failure, and leaves once the host has
// accepted that; the host itself stays until all others have got the failure, for at most 10 s.
#pragma once

#include "agent/launch_spec.h"
#include "rendezvous/base/error.h"

namespace muster {

// No-op if this node is alone. Blocks for about 10 s at most; any signal may end it. Prints a line
// on stderr after a second, or if no node was reached. REQUIRES: a process with one thread.
void tell_that_it_cannot_start(const LaunchSpec& spec, const Error& error);

}  // namespace muster
