#include "worker_lib/members.h"

#include <vector>

#include <gtest/gtest.h>

namespace muster::worker {
namespace {

const Peer kSomebody{GlobalRank{7}, "boot/net/user", "node7", 4711, "10.0.0.7"};

TEST(Members, ARankIsDescribedByItsHostAndProcess) {
  EXPECT_EQ(describe(kSomebody), "rank 7 (node7, pid 4711)");
  EXPECT_EQ(describe(Peer{}), "rank -1 (, pid 0)");
  Peer known = kSomebody;
  known.known_as = 2;
  EXPECT_EQ(describe(known), "rank 2 (node7, pid 4711)");
}

TEST(Members, EightRanksAreNamedAndTheOthersCounted) {
  std::vector<Peer> peers(2, kSomebody);
  EXPECT_EQ(describe(peers), "rank 7 (node7, pid 4711) and rank 7 (node7, pid 4711)");
  peers.resize(8, kSomebody);
  EXPECT_FALSE(describe(peers).ends_with("other"));
  peers.resize(9, kSomebody);
  EXPECT_TRUE(describe(peers).ends_with("rank 7 (node7, pid 4711) and 1 other"));
}

// A group's ranks count from 0, whatever the global ranks of its members.
TEST(Members, AreIndexedByTheirRankInTheGroup) {
  Members members;
  EXPECT_EQ(members.size(), 0);
  Peer other = kSomebody;
  other.rank = GlobalRank{2};
  members.peers = {kSomebody, other};
  members.me = 1;
  EXPECT_EQ(members.size(), 2);
  EXPECT_EQ(members[0], kSomebody);
  EXPECT_EQ(members.self(), other);
}

TEST(Members, HaveKnownRanksOnlyIfOneDiffers) {
  Members members;
  for (const int rank : {0, 1})
    members.peers.push_back({GlobalRank{rank}, "node", "host", 1, ""});
  EXPECT_EQ(known_ranks(members), nullptr);
  members.peers[0].known_as = 0;
  EXPECT_EQ(known_ranks(members), nullptr);
  members.peers[0].known_as = 4;
  const KnownRanks known = known_ranks(members);
  ASSERT_NE(known, nullptr);
  EXPECT_EQ(*known, (std::vector<int>{4, 1}));
  const std::vector<GlobalRank> ranks{{0}, {1}, {9}};
  EXPECT_EQ(as_known(ranks, nullptr), ranks);
  EXPECT_EQ(as_known(ranks, known), (std::vector<GlobalRank>{{1}, {4}, {9}}));
}

TEST(Members, PeersThatDifferInAnyFieldAreUnequal) {
  std::vector<Peer> others(5, kSomebody);
  others[0].rank = GlobalRank{8};
  others[1].node += "x";
  others[2].host += "x";
  others[3].pid += 1;
  others[4].address += "0";
  for (const Peer& other : others)
    EXPECT_NE(other, kSomebody);
}

}  // namespace
}  // namespace muster::worker
