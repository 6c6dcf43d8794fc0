// reduce and all_reduce between the ranks of a node. Every element is reduced in rank order, so the
// result has the same bits everywhere.
//
// - Small: all ranks put their data into their small areas before the meeting, and each (or only
//   the root) reduces all of it for itself.
// - Larger: chunk by chunk; each chunk is cut into one portion per rank (reduce-scatter and
//   all-gather in memory, as Rabenseifner's algorithm does with messages: Thakur, Rabenseifner,
//   Gropp 2005). A rank copies the others' portions of its data into its slot, reduces its own
//   portion from all slots into the part of its slot that is unused, and copies all results out of
//   the slots. These three steps of successive chunks overlap.
// - Data in memory from allocate_shared() is read in place; if all results belong there too, each
//   rank writes its portion to all of them.
#pragma once

#include "worker_lib/backends/cpu/shm_progress.h"

namespace muster::worker {

// Performs the call. Returns false on failure: see ShmCall::take_failure().
bool reduce_call(ShmCall& call);

}  // namespace muster::worker
