// The collectives that move blocks between ranks: broadcast, gather, all_gather, scatter,
// all_to_all and reduce_scatter (which adds up what arrives), with equal and unequal counts. Each
// rank offers its data where the others can read it, and takes the parts meant for it. Data is:
//
// - small: in the small area, before the meeting, which is the only wait.
// - larger: piece by piece in the chunk slots; a rank fills the next piece while others still read
//   one (and the first piece before the meeting).
// - in memory from allocate_shared(): read in place; the rank then waits until all have read it.
#pragma once

#include "worker_lib/backends/cpu/shm_progress.h"

namespace muster::worker {

// Performs the call. Returns false on failure: see ShmCall::take_failure().
bool exchange(ShmCall& call);

}  // namespace muster::worker
