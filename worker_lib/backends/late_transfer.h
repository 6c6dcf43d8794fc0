// What a send or receive whose time was over fails with, whichever backend carried it, so that all
// say the same. Pure.
#pragma once

#include "worker_lib/failure.h"
#include "worker_lib/members.h"
#include "worker_lib/operation.h"

namespace muster::worker {

// Of code timeout, naming the peer where there is one. `begun`: a part of the message came.
Failure late_transfer(const Transfer& transfer, const Members& members, bool begun);

}  // namespace muster::worker
