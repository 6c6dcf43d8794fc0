// The library's calls as the ring has them (rendezvous/ring/call_rules.h). A helper's operation is
// recorded as what it is, should_stop() as an all_reduce of a byte, since that is what the members
// perform together; the call site says which line of the program it was. Pure.
#pragma once

#include <cstddef>

#include "rendezvous/ring/call_rules.h"
#include "worker_lib/operation.h"

namespace muster::worker {

// `is_awaited`: the caller waits until it is done.
ring::Call ring_call_of(const Operation& operation, bool is_awaited);
ring::Call ring_call_of(const Transfer& transfer, bool is_awaited);
// Always awaited.
ring::Call shared_memory_call(size_t bytes);

}  // namespace muster::worker
