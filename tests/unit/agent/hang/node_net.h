// The nodes of a job on virtual time: each but the first reports through its NodeReporter and a
// channel that delays, loses, repeats and reorders, to the RemoteNodes of the first one, where the
// detector runs. Each node has its own clock, which the reader knows with an error.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "agent/hang/node_reporter.h"
#include "agent/hang/remote_nodes.h"
#include "rendezvous/base/prng.h"

namespace muster::hang {

struct Channel {
  Duration delay{};  // The maximum; each message draws its own.
  int lost = 0;      // Percent.
  int repeated = 0;  // Percent.
  // This rank's digests are altered at random. Unless it is on the first node, its node also lies
  // about other nodes' ranks.
  int garbage = -1;
};

class NodeNet {
 public:
  // Error of the reader's estimate of another node's clock.
  static constexpr Duration kClockError = std::chrono::milliseconds(2);

  // `tell` gets the events for the detector. `ranks_of`: how many ranks each node has.
  NodeNet(const std::vector<int>& ranks_of, const Channel& channel, uint64_t seed,
          std::function<void(const Event&)> tell);

  // Lead of the clock of the rank's node.
  Duration ahead(int rank) const;
  // Reports what the agent of the rank's node sees; the event's times are by that node's clock.
  void see(Instant now, int rank, const Event& event);
  // Called when all nodes have looked at all their ranks.
  void looked(Instant now);
  void look_at(Instant now, const std::vector<int>& ranks);  // The detector's LookAt.
  // Ranks whose processes are to be looked at now, as far as their nodes know.
  std::vector<int> wanted(Instant now) const;
  void deliver(Instant now);

  size_t bytes_sent(int node) const { return nodes_[static_cast<size_t>(node)].bytes; }

 private:
  struct Node {
    int base_rank = 0;
    int workers = 0;
    Duration ahead{};
    NodeReporter reporter;
    size_t bytes = 0;
    int messages = 0;
  };
  struct Letter {
    Instant sent{};
    int node = 0;  // The sender, or the receiver if it is a list of ranks.
    std::string bytes;
    std::vector<int> ranks;
  };

  void send(Instant now, Letter letter);
  std::string lie(const Node& node, const std::string& bytes);
  Node& node(int index) { return nodes_[static_cast<size_t>(index)]; }
  void ask(Instant now);

  const Channel channel_;
  const std::function<void(const Event&)> tell_;
  Prng prng_;
  std::vector<Node> nodes_;
  std::vector<int> node_of_;  // By rank.
  RemoteNodes others_;
  std::vector<int> looked_at_;
  Instant asked_{};
  std::multimap<Instant, Letter> letters_;  // By arrival, then in the order of sending.
};

}  // namespace muster::hang
