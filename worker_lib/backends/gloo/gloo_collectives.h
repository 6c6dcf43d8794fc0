// Our collectives as Gloo calls. Some are composed: reduce_scatter from all_to_all_v; gather and
// scatter from messages, since Gloo's own do not accept empty blocks. For equal blocks Gloo sends
// the same messages as for unequal ones, so these operations have no special case.
#pragma once

#include <chrono>
#include <memory>

#include "worker_lib/backends/gloo/gloo_mesh.h"
#include "worker_lib/operation.h"

namespace muster::worker {

// Blocks until this rank's result is in place. Throws Gloo's exceptions. One call at a time.
// REQUIRES: mesh->size > 1, a positive time-out, and a completed roll call (gloo_roll_call.h), so
// that all ranks make this call; a barrier needs nothing more.
void run_on_gloo(const std::shared_ptr<GlooMesh>& mesh, const Operation& operation,
                 std::chrono::milliseconds timeout);

}  // namespace muster::worker
