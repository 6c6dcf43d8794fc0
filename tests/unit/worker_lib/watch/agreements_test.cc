#include "worker_lib/watch/agreements.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sanitized.h"
#include "tests/sim/agreement_sim.h"

namespace muster::worker {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using watch::Agreements;
using watch::Vote;
using namespace std::chrono_literals;

constexpr Instant kNow = Instant(1h);

Vote vote_of(int rank, uint64_t value, int members = 2) {
  Vote vote{.group_id = "g",
            .members = {},
            .number = 1,
            .rank = rank,
            .value = value,
            .text = "",
            .verdict = {}};
  for (int member = 0; member < members; ++member)
    vote.members.push_back(member);
  return vote;
}

TEST(Agreements, AGroupOfOneAgreesWithItselfAtOnce) {
  Agreements alone(0, 1);
  const Agreements::Step step = alone.cast(kNow, vote_of(0, 6, 1));
  ASSERT_EQ(step.decided.size(), 1u);
  EXPECT_EQ(step.decided[0].verdict.value, 6u);
  EXPECT_THAT(step.decided[0].verdict.voters, ElementsAre(0));
}

TEST(Agreements, TheValueHasTheBitsThatAllHave) {
  Agreements first(0, 2), second(1, 2);
  EXPECT_THAT(first.cast(kNow, vote_of(0, 6)).all, IsEmpty());
  const auto vote = second.cast(kNow, vote_of(1, 3)).up;
  ASSERT_EQ(vote.size(), 1u);
  const auto proposed = first.take(kNow, vote[0]).all;
  ASSERT_EQ(proposed.size(), 1u);
  const auto accepted = second.take(kNow, std::get<watch::Proposal>(proposed[0])).up;
  ASSERT_EQ(accepted.size(), 1u);
  const Agreements::Step decided = first.take(kNow, accepted[0]);
  ASSERT_EQ(decided.decided.size(), 1u);
  EXPECT_EQ(decided.decided[0].verdict.value, 2u);
  EXPECT_THAT(decided.decided[0].verdict.voters, ElementsAre(0, 1));
  const auto heard = second.take(kNow, std::get<watch::Decision>(decided.all.at(0))).decided;
  ASSERT_EQ(heard.size(), 1u);
  EXPECT_EQ(heard[0], decided.decided[0]);
}

TEST(Agreements, TheTextIsTheFirstVotersOrThatOfOneWithValueZero) {
  for (const uint64_t value : {uint64_t{0}, uint64_t{1}}) {
    Agreements first(0, 3);
    Vote votes[] = {vote_of(0, 1, 3), vote_of(1, 1, 3), vote_of(2, value, 3)};
    votes[1].text = "one";
    votes[2].text = "two";
    first.cast(kNow, votes[0]);
    votes[1].ballot = votes[2].ballot = 0;
    first.take(kNow, votes[1]);
    const auto proposed = first.take(kNow, votes[2]).all;
    ASSERT_EQ(proposed.size(), 1u);
    EXPECT_EQ(std::get<watch::Proposal>(proposed[0]).verdict.text, value == 0 ? "two" : "one");
  }
}

TEST(Agreements, TheCoordinatorSaysWhoIsMissingOnce) {
  Agreements first(0, 3);
  first.cast(kNow, vote_of(0, 1, 3));
  ASSERT_NE(first.next_deadline(), kNever);
  const Agreements::Step late = first.tick(first.next_deadline());
  ASSERT_EQ(late.missing.size(), 1u);
  EXPECT_THAT(late.missing[0].ranks, ElementsAre(1, 2));
  EXPECT_EQ(late.all.size(), 1u);
  EXPECT_EQ(first.next_deadline(), kNever);
  Vote vote = vote_of(1, 1, 3);
  vote.ballot = 0;
  first.take(kNow, vote);
  EXPECT_THAT(first.tick(first.next_deadline()).missing.at(0).ranks, ElementsAre(2));
}

// Ranks may send anything.
TEST(Agreements, ImpossibleMessagesAreIgnored) {
  Agreements first(0, 2);
  first.cast(kNow, vote_of(0, 1));
  for (const int rank : {-1, 0, 2, 1000}) {
    Vote vote = vote_of(1, 1);
    vote.rank = rank;
    vote.ballot = 0;
    EXPECT_THAT(first.take(kNow, vote).all, IsEmpty()) << rank;
  }
  Vote of_others = vote_of(1, 1);
  of_others.members = {1, 77};
  EXPECT_THAT(first.take(kNow, of_others).all, IsEmpty());
  EXPECT_THAT(first.take(kNow, watch::Proposal{"g", 2, 0, {}}).all, IsEmpty());
}

TEST(Agreements, AllThatGetAVerdictGetTheSameInRandomRuns) {
  const char* const wanted = std::getenv("MUSTER_WATCH_SEEDS");
  const uint64_t seeds = wanted != nullptr ? std::strtoull(wanted, nullptr, 10)
                         : kSanitized      ? 300
                                           : 3000;
  agreesim::Tally tally;
  for (uint64_t seed = 1; seed <= seeds; ++seed)
    ASSERT_EQ(agreesim::broken_promise(seed, tally), std::nullopt) << "seed " << seed;
  std::printf("%llu verdicts, %llu deaths\n", static_cast<unsigned long long>(tally.decisions),
              static_cast<unsigned long long>(tally.deaths));
}

}  // namespace
}  // namespace muster::worker
