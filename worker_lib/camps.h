// Finds the ranks that are wrong where all should agree. The largest camp is taken to be right,
// since a bug that depends on the rank usually hits few of them. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "worker_lib/failure.h"
#include "worker_lib/members.h"

namespace muster::worker {

struct Camps {
  size_t index_of_majority = 0;  // The lowest index in the largest camp.
  std::vector<size_t> blamed{};  // Ascending; empty if all agree.
};

// Blames all outside the largest camp; blames all if it is no larger than every other.
template <typename Said>
Camps camps_of(const std::vector<Said>& said) {
  const auto times = [&](const Said& one) { return std::count(said.begin(), said.end(), one); };
  Camps camps;
  for (size_t i = 1; i < said.size(); ++i) {
    if (times(said[i]) > times(said[camps.index_of_majority])) camps.index_of_majority = i;
  }
  const auto most = said.empty() ? 0 : times(said[camps.index_of_majority]);
  const bool is_tie = std::ranges::any_of(said, [&](const Said& one) {
    return !(one == said[camps.index_of_majority]) && times(one) == most;
  });
  for (size_t i = 0; i < said.size(); ++i) {
    if (is_tie || !(said[i] == said[camps.index_of_majority])) camps.blamed.push_back(i);
  }
  return camps;
}

// Builds the failure for members that gave the values `said`. `words`, such as "{} has {}, and {}
// {}", gets the first one that differs, its value, one of the largest camp, and its value.
template <typename Said>
Failure mismatch_of(const std::vector<Said>& said, const Camps& camps, const Members& members,
                    fmt::format_string<std::string, const Said&, std::string, const Said&> words) {
  Failure failure{ErrorCode::mismatch, {}, {}};
  for (const size_t member : camps.blamed)
    failure.ranks.push_back(members[static_cast<int>(member)].rank);
  std::ranges::sort(failure.ranks);
  const Said& usual = said[camps.index_of_majority];
  const auto other = static_cast<size_t>(
      std::ranges::find_if(said, [&](const Said& one) { return one != usual; }) - said.begin());
  failure.message =
      fmt::format(words, describe(members[static_cast<int>(other)]), said[other],
                  describe(members[static_cast<int>(camps.index_of_majority)]), usual);
  return failure;
}

}  // namespace muster::worker
