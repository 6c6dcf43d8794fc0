#include "worker_lib/members.h"

#include <map>

#include <fmt/format.h>

namespace muster::worker {

std::vector<int> firsts_of_nodes(const Members& world) {
  std::map<std::string, int> first_of;
  std::vector<int> firsts;
  for (int rank = 0; rank < world.size(); ++rank)
    firsts.push_back(first_of.try_emplace(world[rank].node, rank).first->second);
  return firsts;
}

std::vector<int> known_ranks(const Members& world) {
  std::vector<int> known;
  bool all_same = true;
  for (const Peer& peer : world.peers) {
    known.push_back(peer.known_rank());
    all_same = all_same && peer.known_rank() == peer.rank.value;
  }
  return all_same ? std::vector<int>{} : known;
}

std::string describe(const Peer& peer) {
  return fmt::format("rank {} ({}, pid {})", peer.known_rank(), peer.host, peer.pid);
}

}  // namespace muster::worker
