#include "worker_lib/group/group_shutdown.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/wait_for.h"

namespace muster::worker {
namespace {

Members three() {
  Members members;
  for (int rank = 0; rank < 3; ++rank)
    members.peers.push_back({GlobalRank{10 + rank}, "node", "host", 100 + rank, "127.0.0.1"});
  members.me = 0;
  return members;
}

constexpr PendingTransfer sends(int peer, int tag) {
  return {OpKind::send, peer, tag};
}
constexpr PendingTransfer receives(int peer, int tag) {
  return {OpKind::recv, peer, tag};
}

TEST(GroupShutdown, OperationsAfterTheNoticeNameTheRanksThatLeave) {
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
            "rank 11 (host, pid 101), rank 12 (host, pid 102) left (destroy_process_group) before "
            "this operation");
}

TEST(GroupShutdown, ARankIsGoneWhenItLeavesAndNotWhenItGivesNotice) {
  const Members members = three();
  GroupShutdown departures(members);
  departures.gave_notice(1, {1, 0});
  EXPECT_FALSE(departures.has_left(1));
  EXPECT_TRUE(departures.note_left(1, {9, 9}));
  EXPECT_TRUE(departures.has_left(1));
  EXPECT_FALSE(departures.has_left(-1));
  EXPECT_FALSE(departures.note_left(2, {3, 0}));
  EXPECT_TRUE(departures.has_left(-1));
  // Without a notice it has taken part in what this rank has begun so far.
  EXPECT_EQ(departures.missing_in(0, 2)->ranks, std::vector<GlobalRank>{{11}});
  EXPECT_EQ(departures.missing_in(0, 4)->ranks, (std::vector<GlobalRank>{{11}, {12}}));
  EXPECT_EQ(departures.failure_of(2).message,
            "rank 12 (host, pid 102) left (destroy_process_group)");
  EXPECT_EQ(departures.failure_of(-1).ranks, (std::vector<GlobalRank>{{11}, {12}}));
}

// ---- messages

TEST(GroupShutdown, AReceiveFromARankWithNothingToSendCannotComplete) {
  const Members members = three();
  GroupShutdown leaving(members);
  leaving.note_waits(1, 1, {receives(0, 4)});
  test::pause_for(kLastMessage, "no message is on its way any more");
  EXPECT_FALSE(leaving.can_complete(receives(1, 4)));
  leaving.note_left(1, {});
  EXPECT_FALSE(leaving.can_complete(receives(1, 4)));
}

TEST(GroupShutdown, ATransferCompletesOnlyIfThePeerStillWantsIt) {
  const Members members = three();
  GroupShutdown leaving(members);
  EXPECT_TRUE(leaving.can_complete(receives(1, 4)));
  leaving.note_waits(1, 2, {sends(0, 4), sends(2, 5), receives(-1, 6)});
  EXPECT_TRUE(leaving.can_complete(receives(1, 5))) << "it may be on its way";
  test::pause_for(kLastMessage, "no message is on its way any more");
  EXPECT_TRUE(leaving.can_complete(receives(1, 4)));
  EXPECT_TRUE(leaving.can_complete(receives(1, PendingTransfer::kAnyTag)));
  EXPECT_FALSE(leaving.can_complete(receives(1, 5))) << "that is for another";
  EXPECT_TRUE(leaving.can_complete(sends(1, 6)));
  EXPECT_FALSE(leaving.can_complete(sends(1, 4)));
  EXPECT_TRUE(leaving.can_complete(receives(2, 5))) << "rank 2 does not leave";
  EXPECT_TRUE(leaving.can_complete(receives(-1, 9)));
  EXPECT_TRUE(leaving.is_still_sending(1));
  leaving.note_waits(1, 1, {});  // Older.
  EXPECT_TRUE(leaving.is_still_sending(1));
  leaving.note_left(1, {});
  leaving.note_left(2, {});
  EXPECT_FALSE(leaving.is_still_sending(1));
  EXPECT_TRUE(leaving.can_complete(receives(1, 4))) << "the last one may be on its way";
  test::pause_for(kLastMessage, "no message is on its way any more");
  EXPECT_FALSE(leaving.can_complete(receives(1, 4)));
  EXPECT_FALSE(leaving.can_complete(receives(-1, 9)));
}

}  // namespace
}  // namespace muster::worker
