// Group::shrink: the members that are there make a group of their own, without the store of the job
// and without a launcher. Semantics as MPI_Comm_shrink() of ULFM: all of them call it, and all get
// the same group, in the order of the old one.
#pragma once

#include <memory>

#include "worker_lib/failure.h"
#include "worker_lib/group/group.h"
#include "worker_lib/joining/job.h"

namespace muster::worker {

// Returns a Job whose world is the new group; the old group's job leaves it when it is left.
// Another death while the members meet begins a new try with those that are left. Fails with
// timeout, not_member, not_initialized, peer_failed if the others took this rank for dead, or with
// what a member failed with.
Outcome<std::shared_ptr<Job>> shrink(Group& group, const GroupOptions& options);

}  // namespace muster::worker
