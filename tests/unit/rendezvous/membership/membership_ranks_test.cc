#include "rendezvous/membership/membership_ranks.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace muster::membership {
namespace {

using Ranks = std::vector<int>;
using Addresses = std::vector<std::string>;

RankClaim node(std::string_view host_name) {
  RankClaim claim;
  claim.host_name = host_name;
  claim.agent = {1, host_name.size() * 256 + static_cast<unsigned char>(host_name.back())};
  return claim;
}
RankClaim wanting(std::string_view host_name, int node_rank) {
  RankClaim claim = node(host_name);
  claim.node_rank = node_rank;
  return claim;
}
RankClaim survivor(std::string_view host_name, int last_rank) {
  RankClaim claim = node(host_name);
  claim.last_rank = last_rank;
  return claim;
}
RankClaim host(RankClaim claim) {
  claim.is_host = true;
  return claim;
}
RankClaim with(RankClaim claim, int slots, std::string_view role = "default") {
  claim.slots = slots;
  claim.role = role;
  return claim;
}

TEST(NaturalOrder, ComparesNumbersAsNumbers) {
  const std::vector<std::string> sorted = {"",
                                           "a",
                                           "a0",
                                           "a1",
                                           "a01b",
                                           "a1c",
                                           "a2",
                                           "a10",
                                           "a10b2",
                                           "a10b10",
                                           "node-9",
                                           "node-10",
                                           "node2",
                                           "node02x",
                                           "node10",
                                           "node99999999999999999998",
                                           "node99999999999999999999",
                                           "rack2-n1",
                                           "rack10-n1",
                                           "z"};
  for (size_t i = 0; i < sorted.size(); ++i) {
    for (size_t k = 0; k < sorted.size(); ++k)
      EXPECT_EQ(natural_less(sorted[i], sorted[k]), i < k) << sorted[i] << " and " << sorted[k];
  }
}

TEST(NaturalOrder, LeadingZerosDecideOnlyBetweenEquals) {
  EXPECT_TRUE(natural_less("n01", "n1"));
  EXPECT_FALSE(natural_less("n1", "n01"));
  EXPECT_TRUE(natural_less("n01", "n2"));
  EXPECT_TRUE(natural_less("n1", "n02"));
}

TEST(AssignRanks, FollowsTheNaturalOrderOfHostNames) {
  EXPECT_EQ(assign_ranks({node("node10"), node("node2"), node("node1")}), (Ranks{2, 1, 0}));
}

TEST(AssignRanks, OrdersEqualNamesByIdentity) {
  RankClaim one = node("same");
  one.agent = {1, 1};
  RankClaim two = node("same");
  two.agent = {1, 2};
  EXPECT_EQ(assign_ranks({two, one}), (Ranks{1, 0}));
}

TEST(AssignRanks, GivesTheHostRankZeroUnlessAnotherClaimsIt) {
  EXPECT_EQ(assign_ranks({node("a"), host(node("z"))}), (Ranks{1, 0}));
  EXPECT_EQ(assign_ranks({wanting("a", 0), host(node("z"))}), (Ranks{0, 1}));
  EXPECT_EQ(assign_ranks({survivor("a", 0), host(node("z"))}), (Ranks{0, 1}));
  EXPECT_EQ(assign_ranks({node("a"), host(wanting("z", 1))}), (Ranks{0, 1}));
}

TEST(AssignRanks, HonoursTheUsersRanksFirst) {
  EXPECT_EQ(assign_ranks({wanting("a", 2), wanting("b", 0), node("c")}), (Ranks{2, 0, 1}));
  EXPECT_EQ(assign_ranks({survivor("a", 1), wanting("b", 1), survivor("c", 0)}), (Ranks{2, 1, 0}));
}

TEST(AssignRanks, KeepsSurvivorsRanksAndFillsHolesWithNewcomers) {
  EXPECT_EQ(assign_ranks({survivor("d", 0), node("a"), survivor("b", 2), survivor("c", 3)}),
            (Ranks{0, 1, 2, 3}));
}

TEST(AssignRanks, MovesRanksBeyondASmallerRoundIntoHolesInOrder) {
  // Nodes 1 and 2 of 6 are gone.
  EXPECT_EQ(assign_ranks({survivor("a", 0), survivor("b", 5), survivor("c", 3), survivor("d", 4)}),
            (Ranks{0, 2, 3, 1}));
  EXPECT_EQ(assign_ranks({wanting("a", 7), survivor("b", 0), wanting("c", 5)}), (Ranks{2, 0, 1}));
  // Survivors come before newcomers.
  EXPECT_EQ(assign_ranks({node("a"), survivor("b", 4), survivor("c", 0)}), (Ranks{2, 1, 0}));
}

TEST(AssignRanks, GivesAReturnedHostItsOldRank) {
  EXPECT_EQ(assign_ranks({survivor("b", 1), survivor("a", 2), host(node("z"))}), (Ranks{1, 2, 0}));
}

TEST(LayOut, MakesBaseRanksPrefixSumsOfSlotsPerWorldAndRole) {
  const std::vector<Round> rounds = lay_out(
      {with(wanting("a", 2), 1, "eval"), with(wanting("b", 0), 8), with(wanting("c", 1), 2)});
  const Round expected_a{0, 2, 3, 10, 11, 0, 1, "127.0.0.1", 0, 0, 0};
  const Round expected_b{0, 0, 3, 0, 11, 0, 10, "127.0.0.1", 0, 0, 0};
  const Round expected_c{0, 1, 3, 8, 11, 8, 10, "127.0.0.1", 0, 0, 0};
  EXPECT_EQ(rounds, (std::vector<Round>{expected_a, expected_b, expected_c}));
}

TEST(MasterAddress, IsTheOneThatMostNodesDialled) {
  EXPECT_EQ(master_addresses({"10.0.0.1", "192.168.0.1", "10.0.0.1"}),
            (Addresses{"10.0.0.1", "10.0.0.1", "10.0.0.1"}));
}

TEST(MasterAddress, IsTheFirstInSortOrderOnATie) {
  EXPECT_EQ(master_addresses({"10.0.0.2", "10.0.0.1"}), (Addresses{"10.0.0.1", "10.0.0.1"}));
}

TEST(MasterAddress, IsNotLoopbackForTheHostIfOthersCameFromOutside) {
  EXPECT_EQ(master_addresses({"127.0.0.1", "10.0.0.1", "", "127.0.1.1"}),
            (Addresses(4, "10.0.0.1")));
  EXPECT_EQ(master_addresses({"::1", "fd00::1"}), (Addresses{"fd00::1", "fd00::1"}));
  EXPECT_EQ(master_addresses({"::ffff:127.0.0.1", "10.0.0.1"}), (Addresses(2, "10.0.0.1")));
}

TEST(MasterAddress, IsLoopbackIfAllNodesAreOnOneMachine) {
  EXPECT_EQ(master_addresses({"127.0.0.1", "127.0.0.1"}), (Addresses(2, "127.0.0.1")));
  EXPECT_EQ(master_addresses({"::1", "127.0.0.1", "::1"}), (Addresses{"::1", "127.0.0.1", "::1"}));
  EXPECT_EQ(master_addresses({"", ""}), (Addresses(2, "127.0.0.1")));
}

TEST(MasterAddress, StaysWithinTheFamilyOfEachMember) {
  EXPECT_EQ(master_addresses({"10.0.0.1", "fd00::1", "10.0.0.1"}),
            (Addresses{"10.0.0.1", "fd00::1", "10.0.0.1"}));
  EXPECT_EQ(master_addresses({"fd00::1", "::ffff:10.0.0.1", "fd00::1"}),
            (Addresses{"fd00::1", "::ffff:10.0.0.1", "fd00::1"}));
}

// ---- Any claims.

std::vector<RankClaim> arbitrary_claims(std::vector<std::string>& names) {
  const int count = *rc::gen::inRange(1, 12);
  std::vector<RankClaim> claims(static_cast<size_t>(count));
  std::set<int> last_ranks;
  std::set<int> node_ranks;
  names.resize(claims.size());
  for (size_t i = 0; i < claims.size(); ++i) {
    names[i] = "n" + std::to_string(*rc::gen::inRange(0, 20));
    claims[i].agent = {7, i};
    claims[i].host_name = names[i];
    claims[i].slots = *rc::gen::inRange(1, 5);
    claims[i].role = *rc::gen::element("a", "b");
    const int rank = *rc::gen::inRange(0, 2 * count);
    if (*rc::gen::arbitrary<bool>() && last_ranks.insert(rank).second) claims[i].last_rank = rank;
    if (*rc::gen::inRange(0, 3) == 0 && node_ranks.insert(rank).second) claims[i].node_rank = rank;
  }
  if (*rc::gen::arbitrary<bool>()) claims[static_cast<size_t>(count) / 2].is_host = true;
  return claims;
}

RC_GTEST_PROP(RanksProperty, RanksAreDenseUniqueAndHonourClaims, ()) {
  std::vector<std::string> names;
  const std::vector<RankClaim> claims = arbitrary_claims(names);
  const Ranks ranks = assign_ranks(claims);
  Ranks sorted = ranks;
  std::ranges::sort(sorted);
  for (size_t i = 0; i < sorted.size(); ++i)
    RC_ASSERT(sorted[i] == static_cast<int>(i));
  const auto count = static_cast<int>(claims.size());
  std::set<int> wanted;
  for (size_t i = 0; i < claims.size(); ++i) {
    if (!claims[i].node_rank || *claims[i].node_rank >= count) continue;
    RC_ASSERT(ranks[i] == *claims[i].node_rank);
    wanted.insert(ranks[i]);
  }
  for (size_t i = 0; i < claims.size(); ++i) {
    const int last = claims[i].last_rank;
    if (claims[i].node_rank || last < 0 || last >= count || wanted.contains(last)) continue;
    RC_ASSERT(ranks[i] == last);
  }
}

RC_GTEST_PROP(RanksProperty, TheOrderOfTheClaimsDoesNotMatter, ()) {
  std::vector<std::string> names;
  std::vector<RankClaim> claims = arbitrary_claims(names);
  const Ranks ranks = assign_ranks(claims);
  std::ranges::reverse(claims);
  Ranks reversed = assign_ranks(claims);
  std::ranges::reverse(reversed);
  RC_ASSERT(ranks == reversed);
}

RC_GTEST_PROP(RanksProperty, TheWorldIsCoveredOnce, ()) {
  std::vector<std::string> names;
  const std::vector<RankClaim> claims = arbitrary_claims(names);
  const std::vector<Round> rounds = lay_out(claims);
  std::set<int> world;
  std::set<std::pair<std::string, int>> roles;
  size_t slots = 0;
  for (size_t i = 0; i < claims.size(); ++i) {
    slots += static_cast<size_t>(claims[i].slots);
    for (int k = 0; k < claims[i].slots; ++k) {
      world.insert(rounds[i].base_rank + k);
      roles.insert({std::string(claims[i].role), rounds[i].base_role_rank + k});
      RC_ASSERT(rounds[i].base_role_rank + k < rounds[i].role_world_size);
    }
    RC_ASSERT(rounds[i].nodes == static_cast<int>(claims.size()));
  }
  RC_ASSERT(world.size() == slots && roles.size() == slots);
  RC_ASSERT(*world.rbegin() + 1 == rounds[0].world_size);
}

}  // namespace
}  // namespace muster::membership
