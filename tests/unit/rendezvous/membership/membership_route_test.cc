// The connections to which a datagram goes.
#include <csignal>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/rendezvous/membership/membership_harness.h"

namespace muster {
namespace {

using namespace membership;  // NOLINT: the words of the protocol
using std::chrono::seconds;

const std::vector<std::string> kRouteNodes = {"a", "b", "c", "d", "e"};

// Returns the sender's rank and the receivers, as in "0: b c", or "" if the datagram is dropped.
std::string route_by(MembershipDriver& m, ConnectionId sender, Epoch epoch, int to) {
  const Membership::Route route = m.machine().route(sender, epoch, to);
  if (route.receivers.empty()) return "";
  std::string text = fmt::format("{}:", route.from);
  for (const ConnectionId receiver : route.receivers) {
    std::string name = "?";
    for (const std::string& one : kRouteNodes) {
      if (m.has_joined(one) && m.connection(one) == receiver) name = one;
    }
    text += " " + name;
  }
  return text;
}
std::string route_of(MembershipDriver& m, const std::string& sender, Epoch epoch, int to) {
  return route_by(m, m.connection(sender), epoch, to);
}

TEST(MembershipRoute, LeadsToOneNodeOrToAllOthers) {
  MembershipDriver m(3, 3);
  m.run({"a", "b", "c"});
  EXPECT_EQ(route_of(m, "a", 1, 2), "0: c");
  EXPECT_EQ(route_of(m, "c", 1, 0), "2: a");
  EXPECT_EQ(route_of(m, "b", 1, -1), "1: a c");
}

TEST(MembershipRoute, LeadsNowhereFromOrToANonMember) {
  MembershipDriver m(2, 2);
  m.run({"a", "b"});
  m.join("c");  // A spare.
  m.ready("c");
  EXPECT_EQ(route_of(m, "c", 1, 0), "");
  EXPECT_EQ(route_of(m, "c", 1, -1), "");
  EXPECT_EQ(route_of(m, "a", 1, -1), "0: b");
  EXPECT_EQ(route_of(m, "a", 1, 2), "");
  EXPECT_EQ(route_of(m, "a", 1, kNodesMax), "");
  EXPECT_EQ(route_of(m, "a", 1, 0), "");  // To itself.
  EXPECT_EQ(route_by(m, 99, 1, 0), "");
}

TEST(MembershipRoute, OnlyTheEpochsNodesAreMembers) {
  MembershipDriver forming(2, 2);
  forming.join("a");
  EXPECT_FALSE(forming.machine().is_member(forming.connection("a")));
  MembershipDriver m(2, 2);
  m.run({"a", "b"});
  m.join("c");  // A spare.
  m.ready("c");
  EXPECT_TRUE(m.machine().is_member(m.connection("a")));
  EXPECT_TRUE(m.machine().is_member(m.connection("b")));
  EXPECT_FALSE(m.machine().is_member(m.connection("c")));
  EXPECT_FALSE(m.machine().is_member(99));
}

TEST(MembershipRoute, ExistsWhileTheEpochRunsOrStops) {
  MembershipDriver m(2, 2);
  m.job.max_restarts = 1;
  m.join("a");
  m.join("b");
  EXPECT_EQ(route_of(m, "a", 0, 1), "");
  m.ready("a");
  m.ready("b");
  EXPECT_EQ(route_of(m, "a", 1, 1), "");  // Its store is being opened.
  m.open_store(1);
  EXPECT_EQ(route_of(m, "a", 1, 1), "0: b");
  EXPECT_EQ(route_of(m, "a", 2, 1), "");
  EXPECT_EQ(route_of(m, "a", 0, 1), "");
  m.running("a", 1);
  m.running("b", 1);
  m.fail("b", 1, boom(1));
  EXPECT_EQ(route_of(m, "a", 1, 1), "0: b");
  m.ready("a", 1);
  m.ready("b", 1);
  EXPECT_EQ(route_of(m, "a", 1, 1), "");
  m.open_store(2);
  EXPECT_EQ(route_of(m, "a", 1, 1), "");
  EXPECT_EQ(route_of(m, "a", 2, 1), "0: b");
  m.done("a", 2);
  m.done("b", 2);
  EXPECT_EQ(route_of(m, "a", 2, 1), "");
}

TEST(MembershipRoute, LeadsToTheNewestConnectionOfANode) {
  MembershipDriver m(3, 3);
  m.run({"a", "b", "c"});
  const ConnectionId first = m.connection("b");
  m.disconnect("b");
  EXPECT_EQ(route_of(m, "a", 1, 1), "");
  EXPECT_EQ(route_of(m, "a", 1, -1), "0: c");
  m.join("b");
  ASSERT_NE(m.connection("b"), first);
  EXPECT_EQ(route_of(m, "a", 1, 1), "0: b");
  EXPECT_EQ(route_of(m, "b", 1, 0), "1: a");
  EXPECT_EQ(route_by(m, first, 1, 0), "");
  const ConnectionId second = m.connection("b");
  m.join("b");  // The old connection has not broken yet.
  EXPECT_EQ(route_of(m, "a", 1, 1), "0: b");
  EXPECT_EQ(route_by(m, second, 1, 0), "");
}

TEST(MembershipRoute, SkipsANodeThatHasLeft) {
  MembershipDriver m(1, 3);
  m.run({"a", "b", "c"});
  m.leaving("b", 1, SIGTERM, false);
  EXPECT_EQ(route_of(m, "a", 1, 1), "0: b");
  m.leaving("b", 1, SIGTERM, true);
  m.goodbye("b");
  EXPECT_EQ(route_of(m, "a", 1, 1), "");
  EXPECT_EQ(route_of(m, "a", 1, -1), "0: c");
  EXPECT_EQ(route_of(m, "b", 1, 0), "");
}

TEST(MembershipRoute, FollowsTheRanksOfANewEpoch) {
  MembershipDriver m(3, 3);
  m.run({"a", "b", "c"});
  m.join("d");
  m.ready("d");
  m.goodbye("a");
  for (const char* name : {"b", "c", "d"})
    m.ready(name, 1);
  m.open_store(2);
  ASSERT_EQ(m.round("d").epoch, 2u);
  ASSERT_EQ(m.round("d").node_rank, 0);
  EXPECT_EQ(route_of(m, "b", 2, 0), "1: d");
  EXPECT_EQ(route_of(m, "d", 2, -1), "0: b c");
  EXPECT_EQ(route_of(m, "d", 2, 2), "0: c");
}

TEST(MembershipRoute, DoesNotBelieveAReturningNodesClaimToAnothersRank) {
  MembershipDriver m(2, 3);
  m.run({"a", "b", "c"});
  m.disconnect("c");
  m.live(seconds{1}, {"a", "b"});  // Beyond the grace, so the epoch is stopped.
  EXPECT_EQ(route_of(m, "a", 1, -1), "0: b");
  m.job.last_epoch = 1;
  m.job.last_nodes = 3;
  m.job.last_rank = 1;
  m.join("c");
  EXPECT_EQ(route_of(m, "c", 1, 0), "");
  EXPECT_EQ(route_of(m, "a", 1, 1), "0: b");
  m.goodbye("c");
  m.job.last_rank = 2;
  m.join("c");
  EXPECT_EQ(route_of(m, "c", 1, 0), "2: a");
  m.goodbye("c");
  m.job.last_epoch = 0;  // It claims to have been in no round.
  m.join("c");
  EXPECT_EQ(route_of(m, "a", 1, 2), "");
}

}  // namespace
}  // namespace muster
