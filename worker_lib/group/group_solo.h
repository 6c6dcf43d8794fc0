// The backend of a group of one: nobody to wait for, no memory to share, no store to meet at.
// Transfers to oneself meet in the process; any thread, as of every backend.
#pragma once

#include <memory>

#include "worker_lib/backends/backend.h"

namespace muster::worker {

// Host memory only. Never fails.
std::unique_ptr<GroupBackend> make_solo_backend();

}  // namespace muster::worker
