// The detector's side of NodeReporter: turns what the other nodes say into the events of a
// Detector. A node may speak of its own ranks only. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/hang/detector_events.h"
#include "agent/hang/node_digest.h"
#include "rendezvous/base/time.h"

namespace muster::hang {

class RemoteNodes {
 public:
  // Where a rank runs, as its node says.
  struct Place {
    int node_rank = -1;
    std::string host;
    pid_t pid = 0;
    std::string device;
  };

  // Of an attempt; own ranks are base_rank .. base_rank + workers - 1, and nobody else's.
  RemoteNodes(int world_size, int base_rank, int workers);

  // The events that a node's message stands for, in the order in which to take them. The first node
  // that speaks of a rank owns it.
  std::vector<Event> take(int node_rank, const NodeDigest& digest);

  const Place* place_of(int rank) const;           // nullptr: nothing was heard of it.
  std::vector<int> ended_on(int node_rank) const;  // The node's ranks that have ended.
  uint64_t heard_by(int node_rank) const;  // The newest finding that the node has been told of.
  // The part of a list of ranks that each node owns, by node rank; without ranks of unknown nodes.
  std::map<int, std::vector<int>> by_node(const std::vector<int>& ranks) const;

 private:
  struct Rank {
    Place place;
    uint64_t version = 0;         // Of the newest digest that was passed on.
    Instant at{};                 // When that was last seen to hold.
    std::optional<Instant> life;  // The newest look.
    bool has_ended = false;
  };
  struct Node {
    uint64_t heard = 0;
    uint64_t jumps = 0;
  };

  void note_node(int node_rank, const NodeDigest& digest, std::vector<Event>& events);
  static void note_digest(Rank& rank, const RankNews& news, std::vector<Event>& events);
  Rank* rank_of(int node_rank, int rank);

  const int base_rank_;
  const int workers_;
  std::vector<Rank> ranks_;
  std::map<int, Node> nodes_;
  std::set<int> suspended_;  // Nodes.
};

}  // namespace muster::hang
