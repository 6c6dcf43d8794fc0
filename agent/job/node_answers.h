// Joins the answers of the nodes that have the selected ranks. Pure; trusts neither the host's list
// of nodes nor an answer: a node speaks only for the ranks that it was asked for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "agent/control/control_protocol.h"
#include "agent/job/hang_bundle.h"
#include "rendezvous/base/error.h"

namespace muster {

std::vector<int> selected_ranks(const control::RankRanges& ranges, int world_size);
// "rank 99 is not of this job, whose ranks are 0-15"; empty: all of them are.
std::string strangers_text(const control::RankRanges& ranges, int world_size);
// "node-b (ranks 4-7)".
std::string node_with_ranks(std::string_view node, int first_rank, int workers);

// Fails if the answer would hold up the agent's loop for longer than 0.4 s.
std::optional<Error> too_many_calls(size_t ranks, int lines);

struct NodeAnswer {
  int node_rank = -1;      // -1: the node is unknown.
  std::string node;        // "node-b (ranks 4-7)"; empty: there is no other.
  std::vector<int> ranks;  // Those that it is asked for, sorted.
  Result<control::Reply> reply = fail(ExitCode::environment, "it was not asked");
};

// One for each node that has any of `ranks` (sorted), and one without a node for ranks of no node.
std::vector<NodeAnswer> nodes_to_ask(const std::vector<int>& ranks,
                                     const std::vector<membership::NodeLine>& nodes);

// Sorted by rank.
Result<control::Records> joined_records(const std::vector<NodeAnswer>& answers,
                                        const std::string& strangers);
// Sorted by rank, but ranks in no call come first: others may wait for them.
Result<control::Stacks> joined_stacks(const std::vector<NodeAnswer>& answers,
                                      const std::string& strangers);
// The variables of the nodes that have answered; `unanswered` gets a line for each other node.
std::vector<NodeVariables> joined_variables(const std::vector<NodeAnswer>& answers,
                                            std::vector<std::string>& unanswered);

}  // namespace muster
