// Assigns the ranks of a round and what follows from them: base ranks as prefix sums, the address
// of the store. Pure functions of one round's nodes; the order of the claims does not matter.
//
// Rules by priority: a node rank given by the user; the rank of the last round; rank 0, if free,
// for the host's own agent; nodes whose rank is taken or beyond a smaller round fill the holes by
// their former ranks, the lowest first; the others fill the rest in natural order of host names.
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
  int last_rank = -1;            // Node rank in the previous round; -1: none.
  bool is_host = false;
  int slots = 1;
  std::string_view role;
  std::string_view dialled;
};

// Returns the rank of each claim, in the order of the claims. O(N log N).
std::vector<int> assign_ranks(const std::vector<RankClaim>& claims);

// Returns each claim's Round without epoch, port and budgets, in the order of the claims.
std::vector<Round> lay_out(const std::vector<RankClaim>& claims);

// Returns each node's address of the store: the most frequent one dialled (of those that are not
// loopback, if any), but a node that dialled another family keeps its own.
std::vector<std::string> master_addresses(const std::vector<std::string_view>& dialled);

// True if an address is loopback, or `localhost`.
bool is_loopback(std::string_view address);

// Sorts "node2" before "node10". A total order: only equal names are equivalent.
bool natural_less(std::string_view a, std::string_view b);

}  // namespace muster::membership
