// Parsers of ranks and their streams: --redirects and --tee ("3" or "0:1,1:3"),
// --local-ranks-filter ("0,2"), --ranks ("0,8-15"). Pure; problems are phrases as in values.h.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "agent/launch_spec.h"
#include "launcher/values/values.h"

namespace muster {

// Parses one digit 0..3 for all local ranks, or RANK:DIGIT pairs, of which the last for a rank
// wins. Ranks of several digits are our extension.
Parsed<StreamsByRank> parse_streams(std::string_view text);

// Returns the ranks sorted, each once.
Parsed<std::vector<int>> parse_local_ranks(std::string_view text);

// Returns inclusive ranges in the order given.
Parsed<std::vector<std::pair<int, int>>> parse_rank_ranges(std::string_view text);

}  // namespace muster
