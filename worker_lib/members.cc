#include "worker_lib/members.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/base/text.h"

namespace muster::worker {

std::vector<int> firsts_of_nodes(const Members& world) {
  std::map<std::string, int> first_of;
  std::vector<int> firsts;
  for (int rank = 0; rank < world.size(); ++rank)
    firsts.push_back(first_of.try_emplace(world[rank].node, rank).first->second);
  return firsts;
}

KnownRanks known_ranks(const Members& world) {
  const auto is_same = [](const Peer& peer) { return peer.known_rank() == peer.rank.value; };
  if (std::ranges::all_of(world.peers, is_same)) return nullptr;
  std::vector<int> known;
  for (const Peer& peer : world.peers)
    known.push_back(peer.known_rank());
  return std::make_shared<const std::vector<int>>(std::move(known));
}

std::vector<GlobalRank> as_known(std::vector<GlobalRank> ranks, const KnownRanks& known) {
  if (known == nullptr) return ranks;
  for (GlobalRank& rank : ranks) {
    const auto place = static_cast<size_t>(rank.value);
    if (place < known->size()) rank.value = (*known)[place];
  }
  std::ranges::sort(ranks, {}, &GlobalRank::value);
  return ranks;
}

std::string describe(const Peer& peer) {
  return fmt::format("rank {} ({}, pid {})", peer.known_rank(), peer.host, peer.pid);
}

std::string describe(const std::vector<Peer>& peers) {
  constexpr size_t kNamedMax = 8;
  std::vector<std::string> names;
  for (const Peer& peer : peers)
    names.push_back(describe(peer));
  return listed(names, kNamedMax);
}

}  // namespace muster::worker
