// The data that a collective moves between this rank and each other one, as byte ranges of this
// rank's buffers. Pure.
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

// Fills in the routes between `me` and each of routes.size() ranks; routes[me] is the copy from
// `in` to `out`. All routes are empty for reduce and all_reduce.
void fill_routes(const Operation& operation, int me, std::vector<Route>& routes);

// True if the operation sends the same bytes to every receiver (or has only one).
bool is_multicast(OpKind kind);

}  // namespace muster::worker
