// The detector's side of NodeReporter: turns the messages of other nodes into events of a Detector.
// A node may report its own ranks only. Pure.
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
  // The place of a rank, as its node reports it.
  struct Place {
    int node_rank = -1;
    std::string host;
    pid_t pid = 0;
    std::string device;
  };

  // Serves one attempt; base_rank .. base_rank + workers - 1 are own ranks, of no other node.
  RemoteNodes(int world_size, int base_rank, int workers);

  // Returns the events of a node's message, in the order to take them. The first node that reports
  // a rank owns it.
  std::vector<Event> take(int node_rank, const NodeDigest& digest);

  const Place* place_of(int rank) const;           // nullptr: not reported yet.
  std::vector<int> ended_on(int node_rank) const;  // The node's ranks that have ended.
  uint64_t heard_by(int node_rank) const;          // The newest finding it received.
  // Splits ranks by the node that owns them, without ranks of unknown nodes.
  std::map<int, std::vector<int>> by_node(const std::vector<int>& ranks) const;

 private:
  struct Rank {
    Place place;
    uint64_t version = 0;         // The newest digest passed on.
    Instant at{};                 // When that was last seen to hold.
    std::optional<Instant> life;  // Time of the newest sample.
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
