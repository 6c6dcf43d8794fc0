#include "worker_lib/members.h"

#include <fmt/format.h>

namespace muster::worker {

std::string describe(const Peer& peer) {
  return fmt::format("rank {} ({}, pid {})", peer.rank.value, peer.host, peer.pid);
}

}  // namespace muster::worker
