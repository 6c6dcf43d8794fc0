// The failure that a send or receive reports when it has missed its deadline, worded the same for
// every backend. Pure.
#pragma once

#include "worker_lib/failure.h"
#include "worker_lib/members.h"
#include "worker_lib/operation.h"

namespace muster::worker {

// Of code timeout, naming the peer if there is one. `begun`: part of the message had arrived.
Failure late_transfer(const Transfer& transfer, const Members& members, bool begun);

}  // namespace muster::worker
