#include "agent/hang/stragglers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::hang {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::DoubleNear;
using testing::ElementsAre;
using testing::Field;

constexpr Instant kBegan{seconds(1000)};
constexpr uint64_t kCalls = 100;
constexpr auto kBetween = milliseconds(100);

Instant time_of(uint64_t call) {
  return kBegan + call * kBetween;
}

// One node's part in a call of a group of four: `ranks` of its ranks make it at `mean` on average
// and the last of them at `last`, both after time_of(call).
struct Part {
  int node = 0;
  int ranks = 1;
  Duration mean{};
  int last_rank = 0;
  Duration last{};
  Duration mean_blocked{};
  Duration last_blocked{};
};

Arrivals arrivals_of(uint64_t call, const Part& part, const std::string& group = "dp") {
  return {.group = group,
          .name = group,
          .ordinal = call + 2,
          .number = call + 2 + StragglerTable::kStartCalls,
          .size = 4,
          .ranks = part.ranks,
          .mean = time_of(call) + part.mean,
          .mean_blocked = part.mean_blocked,
          .last_rank = part.last_rank,
          .last = time_of(call) + part.last,
          .last_blocked = part.last_blocked};
}

class StragglerTableTest : public testing::Test {
 protected:
  // 100 calls, 100 ms apart.
  void calls(const std::vector<Part>& parts, Duration error = {}, const std::string& group = "dp") {
    for (uint64_t call = 0; call < kCalls; ++call) {
      for (const Part& part : parts)
        table_.take(part.node, arrivals_of(call, part, group), error);
    }
  }
  std::optional<Stragglers> report() { return table_.report(time_of(kCalls)); }

  StragglerTable table_;
};

auto of(int rank, double share, bool is_node = false) {
  return testing::AllOf(Field(&Straggler::rank, rank),
                        Field(&Straggler::share, DoubleNear(share, 0.005)),
                        Field(&Straggler::is_node, is_node));
}

TEST_F(StragglerTableTest, NamesTheRankThatTheOthersWaitedFor) {
  // Three ranks call at once, the fourth 20 ms later: the node's mean is 5 ms.
  calls({{.ranks = 4, .mean = milliseconds(5), .last_rank = 3, .last = milliseconds(20)}});
  const auto found = report();
  ASSERT_TRUE(found);
  EXPECT_THAT(found->ranks, ElementsAre(of(3, 0.2)));
  EXPECT_EQ(found->ranks[0].waited, milliseconds(20));
  EXPECT_EQ(found->ranks[0].calls, kCalls);
  EXPECT_EQ(found->ranks[0].others, 3);
  EXPECT_NEAR(std::chrono::duration<double>(found->time).count(), 10, 0.2);
}

TEST_F(StragglerTableTest, IgnoresWaitsBelowATwentieth) {
  calls({{.ranks = 4, .mean = milliseconds(1), .last_rank = 3, .last = milliseconds(4)}});
  EXPECT_FALSE(report());
}

