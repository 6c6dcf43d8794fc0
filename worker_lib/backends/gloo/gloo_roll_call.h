// The roll call before every collective on Gloo: each rank sends its call to every other. Gloo
// itself compares nothing: calls of different sizes end the process (an exception on Gloo's
// thread), and a call that times out does not say which ranks were missing. It costs a small
// message between each pair of ranks, and it is a barrier: no rank returns before all have arrived.
#pragma once

#include <memory>

#include "worker_lib/backends/gloo/gloo_mesh.h"
#include "worker_lib/failure.h"
#include "worker_lib/members.h"
#include "worker_lib/operation.h"

namespace muster::worker {

// Blocks until all ranks have arrived with the same call. Fails with mismatch (naming the ranks
// that differ from most) or timeout (naming the missing ranks; the mesh is then unusable). Throws
// Gloo's exception if a connection is lost. REQUIRES: mesh->size > 1.
Outcome<> call_the_roll(const std::shared_ptr<GlooMesh>& mesh, const Members& members,
                        const Operation& operation, Deadline deadline);

}  // namespace muster::worker
