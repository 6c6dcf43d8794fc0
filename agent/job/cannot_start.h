// A node that cannot start its workers, because the program is missing there, reports this to the
// job's other nodes, which would otherwise wait for it until the join time-out. It joins without
// ever being ready for a round, reports a final failure, and leaves as soon as the host has
// accepted it. If this node hosts the job, its coordinator stays until all other nodes have
// connected and received the failure, for at most 10 s.
#pragma once

#include "agent/launch_spec.h"
#include "rendezvous/base/error.h"

namespace muster {

// Blocks as long as that takes, about 10 s at most; any signal may end it. Prints a line on stderr
// if it takes longer than a second or no node could be told. Does nothing if this node is alone.
// REQUIRES: the calling process has one thread.
void tell_that_it_cannot_start(const LaunchSpec& spec, const Error& error);

}  // namespace muster
