// What a group is to be, worked out from what was asked for. Pure.
// A group of the same ranks that is made again gets another id, on all of its members the same.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "muster/process_group.h"
#include "worker_lib/members.h"

namespace muster::worker {

struct GroupPlan {
  // The same on all members, and no other group's: "world", or ranks_digest() and a number.
  std::string id;
  std::string name;
  std::vector<GlobalRank> ranks;
  std::chrono::milliseconds timeout;
  Backend backend;
  const char* made_by;  // "new_group": for messages.
};

// Why there can be no such group; empty: there can.
std::string check_group(std::span<const GlobalRank> ranks, int world_size,
                        const GroupOptions& options);

// What no name may have in it, and no text that others print.
inline bool is_control(char c) {
  return static_cast<unsigned char>(c) < ' ' || c == '\x7f';
}

// "group of ranks 0-3,7", cut to what a name may have.
std::string default_group_name(std::span<const GlobalRank> ranks);

// Of the ranks and their order, and of nothing else: the same on every member. Short lists can be
// read in it: "0-3,7" (rank_runs.h).
std::string ranks_digest(std::span<const GlobalRank> ranks);

// The peers of `world` by group rank; me == -1 where this process is not among them.
Members members_among(const Members& world, std::span<const GlobalRank> ranks);

// One rank's split() call, as all of them are gathered.
struct SplitChoice {
  int64_t color;
  int64_t key;
};

// The ranks that chose `color`, by key and then by their order. `choices`: by rank of the group.
std::vector<GlobalRank> ranks_of_color(std::span<const SplitChoice> choices,
                                       std::span<const GlobalRank> ranks, int64_t color);

}  // namespace muster::worker
