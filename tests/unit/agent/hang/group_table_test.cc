#include "agent/hang/group_table.h"

#include <gtest/gtest.h>

#include "agent/hang/rank_state.h"
#include "rendezvous/base/error.h"

namespace muster::hang {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Instant kFirst{seconds(100)};

GroupDigest group_digest_of(int own_rank, uint64_t called, uint64_t completed) {
  GroupDigest group;
  group.id = "tp";
  group.ranks = {4, 2, 0};
  group.size = 3;
  group.own_rank = own_rank;
  group.called = called;
  group.completed = completed;
  for (uint64_t i = 1; i <= called; ++i)
    group.calls.push_back({i, {.kind = ring::CallKind::barrier}, kFirst, ""});
  return group;
}

class GroupTableTest : public testing::Test {
 protected:
  void tell(int rank, const std::vector<GroupDigest>& groups, uint64_t generation = 1) {
    RankDigest digest;
    digest.rank = rank;
    digest.generation = generation;
    digest.at = kFirst + milliseconds(++told_);
    digest.groups = groups;
    table_.note(digest, 5);
    ranks_[static_cast<size_t>(rank)].take(digest, kFirst + seconds(9));
  }
  std::vector<Standing> standings() {
    std::vector<Standing> all;
    for (const Member& member : view().members)
      all.push_back(member.standing);
    return all;
  }
  const GroupView& view() {
    views_ = table_.views(ranks_);
    CHECK(!views_.empty());
    return views_.front();
  }

