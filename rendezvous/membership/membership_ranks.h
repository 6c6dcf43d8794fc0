// Assigns the ranks of a round and what follows from them: base ranks as prefix sums, the address
// of the store. Pure functions of one round's nodes; the order of the claims does not matter.
//
// The rules by priority: a node rank that the user gave; the rank of the last round; the host's own
// agent gets 0 if it is free; ranks that the smaller round no longer has move into the holes, the
// lowest first; the others fill the holes in natural order of host names.
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
  std::optional<int> node_rank;  // Given by the user.
  int last_rank = -1;            // In the previous round; -1: it was in none.
  bool is_host = false;
  int slots = 1;
  std::string_view role;
  std::string_view dialled;
};

// The rank of each claim, in the order of the claims. O(N log N).
std::vector<int> assign_ranks(const std::vector<RankClaim>& claims);

// Each claim's Round without epoch, port and budgets, in the order of the claims.
std::vector<Round> lay_out(const std::vector<RankClaim>& claims);

// The store's address for each of the nodes that reached the host at the addresses `dialled`: the
// most frequent one that is not loopback, but a node that dialled another family keeps its own. If
// all of them dialled loopback, the most frequent loopback address.
std::vector<std::string> master_addresses(const std::vector<std::string_view>& dialled);

// Whether an address as nodes name it is loopback; an empty one is.
bool is_loopback(std::string_view address);

// "node2" is before "node10". A total order: only equal names are equivalent.
bool natural_less(std::string_view a, std::string_view b);

}  // namespace muster::membership
