// Who gets which rank in a round, and what follows from it: base ranks as prefix sums, the address
// of the store. Pure functions of one round's nodes; the order of the claims does not matter.
//
// The rules, the earlier ones first: a node rank that the user gave; the rank of the last round;
// the host's own agent is 0 if nobody else is; ranks that the smaller round no longer has move into
// the holes, the lowest first; the rest fills the holes in natural order of host names.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/membership/agent_protocol.h"

namespace muster::membership {

struct RankClaim {
  AgentId agent;
  std::string_view host_name;
  std::optional<int> node_rank;  // That the user gave.
  int last_rank = -1;            // In the round before, -1: it was in none.
  bool is_host = false;
  int slots = 1;
  std::string_view role;
  std::string_view dialled;
};

// The rank of each claim, in the order of the claims. O(N log N).
std::vector<int> assign_ranks(const std::vector<RankClaim>& claims);

// Everything of a round but epoch, port and budgets, in the order of the claims.
std::vector<Round> lay_out(const std::vector<RankClaim>& claims);

// The address of the store for each of those who reached the host under the addresses `dialled`:
// that of the majority that is not loopback, unless one dialled another family. If all of them
// dialled loopback, the majority's loopback address.
std::vector<std::string> master_addresses(const std::vector<std::string_view>& dialled);

// "node2" is before "node10". Total: only equal names are equivalent.
bool natural_less(std::string_view a, std::string_view b);

}  // namespace muster::membership
