// The bundle of a hang, one file for programs and for bug reports: what was found, what each rank
// has called and where it is, and how the nodes' variables differ (schema.md, "hang_N.json and
// dump_N.json"). `musterctl dump` writes the same without a verdict. A value that may be a secret
// stays on its node: others get 16 bits of its digest, which tell values apart (except for one in
// 65,536 pairs) and are too few to recover it. Pure.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "agent/control/control_protocol.h"
#include "agent/report/job_report.h"

namespace muster {

inline constexpr size_t kBundleBytesMax = size_t{64} << 20;
inline constexpr size_t kBundleRanksMax = 512;
inline constexpr int kBundleCalls = 64;  // The last calls of each rank.

struct NodeVariables {
  int node_rank = 0;
  control::Variables variables;
};

struct HangBundle {
  WallTime time{};
  std::string run_id;
  std::optional<HangReport> verdict;  // Not set: a dump.
  std::string text;                   // The verdict as it was printed.
  int world_size = 0;
  std::vector<int> ranks;  // Those that were asked, the most important first.
  std::vector<RankRecords> records;
  std::vector<RankStacks> stacks;
  std::vector<NodeVariables> variables;
  std::vector<std::string> unanswered;
};

// The ranks that a verdict names, then those that wait for them, then all others.
std::vector<int> bundle_ranks(const std::optional<HangReport>& verdict, int world_size,
                              size_t ranks_max = kBundleRanksMax);

// Leaves out the last of `ranks` if there is no room for them.
std::string bundle_file(const HangBundle& bundle, size_t bytes_max = kBundleBytesMax);

// What other nodes may see of an environment; leaves out variables meant to differ, such as RANK.
control::Variables shown_variables(const std::map<std::string, std::string>& environment);

// The variables that are not the same on all nodes, by name.
nlohmann::ordered_json differing_variables(const std::vector<NodeVariables>& nodes);

}  // namespace muster
