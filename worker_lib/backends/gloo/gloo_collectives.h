// Our collectives as Gloo calls. Gloo lacks some, which are composed: reduce_scatter from
// all_to_all_v; gather_v and scatter_v from messages, since Gloo's own do not accept empty blocks.
// With equal blocks Gloo sends the same messages, so gather and scatter are no cases of their own,
// nor is all_to_all.
#pragma once

#include <chrono>
#include <memory>

#include "worker_lib/backends/gloo/gloo_mesh.h"
#include "worker_lib/operation.h"

namespace muster::worker {

// Blocks until this rank's result is in place. Throws what Gloo throws. One call at a time.
// REQUIRES: mesh->size > 1, a positive time-out, and that all ranks make this call: see
// gloo_roll_call.h, which already completes a barrier.
void run_on_gloo(const std::shared_ptr<GlooMesh>& mesh, const Operation& operation,
                 std::chrono::milliseconds timeout);

}  // namespace muster::worker
