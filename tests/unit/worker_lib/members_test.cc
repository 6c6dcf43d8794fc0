#include "worker_lib/members.h"

#include <vector>

#include <gtest/gtest.h>

namespace muster::worker {
namespace {

const Peer kSomebody{GlobalRank{7}, "boot/net/user", "node7", 4711, "10.0.0.7"};

TEST(Members, ARankIsNamedByItsHostAndProcess) {
  EXPECT_EQ(describe(kSomebody), "rank 7 (node7, pid 4711)");
  EXPECT_EQ(describe(Peer{}), "rank -1 (, pid 0)");
}

// A group's ranks count from 0, whatever its members' ranks in the job.
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

TEST(Members, PeersThatDifferInAnythingAreDifferent) {
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