  using enum Standing;
  GroupTable table_;
  std::vector<RankState> ranks_{5};
  std::vector<GroupView> views_;
  int told_ = 0;
};

TEST_F(GroupTableTest, AnUnnamedCommunicatorGetsTheNameOfTheGroupOfItsMembers) {
  const auto shown = [](std::string id, std::string name, std::vector<int> ranks, int own_rank,
                        uint64_t called = 0) {
    GroupDigest group = group_digest_of(own_rank, called, 0);
    group.id = std::move(id);
    group.name = std::move(name);
    group.ranks = std::move(ranks);
    return group;
  };
  const auto tell_all = [&](const std::vector<std::vector<GroupDigest>>& more) {
    const std::vector<int> members{4, 2, 0};
    for (int own = 0; own < 3; ++own) {
      std::vector<GroupDigest> groups{shown("nccl-1f", "nccl-1f", {}, own, 7)};
      const auto& others = more[static_cast<size_t>(own)];
      groups.insert(groups.end(), others.begin(), others.end());
      tell(members[static_cast<size_t>(own)], groups);
    }
  };
  const auto on_all = [&](std::string id, std::string name, uint64_t called,
                          std::vector<int> ranks = {4, 2, 0}) {
    std::vector<std::vector<GroupDigest>> all(3);
    for (int own = 0; own < 3; ++own)
      all[static_cast<size_t>(own)].push_back(shown(id, name, ranks, own, called));
    return all;
  };
  auto with_host_group = on_all("t-0", "world", 0);
  const auto on_host = on_all("t-1", "gloo", 3);
  for (size_t i = 0; i < 3; ++i)
    with_host_group[i].push_back(on_host[i][0]);
  tell_all(with_host_group);
  EXPECT_EQ(table_.name_of("nccl-1f").text, "nccl-1f");
  EXPECT_EQ(view().key->id, "nccl-1f");
  EXPECT_EQ(view().name.text, "world");
  EXPECT_EQ(table_.name_of("nccl-1f").text, "world");
  EXPECT_EQ(table_.name_of("t-1").text, "gloo");
  EXPECT_EQ(table_.name_of("t").text, "t");

  // Two groups match.
  const auto second = on_all("t-2", "dp", 0);
  auto both = with_host_group;
  for (size_t i = 0; i < 3; ++i)
    both[i].push_back(second[i][0]);
  tell_all(both);
  EXPECT_EQ(view().name.text, "nccl-1f");

  // Either of two communicators may be the group's.
  auto beside_another = with_host_group;
  for (int own = 0; own < 3; ++own)
    beside_another[static_cast<size_t>(own)].push_back(shown("nccl-2e", "nccl-2e", {}, own, 1));
  tell_all(beside_another);
  EXPECT_EQ(view().name.text, "nccl-1f");
}

TEST_F(GroupTableTest, AnyDigestSuppliesTheMembers) {
  GroupDigest without = group_digest_of(1, 2, 1);
  without.ranks.clear();
  tell(2, {without});
  EXPECT_TRUE(view().has_unknown);
  tell(4, {group_digest_of(0, 2, 2)});
  EXPECT_FALSE(view().has_unknown);
  EXPECT_EQ(view().members[1].rank, 2);
  EXPECT_EQ(view().members[1].called(), 2U);
  EXPECT_EQ(view().members[2].rank, 0);
  EXPECT_EQ(view().name.ranks, "0,2,4");
}

TEST_F(GroupTableTest, AMemberIsKnownSilentAbsentOrLeft) {
  tell(4, {group_digest_of(0, 1, 0)});
  EXPECT_EQ(standings(), (std::vector{known, silent, silent}));
  tell(2, {});
  EXPECT_EQ(standings(), (std::vector{known, absent, silent}));
  tell(2, {group_digest_of(1, 1, 0)});
  EXPECT_EQ(standings(), (std::vector{known, known, silent}));
  tell(2, {});
  EXPECT_EQ(standings(), (std::vector{known, left, silent}));
}

TEST_F(GroupTableTest, ALaterProcessHasLeftTheGroupsOfTheEarlierOne) {
  tell(4, {group_digest_of(0, 1, 0)});
  tell(2, {}, 2);
  EXPECT_EQ(standings(), (std::vector{known, left, silent}));
  tell(0, {group_digest_of(2, 0, 0)}, 2);
  EXPECT_EQ(table_.views(ranks_).size(), 2U);
}

TEST_F(GroupTableTest, ImpossibleGroupsAreIgnored) {
  tell(4, {group_digest_of(0, 1, 0)});
  GroupDigest wrong = group_digest_of(1, 1, 2);
  tell(2, {wrong});
  EXPECT_EQ(standings()[1], left);
  for (const std::vector<int>& ranks : {std::vector{4, 0, 2}, {4, 2, 1}, {4, 2}, {4, 2, 5}}) {
    wrong = group_digest_of(1, 1, 0);
    wrong.ranks = ranks;
    tell(2, {wrong});
    EXPECT_EQ(standings()[1], left);
  }
  wrong = group_digest_of(2, 1, 0);
  wrong.ranks.clear();
  tell(2, {wrong});
  EXPECT_EQ(standings()[1], left);
}

// Ranks 0 and 2 made another number of groups before, and PyTorch counts groups for their ids.
TEST_F(GroupTableTest, ARankHasAnotherGroupIfOthersUseItsIdForOtherMembers) {
  const auto forms = [](const char* id, std::vector<int> ranks, int own_rank) {
    GroupDigest group;
    group.id = id;
    group.size = static_cast<int>(ranks.size());
    group.ranks = std::move(ranks);
    group.own_rank = own_rank;
    group.phase = GroupPhase::forming;
    return group;
  };
  tell(1, {forms("1", {0, 1}, 1)});
  tell(0, {forms("1", {0, 1}, 0), forms("2", {0, 2}, 0)});
  tell(2, {forms("1", {0, 2}, 1)});
  views_ = table_.views(ranks_);
  ASSERT_EQ(views_.size(), 2u);
  EXPECT_FALSE(table_.has_another(2, views_[0]));
  EXPECT_TRUE(table_.has_another(2, views_[1]));
  EXPECT_FALSE(table_.has_another(1, views_[1]));
  tell(2, {forms("2", {0, 2}, 1)});
  views_ = table_.views(ranks_);
  EXPECT_FALSE(table_.has_another(2, views_[1]));
}

TEST_F(GroupTableTest, TwoMembersThatEndedACallSilenceOneThatDeniesIt) {
  tell(4, {group_digest_of(0, 5, 5)});
  tell(2, {group_digest_of(1, 3, 3)});
  tell(0, {group_digest_of(2, 3, 3)});
  EXPECT_EQ(standings(), (std::vector{known, known, known}));
  tell(0, {group_digest_of(2, 5, 4)});
  EXPECT_EQ(standings(), (std::vector{known, silent, known}));
}

// When a member's connection breaks, each of gloo's ranks ends its call with an error.
TEST_F(GroupTableTest, FailedCallsSilenceNoMember) {
  GroupDigest failed = group_digest_of(0, 2, 2);
  failed.calls[1].has_failed = true;
  tell(4, {failed});
  failed.own_rank = 1;
  tell(2, {failed});
  tell(0, {group_digest_of(2, 1, 1)});
  EXPECT_EQ(standings(), (std::vector<Standing>{known, known, known}));
}

TEST_F(GroupTableTest, ACallThatMayEndEarlySilencesNoMember) {
  GroupDigest root = group_digest_of(0, 5, 5);
  GroupDigest other = group_digest_of(2, 5, 5);
  for (GroupDigest* const group : {&root, &other})
    group->calls[3].call.kind = ring::CallKind::reduce;
  tell(4, {root});
  tell(0, {other});
  tell(2, {group_digest_of(1, 3, 3)});
  EXPECT_EQ(standings(), (std::vector{known, known, known}));
}

TEST_F(GroupTableTest, ForgetsGroupsThatNoRankShows) {
  tell(4, {group_digest_of(0, 1, 0)});
  table_.views(ranks_);
  EXPECT_TRUE(table_.knows(std::string("tp")));
  tell(4, {});
  EXPECT_TRUE(table_.views(ranks_).empty());
  EXPECT_FALSE(table_.knows(std::string("tp")));
}

TEST(RankState, StaleAndRepeatedDigestsAreDropped) {
  RankState rank;
  const auto tell = [&](int at_s, uint64_t generation, uint64_t called, bool is_last = false) {
    RankDigest digest;
    digest.generation = generation;
    digest.at = Instant(seconds(at_s));
    digest.is_last = is_last;
    digest.groups.push_back(group_digest_of(0, called, 0));
    return rank.take(digest, Instant(seconds(50)));
  };
  EXPECT_TRUE(tell(10, 2, 1));
  EXPECT_FALSE(tell(10, 2, 2));
  EXPECT_FALSE(tell(9, 2, 2));
  EXPECT_FALSE(tell(20, 1, 2));
  EXPECT_TRUE(tell(20, 2, 1));
  EXPECT_EQ(rank.unchanged_since, Instant(seconds(10)));
  EXPECT_TRUE(tell(1000, 2, 2));  // A clock that is ahead.
  EXPECT_EQ(rank.unchanged_since, Instant(seconds(50)));
  EXPECT_FALSE(tell(50, 2, 3));
  EXPECT_TRUE(tell(50, 2, 3, true));
  EXPECT_FALSE(tell(60, 2, 4));
}

TEST(RankState, AStateCountsFromTheFirstLookThatShowedIt) {
  RankState rank;
  const auto see = [&](LifeState state, int at_s) {
    rank.see({.state = state}, Instant(seconds(at_s)), seconds(1));
  };
  see(LifeState::blocked, 10);
  see(LifeState::blocked, 11);
  EXPECT_EQ(rank.life_since, Instant(seconds(9)));
  see(LifeState::running, 5);
  EXPECT_EQ(rank.life.state, LifeState::blocked);
  see(LifeState::blocked, 20);
  EXPECT_EQ(rank.life_since, Instant(seconds(19)));
  EXPECT_EQ(rank.life_at(Instant(seconds(24)), seconds(1)), LifeState::blocked);
  EXPECT_EQ(rank.life_at(Instant(seconds(25)), seconds(1)), LifeState::unknown);
}

}  // namespace
}  // namespace muster::hang
