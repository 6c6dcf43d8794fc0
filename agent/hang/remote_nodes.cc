#include "agent/hang/remote_nodes.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace muster::hang {

RemoteNodes::RemoteNodes(int world_size, int base_rank, int workers)
    : base_rank_(base_rank),
      workers_(workers),
      ranks_(static_cast<size_t>(std::max(world_size, 0))) {}

std::vector<Event> RemoteNodes::take(int node_rank, const NodeDigest& digest) {
  std::vector<Event> events;
  note_node(node_rank, digest, events);
  std::vector<Event> lives;
  std::vector<Event> ends;
  for (const RankNews& news : digest.ranks) {
    Rank* const rank = rank_of(node_rank, news.rank);
    if (rank == nullptr) continue;
    rank->place = {node_rank, digest.host, news.pid, news.device};
    note_digest(*rank, news, events);
    if (news.life && (!rank->life || news.life->at > *rank->life)) {
      rank->life = news.life->at;
      lives.push_back(LifeSeen{news.rank, news.life->life, news.life->at});
    }
    // Its last digest comes first: it decides whether the end is to blame.
    if (!news.code || rank->has_ended || rank->version < news.version) continue;
    rank->has_ended = true;
    ends.push_back(Ended{news.rank, *news.code});
  }
  std::ranges::move(lives, std::back_inserter(events));
  std::ranges::move(ends, std::back_inserter(events));
  return events;
}

void RemoteNodes::note_node(int node_rank, const NodeDigest& digest, std::vector<Event>& events) {
  Node& node = nodes_[node_rank];
  node.heard = std::max(node.heard, digest.heard);
  if (digest.jumps > node.jumps) {
    node.jumps = digest.jumps;
    events.push_back(Jumped{});
  }
  const bool was_suspended = !suspended_.empty();
  if (digest.is_suspended) {
    suspended_.insert(node_rank);
  } else {
    suspended_.erase(node_rank);
  }
  if (was_suspended == !suspended_.empty()) return;
  if (was_suspended) {
    events.push_back(Resumed{});
  } else {
    events.push_back(Suspended{});
  }
}

// A digest that is not newer by its time (its clock was corrected) would be dropped by the
// detector, so its confirmations are ignored too.
void RemoteNodes::note_digest(Rank& rank, const RankNews& news, std::vector<Event>& events) {
  if (news.digest && news.version > rank.version &&
      (news.digest->at > rank.at || news.digest->is_last)) {
    rank.version = news.version;
    rank.at = news.digest->at;
    RankDigest digest = *news.digest;
    digest.rank = news.rank;
    events.push_back(Digested{std::move(digest)});
  }
  if (news.version == 0 || news.version != rank.version || news.at <= rank.at) return;
  rank.at = news.at;
  events.push_back(Confirmed{news.rank, news.at});
}

// nullptr: the node may not report it.
RemoteNodes::Rank* RemoteNodes::rank_of(int node_rank, int rank) {
  if (rank < 0 || static_cast<size_t>(rank) >= ranks_.size()) return nullptr;
  if (rank >= base_rank_ && rank - base_rank_ < workers_) return nullptr;
  Rank& one = ranks_[static_cast<size_t>(rank)];
  return one.place.node_rank < 0 || one.place.node_rank == node_rank ? &one : nullptr;
}

const RemoteNodes::Place* RemoteNodes::place_of(int rank) const {
  if (rank < 0 || static_cast<size_t>(rank) >= ranks_.size()) return nullptr;
  const Place& place = ranks_[static_cast<size_t>(rank)].place;
  return place.node_rank < 0 ? nullptr : &place;
}

std::vector<int> RemoteNodes::ended_on(int node_rank) const {
  std::vector<int> ended;
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (ranks_[rank].has_ended && ranks_[rank].place.node_rank == node_rank)
      ended.push_back(static_cast<int>(rank));
  }
  return ended;
}

uint64_t RemoteNodes::heard_by(int node_rank) const {
  const auto node = nodes_.find(node_rank);
  return node == nodes_.end() ? 0 : node->second.heard;
}

std::map<int, std::vector<int>> RemoteNodes::by_node(const std::vector<int>& ranks) const {
  std::map<int, std::vector<int>> nodes;
  for (const int rank : ranks) {
    if (const Place* const place = place_of(rank)) nodes[place->node_rank].push_back(rank);
  }
  return nodes;
}

}  // namespace muster::hang
