#include "worker_lib/backends/cpu/shm_routes.h"

#include <algorithm>

namespace muster::worker {
namespace {

// Walks the blocks of a buffer that has one for each rank.
class Blocks {
 public:
  Blocks(const Operation& operation, const std::vector<size_t>& counts)
      : counts_(counts), equal_(operation.count), element_(size_of(operation.dtype)) {}

  size_t bytes(size_t rank) const { return (counts_.empty() ? equal_ : counts_[rank]) * element_; }

 private:
  const std::vector<size_t>& counts_;
  size_t equal_;
  size_t element_;
};

void send_blocks(const Operation& operation, std::vector<Route>& routes) {
  const Blocks blocks(operation, operation.send_counts);
  size_t offset = 0;
  for (size_t rank = 0; rank < routes.size(); ++rank) {
    routes[rank].send_offset = offset;
    routes[rank].send_bytes = blocks.bytes(rank);
    offset += routes[rank].send_bytes;
  }
}

void receive_blocks(const Operation& operation, std::vector<Route>& routes) {
  const Blocks blocks(operation, operation.recv_counts);
  size_t offset = 0;
  for (size_t rank = 0; rank < routes.size(); ++rank) {
    routes[rank].recv_offset = offset;
    routes[rank].recv_bytes = blocks.bytes(rank);
    offset += routes[rank].recv_bytes;
  }
}

void send_to_all(size_t bytes, std::vector<Route>& routes) {
  for (Route& route : routes)
    route.send_bytes = bytes;
}

void receive_from_all(size_t bytes, std::vector<Route>& routes) {
  for (Route& route : routes)
    route.recv_bytes = bytes;
}

size_t own_bytes(const Operation& operation, const std::vector<size_t>& counts, size_t me) {
  return (counts.empty() ? operation.count : counts[me]) * size_of(operation.dtype);
}

}  // namespace

void fill_routes(const Operation& operation, int me_number, std::vector<Route>& routes) {
  std::fill(routes.begin(), routes.end(), Route{});
  const auto me = static_cast<size_t>(me_number);
  const auto root = static_cast<size_t>(operation.root);
  const size_t bytes = operation.count * size_of(operation.dtype);
  switch (operation.kind) {
    case OpKind::broadcast:
      if (me == root) send_to_all(bytes, routes);
      routes[root].recv_bytes = bytes;
      break;
    case OpKind::gather:
      if (me == root) receive_blocks(operation, routes);
      routes[root].send_bytes = own_bytes(operation, operation.recv_counts, me);
      break;
    case OpKind::all_gather:
      receive_blocks(operation, routes);
      send_to_all(routes[me].recv_bytes, routes);
      break;
    case OpKind::scatter:
      if (me == root) send_blocks(operation, routes);
      routes[root].recv_bytes = own_bytes(operation, operation.send_counts, me);
      break;
    case OpKind::reduce_scatter:
      send_blocks(operation, routes);
      receive_from_all(routes[me].send_bytes, routes);
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
