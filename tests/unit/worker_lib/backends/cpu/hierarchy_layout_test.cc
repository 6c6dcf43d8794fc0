#include "worker_lib/backends/cpu/hierarchy_layout.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace muster::worker {
namespace {

// `nodes` has one letter for each member, the name of its node.
Members spread_over(const std::string& nodes, int me = 0) {
  Members members;
  for (size_t i = 0; i < nodes.size(); ++i)
    members.peers.push_back(
        {GlobalRank{static_cast<int>(i) + 50}, std::string(1, nodes[i]), "", 0, ""});
  members.me = me;
  return members;
}

TEST(HierarchyLayout, NodesAreOrderedByTheirFirstMembersNotByName) {
  const NodeLayout layout = NodeLayout::of(spread_over("zazbz"));
  EXPECT_EQ(layout.nodes, (std::vector<std::vector<int>>{{0, 2, 4}, {1}, {3}}));
  EXPECT_EQ(layout.count(), 3);
  EXPECT_EQ(layout.node_at(4), 0);
  EXPECT_EQ(layout.local_at(4), 2);
}

TEST(HierarchyLayout, KnowsEvenAndContiguousLayouts) {
  struct Case {
    const char* nodes;
    bool even;
    bool contiguous;
  };
  const std::vector<Case> cases{
      {"a", false, true},     {"aa", true, true},     {"ab", false, true},  {"aabb", true, true},
      {"abab", true, false},  {"abba", true, false},  {"aab", false, true}, {"abb", false, true},
      {"bbaacc", true, true}, {"aabbab", true, false}};
  for (const Case& one : cases) {
    const NodeLayout layout = NodeLayout::of(spread_over(one.nodes));
    EXPECT_EQ(layout.is_even(), one.even) << one.nodes;
    EXPECT_EQ(layout.is_contiguous(), one.contiguous) << one.nodes;
  }
}

TEST(HierarchyLayout, AColumnHasOneMemberOfEachNode) {
  const NodeLayout layout = NodeLayout::of(spread_over("abba"));
  EXPECT_EQ(layout.column(0), (std::vector<int>{0, 1}));
  EXPECT_EQ(layout.column(1), (std::vector<int>{3, 2}));
}

TEST(HierarchyLayout, MembersOfANodeKeepTheirGlobalRanks) {
  const Members all = spread_over("abab", 3);
  const NodeLayout layout = NodeLayout::of(all);
  const Members here = layout.members_of(all, 1);
  EXPECT_EQ(here.peers, (std::vector<Peer>{all[1], all[3]}));
  EXPECT_EQ(here.self(), all[3]);
  EXPECT_EQ(layout.members_of(all, 0).me, -1);
}

RC_GTEST_PROP(HierarchyLayout, EveryMemberIsOnItsNodeOnce, ()) {
  const auto nodes =
      *rc::gen::nonEmpty(rc::gen::container<std::string>(rc::gen::inRange('a', 'f')));
  const Members members = spread_over(nodes);
  const NodeLayout layout = NodeLayout::of(members);
  size_t placed = 0;
  for (const std::vector<int>& node : layout.nodes) {
    RC_ASSERT(!node.empty() && std::ranges::is_sorted(node));
    placed += node.size();
  }
  RC_ASSERT(placed == nodes.size());
  for (int rank = 0; rank < members.size(); ++rank) {
    const std::vector<int>& node = layout.node(layout.node_at(rank));
    RC_ASSERT(node[static_cast<size_t>(layout.local_at(rank))] == rank);
    RC_ASSERT(members[node.front()].node == members[rank].node);
  }
}

}  // namespace
}  // namespace muster::worker
