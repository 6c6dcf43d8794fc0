// The bundle of a hang, one file for programs and for reports: what was found, what every rank has
// called and where it is, and how the variables of the nodes differ (schema.md, "hang_N.json and
// dump_N.json"). `musterctl dump` writes the same without a verdict.
//
// Values that may be secrets are left out on the node that has them: other nodes get no more than
// 16 bits of a digest, which tell values apart (but for one in 65,536 pairs) and are too few to
// find one out. Pure.
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
inline constexpr int kBundleCalls = 64;  // Of each rank, the last ones.

struct NodeVariables {
  int node_rank = 0;
  control::Variables variables;
};

struct HangBundle {
  WallTime time{};
  std::string run_id;
  std::optional<HangReport> verdict;  // Not set: it was asked for.
  std::string text;                   // The verdict as it was said.
  int world_size = 0;
  std::vector<int> ranks;  // That were asked, those that matter most first.
  std::vector<RankRecords> records;
  std::vector<RankStacks> stacks;
  std::vector<NodeVariables> variables;
  std::vector<std::string> unanswered;
};

// The ranks that a verdict names, then those that wait for them, then all others.
std::vector<int> bundle_ranks(const std::optional<HangReport>& verdict, int world_size,
                              size_t ranks_max = kBundleRanksMax);

// Ranks for which there is no room, the last ones of `ranks`, are left out.
std::string bundle_file(const HangBundle& bundle, size_t bytes_max = kBundleBytesMax);

// What other nodes may see of a worker's environment.
control::Variables shown_variables(const std::map<std::string, std::string>& environment);

// By name; those that are meant to differ, as RANK, are left out.
nlohmann::ordered_json differing_variables(const std::vector<NodeVariables>& nodes);

}  // namespace muster
