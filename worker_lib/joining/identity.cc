#include "worker_lib/joining/identity.h"

#include <fmt/format.h>

#include "worker_lib/members.h"

namespace muster::worker {

std::string describe(const Peer& peer) {
  return fmt::format("rank {} ({}, pid {})", peer.rank.value, peer.host, peer.pid);
}

}  // namespace muster::worker
