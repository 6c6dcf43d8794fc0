// A node that cannot start its workers, since the program is missing there, says so to the other
// nodes of the job: they would wait for it until the join time-out. It joins without ever being
// ready for a round, reports a failure that is final, and leaves as soon as it is understood.
// Where this node hosts the job, its coordinator stays until all other nodes have come and heard
// it, for at most 10 s.
#pragma once

#include "agent/launch_spec.h"
#include "rendezvous/base/error.h"

namespace muster {

// Blocks, for as long as the above takes and about 10 s at most; any signal may end it. Says a line
// on stderr where it takes longer than a second, or nobody could be told. Nothing where this node
// is alone. REQUIRES: the calling process has one thread.
void tell_that_it_cannot_start(const LaunchSpec& spec, const Error& error);

}  // namespace muster
