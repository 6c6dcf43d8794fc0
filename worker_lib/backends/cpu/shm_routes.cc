#include "worker_lib/backends/cpu/shm_routes.h"

#include <algorithm>

namespace muster::worker {
namespace {

size_t block_bytes(const Operation& operation, const std::vector<size_t>& counts, size_t rank,
                   size_t element) {
  return (counts.empty() ? operation.count : counts[rank]) * element;
}

// Lays out one block per rank, contiguously.
template <size_t Route::* offset, size_t Route::* bytes>
void place_blocks(const Operation& operation, const std::vector<size_t>& counts,
                  std::vector<Route>& routes) {
  const size_t element = size_of(operation.dtype);
  size_t at = 0;
  for (size_t rank = 0; rank < routes.size(); ++rank) {
    routes[rank].*offset = at;
    routes[rank].*bytes = block_bytes(operation, counts, rank, element);
    at += routes[rank].*bytes;
  }
}

void send_blocks(const Operation& operation, std::vector<Route>& routes) {
  place_blocks<&Route::send_offset, &Route::send_bytes>(operation, operation.send_counts, routes);
}

void receive_blocks(const Operation& operation, std::vector<Route>& routes) {
  place_blocks<&Route::recv_offset, &Route::recv_bytes>(operation, operation.recv_counts, routes);
}

template <size_t Route::* field>
void set_all(std::vector<Route>& routes, size_t bytes) {
  for (Route& route : routes)
    route.*field = bytes;
}

}  // namespace

void fill_routes(const Operation& operation, int me_number, std::vector<Route>& routes) {
  std::fill(routes.begin(), routes.end(), Route{});
  const auto me = static_cast<size_t>(me_number);
  const auto root = static_cast<size_t>(operation.root);
  const size_t element = size_of(operation.dtype);
  const size_t bytes = operation.count * element;
  switch (operation.kind) {
    case OpKind::broadcast:
      if (me == root) set_all<&Route::send_bytes>(routes, bytes);
      routes[root].recv_bytes = bytes;
      break;
    case OpKind::gather:
      if (me == root) receive_blocks(operation, routes);
      routes[root].send_bytes = block_bytes(operation, operation.recv_counts, me, element);
      break;
    case OpKind::all_gather:
      receive_blocks(operation, routes);
      set_all<&Route::send_bytes>(routes, routes[me].recv_bytes);
      break;
    case OpKind::scatter:
      if (me == root) send_blocks(operation, routes);
      routes[root].recv_bytes = block_bytes(operation, operation.send_counts, me, element);
      break;
    case OpKind::reduce_scatter:
      send_blocks(operation, routes);
      set_all<&Route::recv_bytes>(routes, routes[me].send_bytes);
      break;
    case OpKind::all_to_all:
      send_blocks(operation, routes);
      receive_blocks(operation, routes);
      break;
    default:
      break;
  }
}

bool is_multicast(OpKind kind) {
  return kind == OpKind::broadcast || kind == OpKind::all_gather || kind == OpKind::gather;
}

}  // namespace muster::worker
