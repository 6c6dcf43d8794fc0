// The collectives that move blocks between ranks: broadcast, gather, all_gather, scatter,
// all_to_all and, adding up what arrives, reduce_scatter; with equal and unequal counts. Each rank
// offers its data where the others can read it, and takes what is meant for it:
//
// - small: in its small data, before the meeting, which is the only wait.
// - larger: piece by piece through its chunk slots; while others still read one it fills the next
//   (the first one before the meeting).
// - in memory from allocate_shared(): in place; then it waits until all have taken their part.
#pragma once

#include "worker_lib/backends/cpu/shm_progress.h"

namespace muster::worker {

// Performs one. False: see ShmCall::take_failure().
bool exchange(ShmCall& call);

}  // namespace muster::worker
