// reduce and all_reduce between the ranks of a node. Every element is reduced by one rank only, in
// rank order, so the result has the same bits everywhere.
//
// - Small: all ranks put their data into their small data before the meeting, and each (or only the
//   root) reduces all of it for itself.
// - Larger: chunk by chunk; each chunk is cut into one portion for each rank (reduce-scatter and
//   all-gather in memory, as Rabenseifner's algorithm does with messages: Thakur, Rabenseifner,
//   Gropp 2005). A rank copies the others' portions of its data into its slot, reduces its own
//   portion from all slots into its own part of its slot, which is unused, and copies all results
//   out of the slots. These three steps of successive chunks overlap.
// - Data in memory from allocate_shared() is read in place, and if all results belong there too
//   each rank writes its portion to all of them.
#pragma once

#include "worker_lib/backends/cpu/shm_progress.h"

namespace muster::worker {

// Performs one. False: see ShmCall::take_failure().
bool reduce_call(ShmCall& call);

}  // namespace muster::worker
