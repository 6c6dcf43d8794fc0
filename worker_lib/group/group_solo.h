// The backend of a group of one: a collective copies `in` to `out`, and transfers are refused,
// since there is no peer. Needs no store and no shared memory. Any thread, as for every backend.
#pragma once

#include <memory>

#include "worker_lib/backends/backend.h"

namespace muster::worker {

// Host memory only. Never fails.
std::unique_ptr<GroupBackend> make_solo_backend();

}  // namespace muster::worker
