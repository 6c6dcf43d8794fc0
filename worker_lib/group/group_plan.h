// Properties of a group to be made, derived from the arguments of the call that makes it. Pure. A
// second group of the same ranks gets another id, equal on all its members.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "muster/process_group.h"
#include "worker_lib/members.h"

namespace muster::worker {

struct GroupPlan {
  // Equal on all members and unique to the group: "world", or ranks_digest() and a number.
  std::string id;
  std::string name;
  std::vector<GlobalRank> ranks = {};
  std::chrono::milliseconds timeout;
  Backend backend;
  const char* made_by;  // "new_group"; used in messages.
};

// Why such a group cannot be made; empty: it can.
std::string check_group(std::span<const GlobalRank> ranks, int world_size,
                        const GroupOptions& options);

std::string check_group_name(std::string_view name);
// Checks the name and the time-out.
std::string check_group_options(const GroupOptions& options);

// True for characters not allowed in names and in texts that other ranks print.
inline bool is_control(char c) {
  return static_cast<unsigned char>(c) < ' ' || c == '\x7f';
}

// "group of ranks 0-3,7", cut to the maximum length of a name; " (#2)" follows for the second group
// of these ranks in this order, by its `number`.
std::string default_group_name(std::span<const GlobalRank> ranks, uint64_t number = 1);

// Returns an id that depends only on the ranks and their order; short: "0-3,7" (rank_runs.h).
std::string ranks_digest(std::span<const GlobalRank> ranks);

// Returns the peers of `world` by group rank; me == -1 if this process is not among them.
Members members_among(const Members& world, std::span<const GlobalRank> ranks);

// One rank's arguments of split().
struct SplitChoice {
  int64_t color;
  int64_t key;
};

// Returns the ranks that chose `color`, by key, then by group rank, which indexes `choices`.
std::vector<GlobalRank> ranks_of_color(std::span<const SplitChoice> choices,
                                       std::span<const GlobalRank> ranks, int64_t color);

}  // namespace muster::worker
