// The failures of what has missed its deadline: of a send or receive, and of a collective whose
// members did not all come. Worded the same for every backend. Pure.
#pragma once

#include <span>
#include <string>

#include "worker_lib/failure.h"
#include "worker_lib/members.h"
#include "worker_lib/operation.h"

namespace muster::worker {

// Of a send or receive: of code timeout, naming the peer if there is one. `begun`: part of the
// message had arrived.
Failure late_transfer(const Transfer& transfer, const Members& members, bool begun);

// Of ranks that others waited for: "rank 2 (node7, pid 4711), rank 3 (node7, pid 4712) did not
// arrive within 2 s; check what they are doing instead, or give a longer timeout", with `how` for
// "within 2 s". At most eight are named; none: "the last rank".
Failure absent_members(const Members& members, std::span<const int> missing,
                       const std::string& how);

}  // namespace muster::worker
