// The collectives, as calls of Gloo's: what each operation of ours is in Gloo's words, and what is
// put together where Gloo has none (reduce_scatter from all_to_all; gather_v and scatter_v from
// messages, since Gloo's own do not know empty blocks).
#pragma once

#include <chrono>
#include <memory>

#include "worker_lib/backends/gloo/gloo_mesh.h"
#include "worker_lib/operation.h"

namespace muster::worker {

// Blocks until this rank's result is in place. Throws what Gloo throws. One call at a time.
// REQUIRES: mesh->size > 1, a positive time-out, and that all ranks make this call: see
// gloo_roll_call.h, which also is all there is to a barrier.
void run_on_gloo(const std::shared_ptr<GlooMesh>& mesh, const Operation& operation,
                 std::chrono::milliseconds timeout);

// The same in a group of one: copies where something is to be copied.
void run_alone(const Operation& operation);

}  // namespace muster::worker
