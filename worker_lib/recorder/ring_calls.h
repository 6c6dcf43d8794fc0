// The library's calls in the ring's terms (rendezvous/ring/call_rules.h). A helper's operation is
// recorded as the operation that the members perform together (should_stop() as an all_reduce of a
// byte); the call site names the line of the program. Pure.
#pragma once

#include <cstddef>

#include "rendezvous/ring/call_rules.h"
#include "worker_lib/operation.h"

namespace muster::worker {

// `is_awaited`: the caller waits until the call is done.
ring::Call ring_call_of(const Operation& operation, bool is_awaited);
ring::Call ring_call_of(const Transfer& transfer, bool is_awaited);
// Returns an allocate_shared(), which is always awaited.
ring::Call shared_memory_call(size_t bytes);

}  // namespace muster::worker
