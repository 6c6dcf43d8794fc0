#include "worker_lib/group/group_shutdown.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace muster::worker {
namespace {

Members three() {
  Members members;
  for (int rank = 0; rank < 3; ++rank)
    members.peers.push_back({GlobalRank{10 + rank}, "node", "host", 100 + rank, "127.0.0.1"});
  members.me = 0;
  return members;
}

TEST(GroupShutdown, OperationsUpToTheNoticeGoOnAndLaterOnesNameWhoIsGone) {
  const Members members = three();
  GroupShutdown departures(members);
  EXPECT_EQ(departures.missing_in(0, 1000), std::nullopt);
  departures.gave_notice(2, {7, 1});
  EXPECT_EQ(departures.missing_in(0, 7), std::nullopt);
  EXPECT_EQ(departures.missing_in(1, 1), std::nullopt);
  EXPECT_EQ(departures.missing_in(1, 2)->ranks, std::vector<GlobalRank>{{12}});
  departures.gave_notice(1, {5, 0});
  EXPECT_EQ(departures.missing_in(0, 6)->ranks, std::vector<GlobalRank>{{11}});
  const auto both = departures.missing_in(0, 8);
  EXPECT_EQ(both->ranks, (std::vector<GlobalRank>{{11}, {12}}));
  EXPECT_EQ(both->code, ErrorCode::peer_failed);
  EXPECT_EQ(both->message,
            "rank 12 (host, pid 102), rank 11 (host, pid 101) left (destroy_process_group) before "
            "this operation");
}

TEST(GroupShutdown, ARankIsGoneWhenItHasLeftAndNotWhenItGaveNotice) {
  const Members members = three();
  GroupShutdown departures(members);
  departures.gave_notice(1, {1, 0});
  EXPECT_FALSE(departures.gone(1));
  EXPECT_TRUE(departures.left(1, {9, 9}));
  EXPECT_TRUE(departures.gone(1));
  EXPECT_FALSE(departures.gone(-1));
  EXPECT_FALSE(departures.left(2, {3, 0}));
  EXPECT_TRUE(departures.gone(-1));
  // Without a notice it has taken part in what this rank has begun so far.
  EXPECT_EQ(departures.missing_in(0, 2)->ranks, std::vector<GlobalRank>{{11}});
  EXPECT_EQ(departures.missing_in(0, 4)->ranks, (std::vector<GlobalRank>{{11}, {12}}));
  EXPECT_EQ(departures.failure_of(2).message,
            "rank 12 (host, pid 102) left (destroy_process_group)");
  EXPECT_EQ(departures.failure_of(-1).ranks, (std::vector<GlobalRank>{{11}, {12}}));
}

}  // namespace
}  // namespace muster::worker
