// The members of the job and of a group, as every rank knows them after joining. Plain values; they
// never change once the job or the group is made.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "muster/types.h"

namespace muster::worker {

// One process of the job, as it described itself.
struct Peer {
  GlobalRank rank;
  // node_identity(): ranks on one node share memory and abstract Unix sockets.
  std::string node;
  std::string host;     // Shown in messages.
  int pid = 0;          // As seen in its own PID namespace.
  std::string address;  // An IP address at which other nodes reach it.
  // The rank shown in messages for a group made by muster_group_join(); < 0: `rank`.
  int known_as = -1;

  int known_rank() const { return known_as < 0 ? rank.value : known_as; }
  friend bool operator==(const Peer&, const Peer&) = default;
};

struct Members {
  std::vector<Peer> peers;
  int me = -1;  // Group rank of this process.

  int size() const { return static_cast<int>(peers.size()); }
  const Peer& self() const { return peers[static_cast<size_t>(me)]; }
  const Peer& operator[](int rank) const { return peers[static_cast<size_t>(rank)]; }
};

// Returns, for each rank, the lowest rank of its node.
std::vector<int> firsts_of_nodes(const Members& world);

// Peer::known_rank() of each rank; null if all are the ranks themselves.
using KnownRanks = std::shared_ptr<const std::vector<int>>;
KnownRanks known_ranks(const Members& world);
// Translates `ranks` to known ranks, ascending.
std::vector<GlobalRank> as_known(std::vector<GlobalRank> ranks, const KnownRanks& known);

// "rank 2 (node7, pid 4711)": how messages name a rank of the job.
std::string describe(const Peer& peer);
// Names several: "rank 2 (node7, pid 4711) and rank 3 (node7, pid 4712)", at most eight.
std::string describe(const std::vector<Peer>& peers);

}  // namespace muster::worker
