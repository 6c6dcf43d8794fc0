#include "agent/hang/stragglers.h"

#include <algorithm>
#include <set>

namespace muster::hang {

void StragglerTable::take(int node_rank, const Arrivals& arrivals, Duration error) {
  if (arrivals.mean < disturbed_ || arrivals.number <= kStartCalls) return;
  if (!since_) since_ = arrivals.mean;
  if (groups_.size() >= kGroupsMax && !groups_.contains(arrivals.group)) return;
  Group& group = groups_[arrivals.group];
  if (group.size == 0) {
    group.name = arrivals.name;
    group.size = arrivals.size;
  }
  if (arrivals.size != group.size) return;
  group.hides_waits |= arrivals.hides_waits;
  const auto [open, is_new] = group.open.try_emplace(arrivals.ordinal);
  open_ += is_new ? 1 : 0;
  open->second.try_emplace(node_rank, Part{arrivals, error});
  int ranks = 0;
  for (const auto& [node, part] : open->second)
    ranks += part.arrivals.ranks;
  const auto close = [&](std::map<uint64_t, Parts>::iterator call) {
    group.open.erase(call);
    --open_;
  };
  if (ranks >= group.size) {
    if (ranks == group.size && group.size > 1) charge(group, open->second);
    close(open);
  } else if (group.open.size() > kOpenMax || open_ > kOpenOfAllMax) {
    close(group.open.begin());
  }
}

// Charges the last rank of a call that all members have made.
void StragglerTable::charge(Group& group, const Parts& parts) {
  const auto& [last_node, last] = *std::ranges::max_element(
      parts, {}, [](const auto& part) { return part.second.arrivals.last; });
  const Instant end = last.arrivals.last;
  double waited = 0;  // Sum over all others.
  double blocked = -to_seconds(last.arrivals.last_blocked);
  uint64_t stride = 1;
  for (const auto& [node, part] : parts) {
    const Duration unknown = node == last_node ? Duration(0) : part.error + last.error;
    const Duration each = std::max(Duration(0), end - part.arrivals.mean - unknown);
    waited += part.arrivals.ranks * to_seconds(each);
    blocked += part.arrivals.ranks * to_seconds(part.arrivals.mean_blocked);
    stride = std::max(stride, part.arrivals.stride);
  }
  const double others = group.size - 1;
  const double elsewhere = to_seconds(last.arrivals.last_blocked) - blocked / others;
  const double own = waited / others - std::max(0.0, elsewhere);

  const uint64_t number = last.arrivals.number;
  group.first = group.complete == 0 ? number : std::min(group.first, number);
  group.last = std::max(group.last, number);
  ++group.complete;
  const auto weight = static_cast<double>(stride);
  group.stood_for += weight;
  group.nodes = std::max(group.nodes, parts.size());
  if (own < to_seconds(kWaitedMin)) return;
  Charge& charge = group.charges[{last_node, last.arrivals.last_rank}];
  charge.waited += own * weight;
  charge.calls += weight;
}

void StragglerTable::disturb(Instant now) {
  disturbed_ = now;
  for (auto& [id, group] : groups_)
    group.open.clear();
  open_ = 0;
}

// Shares of the group's ranks, and of nodes with several that are slower than the other nodes.
std::vector<Straggler> StragglerTable::shares(const Group& group, double seconds) {
  std::vector<Straggler> found;
  if (group.complete < kCallsMin) return found;
  // Nodes may send any ordinals and strides.
  constexpr double kNumberMax = 1e18;
  const double told = std::clamp(
      static_cast<double>(group.last - group.first + 1) / group.stood_for, 1.0, kNumberMax);
  const auto add = [&](int node_rank, int rank, bool is_node, const Charge& charge) {
    found.push_back({.rank = rank,
                     .node_rank = node_rank,
                     .is_node = is_node,
                     .share = std::min(charge.waited * told / seconds, 1.0),
                     .waited = Duration(static_cast<int64_t>(charge.waited / charge.calls * 1e9)),
                     .calls = static_cast<uint64_t>(std::min(charge.calls * told, kNumberMax)),
                     .group = group.name,
                     .others = group.size - 1,
                     .hides_waits = group.hides_waits});
  };
  struct Node {
    int ranks = 0;
    int last = -1;
    Charge sum;
  };
  std::map<int, Node> nodes;
  for (const auto& [place, charge] : group.charges) {
    add(place.first, place.second, /*is_node=*/false, charge);
    Node& node = nodes[place.first];
    ++node.ranks;
    node.last = place.second;
    node.sum.waited += charge.waited;
    node.sum.calls += charge.calls;
  }
  double all = 0;
  for (const auto& [node_rank, node] : nodes)
    all += node.sum.waited;
  const auto other_nodes = static_cast<double>(group.nodes - 1);
  // A node no slower than the rest shows only noise.
  for (const auto& [node_rank, node] : nodes) {
    if (group.nodes > 1 && node.ranks > 1 &&
        node.sum.waited >= 2 * (all - node.sum.waited) / other_nodes)
      add(node_rank, node.last, /*is_node=*/true, node.sum);
  }
  return found;
}

std::optional<Stragglers> StragglerTable::report(Instant now) {
  Stragglers report{.time = since_ ? now - *since_ : Duration(0), .ranks = {}};
  if (since_) since_ = now;
  std::map<std::pair<int, int>, Straggler> largest;  // By node rank, and rank or -1.
  for (auto& [id, group] : groups_) {
    std::vector<Straggler> found = shares(group, to_seconds(report.time));
    // Where most are late in turn, the work is uneven and no rank is slow.
    const auto late = std::ranges::count_if(
        found, [](const Straggler& one) { return !one.is_node && one.share >= kShareMin; });
    if (2 * late > group.size) found.clear();
    for (Straggler& one : found) {
      Straggler& known = largest[{one.node_rank, one.is_node ? -1 : one.rank}];
      if (one.share > known.share) known = std::move(one);
    }
    group.first = group.last = group.complete = 0;
    group.stood_for = 0;
    group.charges.clear();
  }
  std::erase_if(groups_, [](const auto& one) { return one.second.open.empty(); });
  if (report.time < kTimeMin) return std::nullopt;
  std::set<int> nodes_of_ranks;
  for (auto& [place, one] : largest) {
    if (one.share >= kShareMin && !one.is_node) nodes_of_ranks.insert(one.node_rank);
  }
  // Report a node only if none of its ranks is reported.
  for (auto& [place, one] : largest) {
    const bool is_said = one.is_node && nodes_of_ranks.contains(one.node_rank);
    if (one.share >= kShareMin && !is_said) report.ranks.push_back(std::move(one));
  }
  std::ranges::sort(report.ranks, std::ranges::greater(), &Straggler::share);
  if (report.ranks.size() > kListedMax) report.ranks.resize(kListedMax);
  if (report.ranks.empty()) return std::nullopt;
  return report;
}

}  // namespace muster::hang
