#include "launcher/values/rank_lists.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

namespace muster {
namespace {

constexpr std::string_view kStreamsRemedy =
    "give 0 (none), 1 (stdout), 2 (stderr) or 3 (both), or RANK:0..3,RANK:0..3";

// Accepts digits only.
std::optional<int> rank_of(std::string_view text) {
  const std::optional<int> rank = whole_number<int>(text);
  return text.starts_with('-') ? std::nullopt : rank;
}

// Returns 0 to 3, or a negative number.
int streams_digit(std::string_view text) {
  return text.size() == 1 && text[0] >= '0' && text[0] <= '3' ? text[0] - '0' : -1;
}

Parsed<std::pair<int, int>> parse_rank_range(std::string_view text) {
  const std::size_t dash = text.find('-');
  const std::string_view from = trim(text.substr(0, dash));
  const std::string_view to = dash == std::string_view::npos ? from : trim(text.substr(dash + 1));
  const std::optional<int> first = rank_of(from);
  const std::optional<int> last = rank_of(to);
  if (!first || !last) {
    return problem(
        fmt::format("{} is neither a rank nor a range; give for example 0,8-15", shown(text)));
  }
  if (*first > *last) {
    return problem(
        fmt::format("the range {} ends before it begins; give {}-{}", shown(text), *last, *first));
  }
  return std::pair<int, int>{*first, *last};
}

}  // namespace

Parsed<StreamsByRank> parse_streams(std::string_view text) {
  StreamsByRank streams;
  if (const int digit = streams_digit(text); digit >= 0) {
    streams.all = static_cast<Streams>(digit);
    return streams;
  }
  for (const std::string_view pair : split(text, ',')) {
    const std::size_t colon = pair.find(':');
    const int digit = colon == std::string_view::npos ? -1 : streams_digit(pair.substr(colon + 1));
    const std::optional<int> rank = rank_of(pair.substr(0, colon));
    if (digit < 0 || !rank) {
      return problem(fmt::format("{} is not understood; {}", shown(pair), kStreamsRemedy));
    }
    streams.by_rank[*rank] = static_cast<Streams>(digit);
  }
  return streams;
}

Parsed<std::vector<int>> parse_local_ranks(std::string_view text) {
  std::vector<int> ranks;
  for (const std::string_view item : split(text, ',')) {
    const Parsed<int> rank = parse_int(item, 0);
    if (!rank) {
      return problem(fmt::format("{} is not a local rank; give for example 0,2", shown(item)));
    }
    ranks.push_back(*rank);
  }
  std::ranges::sort(ranks);
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

Parsed<std::vector<std::pair<int, int>>> parse_rank_ranges(std::string_view text) {
  std::vector<std::pair<int, int>> ranges;
  for (const std::string_view item : split(text, ',')) {
    const Parsed<std::pair<int, int>> range = parse_rank_range(trim(item));
    if (!range) return problem(range.error());
    ranges.push_back(*range);
  }
  return ranges;
}

}  // namespace muster
