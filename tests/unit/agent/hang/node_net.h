// The nodes of a job on virtual time: each but the first speaks through its NodeReporter and a
// channel that delays, loses, repeats and reorders, to the RemoteNodes of the first one, where the
// detector runs. Each node has its own clock, and the reader knows it with an error.
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
  Duration delay{};  // At most; each piece of news has its own.
  int lost = 0;      // Percent.
  int repeated = 0;  // Percent.
  // This rank's digests are altered at random. If it is not on the first node, that node speaks for
  // other nodes' ranks as well.
  int garbage = -1;
};

class NodeNet {
 public:
  // Of the reader's idea of another node's clock.
  static constexpr Duration kClockError = std::chrono::milliseconds(2);

  // `tell` gets the events for the detector. `ranks_of`: how many ranks each node has.
  NodeNet(const std::vector<int>& ranks_of, const Channel& channel, uint64_t seed,
          std::function<void(const Event&)> tell);

  // By how much the clock of a rank's node is ahead.
  Duration ahead(int rank) const;
  // What the agent of a rank's node sees, by its own clock.
  void see(Instant now, int rank, const Event& event);
  // All nodes have looked at all their ranks.
  void looked(Instant now);
  void look_at(Instant now, const std::vector<int>& ranks);  // As the detector wants it.
  // Whose processes are to be looked at now, as far as their nodes know.
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
    int node = 0;  // That wrote it, or if it is a list of ranks, that gets it.
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
  std::multimap<Instant, Letter> letters_;  // By arrival; those of one time in order.
};

}  // namespace muster::hang
