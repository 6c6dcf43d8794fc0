// Of ranks that should all have said the same: who is wrong. The majority is taken to be right, as
// a bug that depends on the rank mostly hits few of them. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace muster::worker {

struct Camps {
  size_t usual = 0;              // One that said what most say, the lowest of them.
  std::vector<size_t> blamed{};  // Ascending: none where all said the same.
};

// Those that differ from most; where no camp is larger than every other all of them, since nobody
// can tell which is right.
template <typename Said>
Camps camps_of(const std::vector<Said>& said) {
  const auto times = [&](const Said& one) { return std::count(said.begin(), said.end(), one); };
  Camps camps;
  for (size_t i = 1; i < said.size(); ++i) {
    if (times(said[i]) > times(said[camps.usual])) camps.usual = i;
  }
  const auto most = said.empty() ? 0 : times(said[camps.usual]);
  const bool is_tie = std::ranges::any_of(
      said, [&](const Said& one) { return !(one == said[camps.usual]) && times(one) == most; });
  for (size_t i = 0; i < said.size(); ++i) {
    if (is_tie || !(said[i] == said[camps.usual])) camps.blamed.push_back(i);
  }
  return camps;
}

}  // namespace muster::worker
