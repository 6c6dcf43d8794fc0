// Failures for missed deadlines: a send or receive, or a collective that some members did not
// reach. Worded the same for every backend. Pure.
#pragma once

#include <span>
#include <string>

#include "worker_lib/failure.h"
#include "worker_lib/members.h"
#include "worker_lib/operation.h"

namespace muster::worker {

// Timeout of a send or receive; names the peer if known. `begun`: part of the message had arrived.
Failure late_transfer(const Transfer& transfer, const Members& members, bool begun);

// Timeout for ranks that others waited for: "rank 2 (node7, pid 4711) and rank 3 (node7, pid 4712)
// did not arrive within 2 s; check what they are doing instead, or give a longer timeout", where
// `how` is "within 2 s". Names at most eight; if `missing` is empty, "the last rank".
Failure absent_members(const Members& members, std::span<const int> missing,
                       const std::string& how);

}  // namespace muster::worker
