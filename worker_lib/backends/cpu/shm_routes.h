// What a collective moves between this rank and each other one: byte ranges of its own buffers.
// Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "worker_lib/operation.h"

namespace muster::worker {

struct Route {
  size_t send_offset = 0;  // In Operation::in.
  size_t send_bytes = 0;
  size_t recv_offset = 0;  // In Operation::out.
  size_t recv_bytes = 0;
};

// Between `me` and each of routes.size() ranks; routes[me] is what it gives to itself, from `in` to
// `out`. Empty for reduce and all_reduce. Reuses the vector.
void fill_routes(const Operation& operation, int me, std::vector<Route>& routes);

// Whether the operation sends the same bytes to every receiver (or has only one).
bool is_multicast(OpKind kind);

}  // namespace muster::worker
