#include "worker_lib/group/group_plan.h"

#include <algorithm>
#include <bit>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/base/text.h"
#include "worker_lib/rank_runs.h"

namespace muster::worker {

namespace {

constexpr size_t kNameBytesMax = 64;

}  // namespace

std::string check_group_name(std::string_view name) {
  if (name.size() > kNameBytesMax)
    return fmt::format("the name has {} characters; {} are allowed", name.size(), kNameBytesMax);
  return std::ranges::any_of(name, is_control) ? "the name has control characters" : "";
}

std::string check_group_options(const GroupOptions& options) {
  if (std::string why = check_group_name(options.name); !why.empty()) return why;
  if (!options.timeout || options.timeout->count() > 0) return {};
  return fmt::format("the timeout of {} ms leaves no time", options.timeout->count());
}

std::string check_group(std::span<const GlobalRank> ranks, int world_size,
                        const GroupOptions& options) {
  if (ranks.empty()) return "a group needs at least one rank";
  std::vector<bool> seen(static_cast<size_t>(world_size));
  for (const GlobalRank rank : ranks) {
    if (rank.value < 0 || rank.value >= world_size) {
      return fmt::format("rank {} is not in the job, whose ranks are 0 to {}", rank.value,
                         world_size - 1);
    }
    if (seen[static_cast<size_t>(rank.value)]) return fmt::format("rank {} twice", rank.value);
    seen[static_cast<size_t>(rank.value)] = true;
  }
  return check_group_options(options);
}

std::string default_group_name(std::span<const GlobalRank> ranks, uint64_t number) {
  std::string name = ranks.size() == 1 ? "group of rank " : "group of ranks ";
  name += rank_runs(ranks, 3);
  std::string tail = number > 1 ? fmt::format(" (#{})", number) : "";
  if (name.size() + tail.size() <= kNameBytesMax) return name + tail;
  tail = fmt::format(",... ({} ranks)", ranks.size()) + tail;
  return name.substr(0, kNameBytesMax - tail.size()) + tail;
}

// Hashes long lists: two lists of one job do not collide by chance.
std::string ranks_digest(std::span<const GlobalRank> ranks) {
  if (std::string runs = rank_runs(ranks); runs.size() <= kNameBytesMax) return runs;
  static_assert(sizeof(GlobalRank) == 4 && std::endian::native == std::endian::little);
  const std::string_view bytes(reinterpret_cast<const char*>(ranks.data()), ranks.size_bytes());
  return fmt::format("{}-x{:016x}", ranks.size(), fnv1a(bytes));
}

Members members_among(const Members& world, std::span<const GlobalRank> ranks) {
  Members made;
  for (const GlobalRank rank : ranks) {
    if (rank.value == world.me) made.me = made.size();
    made.peers.push_back(world[rank.value]);
  }
  return made;
}

std::vector<GlobalRank> ranks_of_color(std::span<const SplitChoice> choices,
                                       std::span<const GlobalRank> ranks, int64_t color) {
  std::vector<std::pair<int64_t, size_t>> chosen;  // Key and index: unique.
  for (size_t i = 0; i < choices.size(); ++i) {
    if (choices[i].color == color) chosen.emplace_back(choices[i].key, i);
  }
  std::ranges::sort(chosen);
  std::vector<GlobalRank> made;
  for (const auto& [key, index] : chosen)
    made.push_back(ranks[index]);
  return made;
}

}  // namespace muster::worker
