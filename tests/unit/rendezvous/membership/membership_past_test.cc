// A host that begins with a keeper's record of the job's newest round.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/rendezvous/membership/membership_harness.h"

namespace muster {
namespace {

using membership::Formed;
using testing::HasSubstr;

// Round 4 was formed by another host; node a does not return.
Membership::Options after_round_4() {
  Membership::Options options;
  options.past.epoch = 4;
  options.past.nodes = 2;
  for (const char* name : {"a", "b", "c"})
    options.past.members.push_back(MembershipDriver::id_of(name));
  options.past.restarts = 1;
  options.past.changes = 2;
  return options;
}

class PastRound : public testing::Test {
 protected:
  PastRound() : m(2, 3, after_round_4()) {
    m.job.max_restarts = 3;
    m.job.max_membership_changes = 9;
  }
  // Joins a node that has run the round `epoch`.
  void join(const std::string& name, membership::Epoch epoch, int rank) {
    m.job.last_epoch = epoch;
    m.job.last_instance = 77;
    m.job.last_rank = rank;
    m.job.last_nodes = 3;
    m.join(name);
  }

  MembershipDriver m;
};

TEST_F(PastRound, FormsTheNextOnceAllThatMayComeAreReady) {
  join("b", 4, 1);
  join("c", 4, 2);
  EXPECT_EQ(m.ready("b", 4), "");
  EXPECT_THAT(m.ready("c", 4), HasSubstr("OpenStore{5"));
  EXPECT_EQ(m.machine().formed(),
            (Formed{5, {MembershipDriver::id_of("c"), MembershipDriver::id_of("b")}, 1, 3}));
}

TEST_F(PastRound, KeepsItsBudgetsEvenIfNoMemberReturns) {
  m.join("x");
  m.join("y");
  m.ready("x");
  EXPECT_THAT(m.ready("y"), HasSubstr("OpenStore{5"));
  EXPECT_EQ(m.machine().formed().restarts, 1);
  EXPECT_EQ(m.machine().formed().changes, 3);
}

// The host died after it recorded the round and before it sent the order to these nodes.
TEST_F(PastRound, GivesItsRanksToNodesThatNeverGotTheOrder) {
  join("c", 3, 0);
  join("b", 3, 2);
  m.ready("c", 3);
  m.ready("b", 3);
  m.open_store(5);
  EXPECT_EQ(m.round("b").node_rank, 1);
  EXPECT_EQ(m.round("c").node_rank, 0);
}

TEST_F(PastRound, KeepsASpentBudgetSpent) {
  m.job.max_membership_changes = 2;
  join("b", 4, 1);
  join("c", 4, 2);
  m.ready("b", 4);
  EXPECT_THAT(m.ready("c", 4), HasSubstr("the budget of 2 membership changes is spent"));
}

TEST(MembershipTeller, IsTheLowestRemainingNode) {
  MembershipDriver m(2, 3);
  m.job.last_call = Duration::zero();
  m.job.max_membership_changes = 0;
  m.run({"a", "b", "c"});
  m.disconnect("a");
  m.live(std::chrono::seconds(1), {"b", "c"});
  m.ready("b", 1);
  m.ready("c", 1);
  EXPECT_EQ(m.end("c").why, membership::EndWhy::lost);
  EXPECT_EQ(m.end("c").teller, 1);
}

TEST(MembershipTeller, IsNoNodeBeforeTheFirstRound) {
  MembershipDriver m(2, 2);
  m.join("a");
  m.ready("a");
  m.live(std::chrono::seconds(600), {"a"});
  EXPECT_EQ(m.end("a").why, membership::EndWhy::timeout);
  EXPECT_EQ(m.end("a").teller, -1);
}

}  // namespace
}  // namespace muster
