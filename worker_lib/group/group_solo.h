// The backend of a group of one, for host memory: a collective copies `in` to `out`; transfers are
// refused, since there is no peer. Needs no store or shared memory. Any thread.
#pragma once

#include <memory>

#include "worker_lib/backends/backend.h"

namespace muster::worker {

std::unique_ptr<GroupBackend> make_solo_backend();

}  // namespace muster::worker
