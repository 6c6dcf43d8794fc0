#include "worker_lib/joining/identity.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace muster::worker {
namespace {

Members world_of_nodes(const std::string& nodes) {
  Members world;
  for (size_t rank = 0; rank < nodes.size(); ++rank)
    world.peers.push_back(
        {GlobalRank{static_cast<int>(rank)}, std::string(1, nodes[rank]), "", 0, ""});
  return world;
}

RC_GTEST_PROP(Identity, NoTwoRanksHaveTheSamePlace, ()) {
  const auto nodes = *rc::gen::container<std::string>(*rc::gen::inRange<size_t>(1, 17),
                                                      rc::gen::inRange('a', 'e'));
  std::set<std::pair<int, int>> places;
  std::map<int, std::set<std::string>> names;  // Names of the nodes with each node rank.
  for (size_t rank = 0; rank < nodes.size(); ++rank) {
    Identity self;
    self.rank = static_cast<int>(rank);
    complete_place(self, world_of_nodes(nodes));
    RC_ASSERT(self.local_rank >= 0 && self.local_rank < self.local_world_size);
    RC_ASSERT(self.local_world_size == std::count(nodes.begin(), nodes.end(), nodes[rank]));
    RC_ASSERT(places.emplace(self.node_rank, self.local_rank).second);
    names[self.node_rank].insert(std::string(1, nodes[rank]));
  }
  int next = 0;
  for (const auto& [node_rank, of_it] : names) {
    RC_ASSERT(node_rank == next++);
    RC_ASSERT(of_it.size() == 1U);
  }
}

TEST(Identity, CompletesOnlyThePartsThatWereNotGiven) {
  const auto completed = [](Identity self) {
    complete_place(self, world_of_nodes("yxyx"));  // In the order of their ranks, not of names.
    return self;
  };
  Identity given;
  given.rank = 3;
  given.world_size = 4;
  given.local_rank = 7;
  given.local_world_size = 8;
  given.node_rank = 9;
  Identity expected = given;
  expected.local_rank = 1;
  expected.local_world_size = 2;
  expected.node_rank = 1;
  EXPECT_EQ(completed(given), expected);
  for (const PlaceTold told : {PlaceTold{true, false, false}, PlaceTold{false, true, false},
                               PlaceTold{false, false, true}, PlaceTold{true, true, true}}) {
    Identity self = given;
    Identity kept = expected;
    self.place_told = kept.place_told = told;
    if (told.local_rank) kept.local_rank = 7;
    if (told.local_world_size) kept.local_world_size = 8;
    if (told.node_rank) kept.node_rank = 9;
    EXPECT_EQ(completed(self), kept);
  }
}

}  // namespace
}  // namespace muster::worker
