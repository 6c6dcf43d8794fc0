// Short texts for lists of ranks, in order: "0-3,7". They name groups in store keys and in
// messages, which must stay readable with a thousand ranks. Pure.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "muster/types.h"
#include "rendezvous/base/text.h"

namespace muster::worker {

// Joins at least `least` consecutive ranks into a run.
inline std::string rank_runs(std::span<const GlobalRank> ranks, size_t least = 2) {
  std::string runs;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end].value == ranks[end - 1].value + 1)
      ++end;
    if (end - i < least) end = i + 1;
    if (i > 0) runs += ',';
    runs += std::to_string(ranks[i].value);
    if (end - i > 1) runs += '-' + std::to_string(ranks[end - 1].value);
    i = end;
  }
  return runs;
}

// True if the rank is in `runs`, which is read up to the first malformed place.
inline bool is_in_runs(std::string_view runs, int rank) {
  while (!runs.empty()) {
    const std::optional<int> first = take_number<int>(runs);
    std::optional<int> last = first;
    if (first && runs.starts_with('-')) {
      runs.remove_prefix(1);
      last = take_number<int>(runs);
    }
    if (!last || (!runs.empty() && runs.front() != ',')) return false;
    if (*first <= rank && rank <= *last) return true;
    runs.remove_prefix(std::min<size_t>(runs.size(), 1));
  }
  return false;
}

}  // namespace muster::worker