TEST_F(StragglerTableTest, ReportsNothingAfterFewCallsOrSeconds) {
  const Part slow{.ranks = 4, .mean = milliseconds(15), .last_rank = 3, .last = milliseconds(60)};
  for (uint64_t call = 0; call + 1 < StragglerTable::kCallsMin; ++call)
    table_.take(0, arrivals_of(call, slow), {});
  EXPECT_FALSE(table_.report(time_of(10'000)));
  StragglerTable other;
  for (uint64_t call = 0; call < kCalls; ++call)
    other.take(0, arrivals_of(call, slow), {});
  EXPECT_FALSE(other.report(time_of(0) + seconds(4)));
}

TEST_F(StragglerTableTest, JoinsThePartsOfNodesInAnyOrder) {
  calls({{.node = 1, .ranks = 2, .mean = milliseconds(0), .last_rank = 3, .last = milliseconds(0)},
         {.node = 0,
          .ranks = 2,
          .mean = milliseconds(10),
          .last_rank = 1,
          .last = milliseconds(20)}});
  const auto found = report();
  ASSERT_TRUE(found);
  EXPECT_THAT(found->ranks, ElementsAre(of(1, 0.2)));
  EXPECT_EQ(found->ranks[0].node_rank, 0);
}

TEST_F(StragglerTableTest, SubtractsTheClockErrorFromWaits) {
  const std::vector<Part> parts = {
      {.node = 0, .ranks = 3, .last_rank = 2},
      {.node = 1, .ranks = 1, .mean = milliseconds(20), .last_rank = 3, .last = milliseconds(20)}};
  calls(parts, milliseconds(5));
  const auto found = report();
  ASSERT_TRUE(found);
  EXPECT_THAT(found->ranks, ElementsAre(of(3, 0.1)));
  StragglerTable unsure;
  for (uint64_t call = 0; call < kCalls; ++call) {
    for (const Part& part : parts)
      unsure.take(part.node, arrivals_of(call, part), milliseconds(10));
  }
  EXPECT_FALSE(unsure.report(time_of(kCalls)));
}

TEST_F(StragglerTableTest, OnlyALongerWaitElsewhereThanTheOthersExcusesARank) {
  Part late{.ranks = 4,
            .mean = milliseconds(5),
            .last_rank = 3,
            .last = milliseconds(20),
            .mean_blocked = milliseconds(35),  // Rank 3 waited 20 ms longer in another group.
            .last_blocked = milliseconds(50)};
  calls({late});
  EXPECT_FALSE(report());
  late.mean_blocked = late.last_blocked;
  table_ = {};
  calls({late});
  EXPECT_THAT(report()->ranks, ElementsAre(of(3, 0.2)));
}

TEST_F(StragglerTableTest, ASampleStandsForTheCallsLeftOut) {
  for (uint64_t call = 0; call < kCalls; ++call) {
    Arrivals one = arrivals_of(
        call, {.ranks = 4, .mean = milliseconds(5), .last_rank = 3, .last = milliseconds(20)});
    one.stride = 4;
    if (call % 4 == 0) table_.take(0, one, {});
  }
  EXPECT_THAT(report()->ranks, ElementsAre(of(3, 0.2)));
}

TEST_F(StragglerTableTest, LostMessagesDoNotMakeAWaitShorter) {
  const Part slow{.ranks = 4, .mean = milliseconds(5), .last_rank = 3, .last = milliseconds(20)};
  for (uint64_t call = 0; call < kCalls; ++call) {
    if (call % 3 == 0) table_.take(0, arrivals_of(call, slow), {});
  }
  EXPECT_THAT(report()->ranks, ElementsAre(of(3, 0.2)));
}

TEST_F(StragglerTableTest, NamesANodeWhoseRanksAreSlowInTurn) {
  for (uint64_t call = 0; call < kCalls; ++call) {
    const int last = 2 + static_cast<int>(call % 2);
    table_.take(0, arrivals_of(call, {.node = 0, .ranks = 2, .last_rank = 1}), {});
    table_.take(1,
                arrivals_of(call, {.node = 1,
                                   .ranks = 2,
                                   .mean = milliseconds(8),
                                   .last_rank = last,
                                   .last = milliseconds(8)}),
                {});
  }
  const auto found = report();
  ASSERT_TRUE(found);
  EXPECT_THAT(found->ranks, ElementsAre(of(3, 0.053, /*is_node=*/true)));
  EXPECT_EQ(found->ranks[0].node_rank, 1);
}

TEST_F(StragglerTableTest, JitterOfAllNodesNamesNone) {
  for (uint64_t call = 0; call < kCalls; ++call) {
    for (const int node : {0, 1}) {
      const bool is_last = static_cast<int>(call / 2 % 2) == node;
      const auto late = milliseconds(is_last ? 15 : 0);
      const int last = 2 * node + static_cast<int>(call % 2);
      table_.take(
          node,
          arrivals_of(
              call, {.node = node, .ranks = 2, .mean = late / 2, .last_rank = last, .last = late}),
          {});
    }
  }
  EXPECT_FALSE(report());
}

TEST_F(StragglerTableTest, EachReportStartsFromZero) {
  calls({{.ranks = 4, .mean = milliseconds(5), .last_rank = 3, .last = milliseconds(20)}});
  EXPECT_TRUE(report());
  EXPECT_FALSE(table_.report(time_of(2 * kCalls)));
}

TEST_F(StragglerTableTest, IgnoresCallsDuringASuspension) {
  const auto slow = [](Duration last) {
    return Part{.ranks = 2, .mean = last, .last_rank = 3, .last = last};
  };
  for (uint64_t call = 0; call < kCalls; ++call)
    table_.take(0, arrivals_of(call, {.ranks = 2, .last_rank = 1}), {});
  table_.disturb(time_of(kCalls) + seconds(60));
  for (uint64_t call = 0; call < kCalls; ++call)
    table_.take(1, arrivals_of(call, slow(seconds(50))), {});
  EXPECT_FALSE(table_.report(time_of(kCalls) + seconds(70)));
}

TEST_F(StragglerTableTest, NodesThatContradictEachOtherAccuseNoRank) {
  const Part first{.node = 0, .ranks = 3, .last_rank = 2};
  const Part second{.node = 1, .ranks = 3, .mean = seconds(1), .last_rank = 5, .last = seconds(1)};
  calls({first, second});
  EXPECT_FALSE(report());
  for (uint64_t call = 0; call < kCalls; ++call) {
    Arrivals other = arrivals_of(call, second);
    other.size = 6;
    table_.take(0, arrivals_of(call, first), {});
    table_.take(1, other, {});
  }
  EXPECT_FALSE(table_.report(time_of(2 * kCalls)));
}

TEST_F(StragglerTableTest, AShareNeverExceedsTheWholeTime) {
  for (uint64_t call = 0; call < kCalls; ++call) {
    Arrivals one = arrivals_of(
        call, {.ranks = 4, .mean = seconds(500), .last_rank = 3, .last = seconds(2000)});
    one.ordinal = one.number = call == 0 ? 1 : ~uint64_t{0} - call;
    one.stride = uint64_t{1} << 30;
    table_.take(0, one, seconds(1));
  }
  const auto found = table_.report(time_of(100 * kCalls));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->ranks[0].share, 1.0);
}

TEST_F(StragglerTableTest, AGroupOfWhichMostAreLateInTurnHasNoStraggler) {
  for (const uint64_t late : {2U, 3U}) {
    for (uint64_t call = 0; call < kCalls; ++call) {
      table_.take(0,
                  arrivals_of(call, {.ranks = 4,
                                     .mean = milliseconds(10),
                                     .last_rank = static_cast<int>(call % late),
                                     .last = milliseconds(40)}),
                  {});
    }
    EXPECT_EQ(report().has_value(), late == 2);
    table_ = {};
  }
}

TEST_F(StragglerTableTest, TheStartIsLeftOut) {
  for (uint64_t call = 0; call < 2 * StragglerTable::kStartCalls; ++call) {
    Arrivals one = arrivals_of(call, {.ranks = 4});
    one.number = call + 1;
    if (call < StragglerTable::kStartCalls) one.last += seconds(1);
    table_.take(0, one, {});
  }
  EXPECT_FALSE(report());
}

TEST_F(StragglerTableTest, ReportsWhetherWaitsAreHidden) {
  for (const bool hides_waits : {false, true}) {
    for (uint64_t call = 0; call < kCalls; ++call) {
      Arrivals one = arrivals_of(
          call, {.ranks = 4, .mean = milliseconds(5), .last_rank = 3, .last = milliseconds(20)});
      one.hides_waits = hides_waits;
      table_.take(0, one, {});
    }
    EXPECT_EQ(report()->ranks[0].hides_waits, hides_waits);
    table_ = {};
  }
}

TEST_F(StragglerTableTest, ARankIsChargedInTheGroupWhereItIsSlowest) {
  calls({{.ranks = 4, .mean = milliseconds(5), .last_rank = 3, .last = milliseconds(20)}});
  calls({{.ranks = 4, .mean = milliseconds(10), .last_rank = 3, .last = milliseconds(40)}}, {},
        "tp");
  const auto found = report();
  EXPECT_THAT(found->ranks, ElementsAre(of(3, 0.4)));
  EXPECT_EQ(found->ranks[0].group, "tp");
}

}  // namespace
}  // namespace muster::hang
