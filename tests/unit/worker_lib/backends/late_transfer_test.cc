#include "worker_lib/backends/late_transfer.h"

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace muster::worker {
namespace {

// Group rank 1 is rank 6 of the job.
Members pair_of_the_job() {
  Members members;
  members.peers = {{GlobalRank{4}, "n", "node4", 104, ""}, {GlobalRank{6}, "n", "node6", 106, ""}};
  members.me = 0;
  return members;
}

Failure late_with(OpKind kind, int peer, std::chrono::milliseconds limit, bool begun = false) {
  return late_transfer({.kind = kind, .peer = peer, .tag = 9, .limit = limit}, pair_of_the_job(),
                       begun);
}

TEST(AbsentMembers, AreNamedInGroupOrderAndListedByRank) {
  Members members = pair_of_the_job();
  std::swap(members.peers[0], members.peers[1]);
  const std::vector<int> both{0, 1};
  EXPECT_EQ(
      absent_members(members, both, "within 2 s"),
      (Failure{ErrorCode::timeout,
               "rank 6 (node6, pid 106) and rank 4 (node4, pid 104) did not arrive within 2 s; "
               "check what they are doing instead, or give a longer timeout",
               {{4}, {6}}}));
  EXPECT_EQ(absent_members(members, std::vector<int>{1}, "in time").message,
            "rank 4 (node4, pid 104) did not arrive in time; check what it is doing instead, or "
            "give a longer timeout");
}

TEST(LateTransfer, NamesThePeerAndWhatItDidNotDo) {
  using std::chrono::milliseconds;
  struct Case {
    Failure failure;
    const char* message;
    std::vector<GlobalRank> ranks;
  };
  const std::vector<Case> cases{
      {late_with(OpKind::recv, 1, milliseconds(2000)),
       "rank 6 (node6, pid 106) did not send a message with tag 9 within 2 s",
       {{6}}},
      {late_with(OpKind::recv, 1, milliseconds(250), true),
       "rank 6 (node6, pid 106) did not send the rest of its message with tag 9 within 250 ms",
       {{6}}},
      {late_with(OpKind::send, 1, milliseconds(0)),
       "rank 6 (node6, pid 106) did not receive the message with tag 9 in time; check that it "
       "receives it, and if both ends send first, let one receive first or use isend() or "
       "batch_isend_irecv()",
       {{6}}},
      {late_with(OpKind::recv, -1, milliseconds(1000)),
       "no message with tag 9 arrived from any rank within 1 s",
       {}},
      {late_with(OpKind::recv, 0, milliseconds(0)),
       "rank 4 (node4, pid 104) did not send a message with tag 9 in time",
       {{4}}},
  };
  for (const Case& one : cases)
    EXPECT_EQ(one.failure, (Failure{ErrorCode::timeout, one.message, one.ranks}));
}

// The peer may itself wait for another rank, which is searched for before the failure is reported.
TEST(LateTransfer, IsASuspicion) {
  EXPECT_TRUE(late_with(OpKind::recv, 1, {}).is_suspicion);
  EXPECT_TRUE(late_with(OpKind::send, 1, {}).is_suspicion);
  EXPECT_TRUE(late_with(OpKind::recv, -1, {}).is_suspicion);
}

}  // namespace
}  // namespace muster::worker
