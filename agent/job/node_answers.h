// An answer of a whole job for musterctl: which nodes have the ranks that were selected, and what
// each of them said, put together. Pure; trusts neither the host's list of nodes nor what other
// nodes answer: each speaks for the ranks that it was asked for, and for no others.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/control/control_protocol.h"
#include "agent/job/hang_bundle.h"
#include "rendezvous/base/error.h"

namespace muster {

// The ranks of a job of `world_size`.
std::vector<int> selected_ranks(const control::RankRanges& ranges, int world_size);
// "rank 99 is not of this job, whose ranks are 0-15"; empty: all are.
std::string strangers_text(const control::RankRanges& ranges, int world_size);
// "node-b (ranks 4-7)".
std::string node_with_ranks(std::string_view node, int first_rank, int workers);

// An answer with more would hold up the agent's loop for longer than 0.4 s.
std::optional<Error> too_many_calls(size_t ranks, int lines);

struct NodeAnswer {
  int node_rank = -1;      // -1: nobody knows the node.
  std::string node;        // "node-b (ranks 4-7)"; empty: there is no other.
  std::vector<int> ranks;  // That it is asked for, sorted.
  Result<control::Reply> reply = fail(ExitCode::environment, "it was not asked");
};

// A question for each node that has any of `ranks`, which are sorted; one more, without a node, for
// those that none has.
std::vector<NodeAnswer> nodes_to_ask(const std::vector<int>& ranks,
                                     const std::vector<membership::NodeLine>& nodes);

// By rank.
Result<control::Records> joined_records(const std::vector<NodeAnswer>& answers,
                                        const std::string& strangers);
// Likewise, but first those that are in no call: others may wait for them.
Result<control::Stacks> joined_stacks(const std::vector<NodeAnswer>& answers,
                                      const std::string& strangers);
// Of the nodes that have answered; `unanswered` gets a line for each other one.
std::vector<NodeVariables> joined_variables(const std::vector<NodeAnswer>& answers,
                                            std::vector<std::string>& unanswered);

}  // namespace muster
