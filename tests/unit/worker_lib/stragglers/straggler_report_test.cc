// Which ranks hold up all others, derived from the progress that ranks report: the rules one by
// one, random webs of waits, and real groups that ask each other.

#include "worker_lib/stragglers/straggler_report.h"

#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/unit/worker_lib/group/fake_backend.h"
#include "tests/wait_for.h"
#include "worker_lib/call_word.h"
#include "worker_lib/stragglers/straggler_search.h"
#include "worker_lib/watch/watch.h"

namespace muster::worker {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Key;
using testing::Pair;
using testing::UnorderedElementsAre;

constexpr int kRanks = 6;

Members world_of(int ranks) {
  Members world;
  for (int rank = 0; rank < ranks; ++rank)
    world.peers.push_back({GlobalRank{rank}, "node", "host", 100 + rank, "127.0.0.1"});
  world.me = 0;
  return world;
}

// Progress of a rank in calls of some groups.
class At {
 public:
  At& in(const std::string& group, uint64_t number, std::vector<int> awaited,
         const char* name = "all_reduce") {
    LaneProgress& lane = lane_of(group, Lane::host);
    lane = {number, number - 1, name, true, std::move(awaited), {}};
    return *this;
  }
  // It has finished `number` calls of the group and is in none.
  At& after(const std::string& group, uint64_t number, const char* name = "all_reduce") {
    lane_of(group, Lane::host) = {number, number, name, false, {}, {}};
    return *this;
  }
  At& in_background() {
    progress.groups.back().lane(Lane::host).is_held = false;
    return *this;
  }
  At& called(CallSignature call, uint64_t number = 7) {
    progress.groups.back().lane(Lane::host).calls.push_back({number, call});
    return *this;
  }
  At& setting_up(const std::string& group, std::vector<int> awaited) {
    lane_of(group, Lane::host_set_up) = {1, 0, "new_group", true, std::move(awaited), {}};
    return *this;
  }
  At& receiving(const std::string& group, int from) {
    lane_of(group, Lane::host);
    progress.groups.back().transfers.push_back({OpKind::recv, from});
    return *this;
  }
  At& blames(std::vector<int> origin, std::chrono::milliseconds age = 1s) {
    progress.troubles.push_back({std::move(origin), age});
    return *this;
  }

  RankProgress progress;

 private:
  LaneProgress& lane_of(const std::string& group, Lane lane) {
    if (progress.group(group) == nullptr)
      progress.groups.push_back(
          {.id = group, .name = group, .lanes = {}, .transfers = {}, .members = {}});
    const auto found = std::ranges::find(progress.groups, group, &GroupProgress::id);
    std::rotate(found, found + 1, progress.groups.end());
    return progress.groups.back().lane(lane);
  }
};

// A search of rank 0, which waited for `suspects` in call 7 of world.
class Case {
 public:
  explicit Case(std::vector<int> suspects) {
    question.group_id = "world";
    question.number = 7;
    question.suspects = std::move(suspects);
    for (int rank = 0; rank < kRanks; ++rank)
      question.members.push_back(rank);
    question.world_size = kRanks;
    question.limit = 2s;
    question.waited = 2100ms;
    own.in("world", 7, question.suspects);
  }

  Case& with(int rank, const At& at) {
    answers[rank] = at.progress;
    return *this;
  }
  // All other ranks are not in the call.
  Case& nobody_else() {
    for (int rank = 1; rank < kRanks; ++rank)
      answers.try_emplace(rank, At().after("world", 6).progress);
    return *this;
  }
  Case& with(int rank, NoAnswer why) {
    answers[rank] = why;
    return *this;
  }

  StragglerFindings find() const { return find_stragglers(0, question, own.progress, answers); }
  Failure told() const {
    Failure late{ErrorCode::timeout, "late", {}};
    for (const int rank : question.suspects)
      late.ranks.push_back({rank});
    late.is_suspicion = true;
    const Failure said = describe_stragglers(late, question, find(), world_of(kRanks));
    EXPECT_FALSE(said.is_suspicion);
    return said;
  }
  std::vector<int> blamed() const {
    std::vector<int> ranks;
    for (const GlobalRank rank : told().ranks)
      ranks.push_back(rank.value);
    return ranks;
  }

  StragglerQuery question;
  At own;
  ProgressAnswers answers;
};

TEST(StragglerReport, AsksTheAwaitedRanksAndThenThoseTheyWaitFor) {
  Case one({1, 2});
  EXPECT_THAT(one.find().to_ask, ElementsAre(1, 2));
  one.with(1, At().in("world", 7, {3, 4})).with(2, At().after("world", 7));
  EXPECT_THAT(one.find().to_ask, ElementsAre(3, 4));
  one.with(3, At().after("world", 6)).with(4, At().in("world", 7, {0, 3}));
  EXPECT_TRUE(one.find().to_ask.empty());
  EXPECT_THAT(one.find().stragglers, ElementsAre(Key(3)));
}

TEST(StragglerReport, BlamesARankThatHasNotCalledTheOperation) {
  Case one({1});
  one.with(1, At().after("world", 6, "barrier"));
  EXPECT_EQ(one.told().message,
            "rank 1 (host, pid 101) has not called it within 2 s (its last: barrier 6); check what "
            "it is doing instead, or give a longer timeout");
  one.with(1, At());
  EXPECT_THAT(one.told().message, HasSubstr("has not called it within 2 s; check"));
  one.with(1, At().after("world", 0));
  EXPECT_THAT(one.told().message, HasSubstr("within 2 s (nor anything before)"));
}

TEST(StragglerReport, DistinguishesASilentRankFromOneThatHasNotCalled) {
  const auto words = [](NoAnswer why) { return Case({1}).with(1, why).told(); };
  EXPECT_EQ(words(NoAnswer::stopped).message,
            "rank 1 (host, pid 101) is stopped (by SIGSTOP, or by a debugger)");
  EXPECT_EQ(words(NoAnswer::mute).message,
            "rank 1 (host, pid 101) does not answer within 2 s: it is stopped, or its node is "
            "unreachable");
  // The watch will report its death.
  EXPECT_EQ(words(NoAnswer::gone).code, ErrorCode::peer_failed);
  EXPECT_EQ(words(NoAnswer::mute).code, ErrorCode::timeout);
}

TEST(StragglerReport, SkipsARankThatWaitsInAnEarlierCall) {
  Case one({1});
  one.with(1, At().in("world", 6, {4}, "reduce")).with(4, NoAnswer::stopped);
  EXPECT_THAT(one.blamed(), ElementsAre(4));
  EXPECT_EQ(one.told().message,
            "rank 4 (host, pid 104) is stopped (by SIGSTOP, or by a debugger); rank 1 (host, pid "
            "101), which this one waited for, is in reduce 6 of group world itself");
}

TEST(StragglerReport, SkipsARankThatWaitsInAnotherGroup) {
  Case one({1});
  one.with(1, At().after("world", 6).in("pair", 3, {4}, "barrier"));
  one.with(4, At().after("pair", 2));
  EXPECT_THAT(one.blamed(), ElementsAre(4));
  EXPECT_THAT(one.told().message,
              HasSubstr("rank 4 (host, pid 104) has not called barrier 3 of group pair"));
}

TEST(StragglerReport, SkipsARankThatWaitsForAMessageOrToMakeAGroup) {
  Case message({1});
  message.with(1, At().after("world", 6).receiving("world", 4)).with(4, At().after("world", 6));
  EXPECT_THAT(message.blamed(), ElementsAre(4));
  EXPECT_THAT(message.told().message, HasSubstr("does not do its part of recv from rank 4"));
  Case meeting({1});
  meeting.with(1, At().after("world", 6).setting_up("pair", {4})).with(4, NoAnswer::stopped);
  EXPECT_THAT(meeting.blamed(), ElementsAre(4));
}

TEST(StragglerReport, BackgroundOperationsOfOtherGroupsExcuseNoRank) {
  Case one({1});
  // Its program computes, while an operation of another group is under way.
  one.with(1, At().after("world", 6).in("pair", 3, {4}).in_background()).with(4, NoAnswer::mute);
  EXPECT_THAT(one.blamed(), ElementsAre(1));
  // But an operation of the same group delays its call.
  one.with(1, At().in("world", 6, {4}).in_background());
  EXPECT_THAT(one.blamed(), ElementsAre(4));
}

TEST(StragglerReport, SkipsARankThatMetAFailureOfAnother) {
  Case one({1});
  one.with(1, At().after("world", 6).blames({4})).with(4, NoAnswer::stopped);
  EXPECT_THAT(one.blamed(), ElementsAre(4));
  // An old failure, or one of its own, excuses nothing.
  one.with(1, At().after("world", 6).blames({4}, 60s));
  EXPECT_THAT(one.blamed(), ElementsAre(1));
  one.with(1, At().after("world", 6).blames({1}));
  EXPECT_THAT(one.blamed(), ElementsAre(1));
}

// The ranks waited for each other, and this one found out first.
TEST(StragglerReport, DoesNotSkipARankThatBlamesItselfToo) {
  Case one({1});
  one.with(1, At().after("world", 6).blames({1, 4})).with(4, At().after("world", 6));
  EXPECT_THAT(one.blamed(), ElementsAre(1, 4));
  one.with(1, At().after("world", 6).blames({0, 1}));
  EXPECT_THAT(one.blamed(), ElementsAre(0, 1));
}

TEST(StragglerReport, NamesAllStragglers) {
  Case one({1, 2});
  one.with(1, At().after("world", 6)).with(2, At().in("world", 7, {5})).with(5, NoAnswer::mute);
  EXPECT_THAT(one.blamed(), ElementsAre(1, 5));
  EXPECT_THAT(one.told().message, HasSubstr("; check what they are doing instead"));
}

TEST(StragglerReport, NamesAllRanksThatWaitForEachOther) {
  Case one({1});
  one.with(1, At().after("world", 6).in("pair", 3, {0}));
  EXPECT_THAT(one.find().to_ask, ElementsAre(2, 3, 4, 5)) << "for the majority";
  one.nobody_else();
  EXPECT_THAT(one.blamed(), ElementsAre(0, 1));
  EXPECT_THAT(one.told().message, HasSubstr("rank 1 (host, pid 101) is in all_reduce 3 of group "
                                            "pair; the ranks 0, 1 wait for each other"));
  // A circle that does not include this rank.
  one.with(1, At().after("world", 6).in("pair", 3, {2}));
  one.with(2, At().after("world", 6).receiving("world", 1));
  EXPECT_THAT(one.blamed(), ElementsAre(1, 2));
}

// Rank 2 has skipped a call: it waits in the next one for the ranks that wait for it.
TEST(StragglerReport, InACircleTheRanksOutsideTheMajorityAreNamed) {
  Case one({2});
  one.with(2, At().after("world", 6).in("other", 3, {0, 1}, "barrier"));
  one.with(1, At().in("world", 7, {2})).nobody_else();
  EXPECT_THAT(one.blamed(), ElementsAre(2));
  EXPECT_EQ(one.told().message,
            "rank 2 (host, pid 102) has not called it within 2 s, but is in barrier 3 of group "
            "other; all must make their calls in the same order, whatever the group");
}

// Its timeout ended a moment before: it has left the call with a failure.
TEST(StragglerReport, UsesTheFindingOfARankThatGaveUpTheCall) {
  Case one({1});
  one.with(1, At().after("world", 7).blames({3})).with(3, At().after("world", 6));
  EXPECT_THAT(one.blamed(), ElementsAre(3));
  EXPECT_THAT(
      one.told().message,
      HasSubstr(
          "rank 3 (host, pid 103) does not do its part of the call that has failed on rank 1"));
  one.with(1, At().after("world", 7).blames({3}, 4s));  // Before this rank waited.
  EXPECT_TRUE(one.find().stragglers.empty());
}

// Ranks 0 and 1 wait for each other.
Case circle_with_rank_1() {
  Case one({1});
  return one.with(1, At().after("world", 6).in("other", 3, {0}, "barrier"));
}

// Ranks that timed out earlier may be gone, but their findings stand.
TEST(StragglerReport, InACircleTheEarlierFindingsOfOtherRanksDecide) {
  Case one = circle_with_rank_1();
  one.with(2, At().after("world", 6).after("other", 3).blames({0})).with(3, NoAnswer::gone);
  one.nobody_else();
  EXPECT_THAT(one.blamed(), ElementsAre(0));
  EXPECT_EQ(one.told().message,
            "rank 0 (host, pid 100) has not called barrier 3 of group other within 2 s, but is in "
            "all_reduce 7 of group world; rank 1 (host, pid 101), which this one waited for, is in "
            "barrier 3 of group other itself; all must make their calls in the same order, "
            "whatever the group");
  one.with(2, At().after("world", 6).blames({1}));
  EXPECT_THAT(one.blamed(), ElementsAre(1));
  for (const At& at : {At().after("world", 6).blames({0}, 4s), At().after("world", 6).blames({4}),
                       At().after("world", 6).blames({2}), At().after("world", 6).blames({0, 1}),
                       At().after("world", 6).in("third", 2, {3}).blames({0})}) {
    one.with(2, at);
    EXPECT_THAT(one.blamed(), ElementsAre(0, 1)) << "no rank has found out more";
  }
}

TEST(StragglerReport, InACircleReportsOfEndedRanksDecide) {
  Case one = circle_with_rank_1();
  for (int rank = 2; rank < kRanks; ++rank)
    one.with(rank, NoAnswer::gone);
  EXPECT_THAT(one.blamed(), ElementsAre(0, 1));
  one.own.blames({0}, 100ms);
  EXPECT_THAT(one.blamed(), ElementsAre(0));
  one.own.progress.troubles[0].age = 4s;  // Before this rank waited: unrelated.
  EXPECT_THAT(one.blamed(), ElementsAre(0, 1));
}

// Rank 0 itself is the straggler.
TEST(StragglerReport, BlamesItselfIfOtherRanksGaveUpBecauseOfIt) {
  Case one({1});
  one.with(1, At().after("world", 6).blames({0}));
  EXPECT_THAT(one.blamed(), ElementsAre(0));
  EXPECT_EQ(one.told().message,
            "rank 0 (host, pid 100) has not called the call that has failed on rank 1 within 2 s, "
            "but is in all_reduce 7 of group world; rank 1 (host, pid 101), which this one waited "
            "for, is in a call that has failed itself; all must make their calls in the same "
            "order, whatever the group");
}

TEST(StragglerReport, BlamesAnEndedRankOnlyIfNoOtherIsToBlame) {
  Case one({1, 2, 3});
  one.with(1, At().after("world", 6).blames({0})).with(2, NoAnswer::gone).with(3, NoAnswer::gone);
  EXPECT_THAT(one.blamed(), ElementsAre(0));
  one.with(1, NoAnswer::stopped);
  EXPECT_THAT(one.blamed(), ElementsAre(1));
  one.with(1, NoAnswer::gone);
  EXPECT_THAT(one.blamed(), ElementsAre(1, 2, 3));
}

// The straggler may be the rank that would forward why the others have ended.
TEST(StragglerReport, AsksTheOtherMembersIfAllAwaitedRanksHaveEnded) {
  Case one({3});
  one.with(3, NoAnswer::gone);
  EXPECT_THAT(one.find().to_ask, UnorderedElementsAre(1, 2, 4, 5));
  one.nobody_else();
  EXPECT_THAT(one.blamed(), ElementsAre(3));
  Case blamed = one;
  EXPECT_THAT(blamed.with(2, At().after("world", 6).blames({1})).blamed(), ElementsAre(1));
  EXPECT_THAT(blamed.with(1, NoAnswer::stopped).blamed(), ElementsAre(1));
  Case mute = one;
  EXPECT_THAT(mute.with(1, NoAnswer::mute).with(2, NoAnswer::gone).blamed(), ElementsAre(1));
  EXPECT_EQ(mute.told().code, ErrorCode::timeout);
  Case passed_on({3});
  passed_on.question.members = {0, 3};
  passed_on.question.messengers = {0, 5};
  passed_on.with(3, NoAnswer::gone);
  EXPECT_THAT(passed_on.find().to_ask, ElementsAre(5));
  EXPECT_THAT(passed_on.with(5, NoAnswer::mute).blamed(), ElementsAre(5));
  EXPECT_THAT(passed_on.with(5, At().after("world", 6)).blamed(), ElementsAre(3));
}

TEST(StragglerReport, KeepsTheSuspectsIfAllRanksAreInTheSameCall) {
  Case one({1});
  one.with(1, At().in("world", 7, {0, 2})).with(2, At().in("world", 7, {1}));
  EXPECT_TRUE(one.find().circle.empty());
  EXPECT_THAT(one.blamed(), ElementsAre(1));
  EXPECT_EQ(one.told().message, "late");
}

TEST(StragglerReport, DoesNotAskRanksThatDoNotExist) {
  Case one({1, kRanks});
  one.with(1, At().in("world", 7, {kRanks + 5, -3, 2}));
  EXPECT_THAT(one.find().to_ask, ElementsAre(2));
}

TEST(StragglerReport, DoesNotBlameARankThatFinishedTheCall) {
  Case one({1, 2});
  one.with(1, At().in("world", 9, {3})).with(2, At().after("world", 6));
  EXPECT_THAT(one.blamed(), ElementsAre(2));
}

TEST(StragglerReport, AReceiveFromAnyRankBlamesNoRankForComputing) {
  Case one({1, 2, 3});
  one.question.number = 0;
  one.question.from_anybody = true;
  one.with(1, At().after("world", 6)).with(2, At().in("world", 7, {5})).with(3, At());
  one.with(5, NoAnswer::stopped);
  EXPECT_THAT(one.blamed(), ElementsAre(5));
  one.with(5, At().in("world", 7, {0}));
  EXPECT_EQ(one.told().message, "late");
}

TEST(StragglerReport, KeepsTheTextOfALateMessage) {
  Case one({1});
  one.question.number = 0;
  one.with(1, At().after("world", 6));
  EXPECT_EQ(one.told().message, "late");
  EXPECT_THAT(one.blamed(), ElementsAre(1));
}

// ---- other calls

CallSignature signature(OpKind kind, size_t count, int root = 0) {
  return signature_of(
      Operation{.kind = kind, .count = count, .dtype = DType::float32, .root = root});
}

TEST(StragglerReport, NoticesARankInADifferentCallWithTheSameNumber) {
  Case one({1});
  one.own.called(signature(OpKind::all_reduce, 8));
  one.with(1, At().in("world", 7, {0}).called(signature(OpKind::all_reduce, 8)));
  EXPECT_FALSE(one.find().differs);
  one.with(1, At().in("world", 7, {0}).called(signature(OpKind::barrier, 0)));
  EXPECT_TRUE(one.find().differs);
}

TEST(StragglerReport, AMismatchNamesTheMinorityOfTheArrivedRanks) {
  Case one({});
  one.own.called(signature(OpKind::barrier, 0), 6).called(signature(OpKind::broadcast, 8, 5));
  const auto compared = [&] {
    return compare_calls(one.question, world_of(kRanks), one.own.progress, one.answers);
  };
  EXPECT_EQ(compared(), std::nullopt);
  one.with(1, At().in("world", 7, {0}).called(signature(OpKind::broadcast, 8, 4)));
  ASSERT_TRUE(compared());
  EXPECT_THAT(compared()->ranks, ElementsAre(GlobalRank{0}, GlobalRank{1})) << "a tie";
  one.with(2, At().in("world", 7, {0}).called(signature(OpKind::broadcast, 8, 5)));
  // Rank 3 is further, but made the same call; rank 4 is not there yet.
  one.with(3, At().in("world", 8, {0}).called(signature(OpKind::broadcast, 8, 5)));
  one.with(4, At().after("world", 6).called(signature(OpKind::broadcast, 8, 4), 6));
  EXPECT_THAT(compared()->ranks, ElementsAre(GlobalRank{1}));
  EXPECT_EQ(compared()->code, ErrorCode::mismatch);
  EXPECT_EQ(compared()->message,
            "rank 1 (host, pid 101) called broadcast of 8 float32 from the group's rank 4, but "
            "rank 0 (host, pid 100) called broadcast of 8 float32 from the group's rank 5; all "
            "ranks must make the same calls in the same order");
}

// Answers for all ranks, and counts how often each is asked.
class CountingWatch final : public Watch {
 public:
  // The answer of a rank to the nth question; nullopt: it is silent.
  using Says = std::function<std::optional<RankProgress>(int rank, int nth)>;
  explicit CountingWatch(Says says) : says_(std::move(says)) {}

  int subscribe(Listener) override { return 0; }
  void unsubscribe(int) override {}
  void tell(News) override {}
  void remind(News) override {}
  void leave() override {}
  void answer_with(std::function<std::string()>) override {}
  Outcome<Verdict> agree(const Ballot&, Deadline) override {
    return failed(ErrorCode::system, "ranks of a fake watch do not agree");
  }
  bool stop_requested() const override { return false; }
  void request_stop() override {}
  std::unique_ptr<Questions> questions() override { return std::make_unique<Asking>(*this); }

  std::map<int, int> asked;
  bool garbles = false;  // True: answers cannot be decoded.
  std::set<int> gone;

 private:
  class Asking final : public Questions {
   public:
    explicit Asking(CountingWatch& watch) : watch_(watch) {}
    void ask(int rank) override {
      if (watch_.gone.contains(rank)) return replies_.push_back({rank, Reply::Kind::refused});
      const auto said = watch_.says_(rank, ++watch_.asked[rank]);
      if (!said) return;
      replies_.push_back({rank, Reply::Kind::said, watch_.garbles ? "garbled" : said->encode()});
    }
    std::vector<Reply> wait(Deadline until) override {
      if (replies_.empty()) test::pause_until(until, "nobody else answers");
      return std::exchange(replies_, {});
    }
    ProcessState state_of(int) const override { return ProcessState::running; }

   private:
    CountingWatch& watch_;
    std::vector<Reply> replies_;
  };
  const Says says_;
};

// Returns the mismatch that rank 0 finds among the ranks of this watch.
Failure find_other_call(
    CountingWatch& watch, const std::function<bool()>& over = [] { return false; }) {
  Case one({});
  one.own.called(signature(OpKind::barrier, 0));
  Failure met{ErrorCode::mismatch, "the calls differ", {}};
  met.is_suspicion = true;
  const Members world = world_of(kRanks);
  return name_stragglers(
      met, one.question,
      {.world = world, .watch = watch, .own = [&] { return one.own.progress; }, .over = over});
}

TEST(StragglerReport, AsksAgainWithGrowingDelayOnlyRanksNotYetInTheCall) {
  CountingWatch watch([](int rank, int) -> std::optional<RankProgress> {
    if (rank == 1) return At().after("world", 6).progress;
    if (rank == 2) return std::nullopt;
    return At().in("world", 7, {0}).called(signature(OpKind::all_reduce, 8)).progress;
  });
  EXPECT_THAT(find_other_call(watch).ranks, ElementsAre(GlobalRank{0}));
  // At 0, 25, 75 and 175 ms.
  EXPECT_LE(watch.asked[1], 4);
  watch.asked.erase(1);
  EXPECT_THAT(watch.asked, ElementsAre(Pair(2, 1), Pair(3, 1), Pair(4, 1), Pair(5, 1)));
}

TEST(StragglerReport, ComparesARankThatArrivesDuringTheSearch) {
  CountingWatch watch([](int rank, int nth) -> std::optional<RankProgress> {
    if (rank == 1 && nth == 1) return At().after("world", 6).progress;
    const bool is_odd = rank == 1;
    return At()
        .in("world", 7, {0})
        .called(signature(is_odd ? OpKind::all_reduce : OpKind::barrier, is_odd ? 8 : 0))
        .progress;
  });
  EXPECT_THAT(find_other_call(watch).ranks, ElementsAre(GlobalRank{1}));
  EXPECT_EQ(watch.asked[1], 2);
}

TEST(StragglerReport, WaitsForNewsOfEndedRanksBeforeBlamingEitherOfTwo) {
  CountingWatch watch([](int, int) {
    return At().in("world", 7, {0}).called(signature(OpKind::all_reduce, 8)).progress;
  });
  watch.gone = {2, 3, 4, 5};
  int looks = 0;
  EXPECT_THAT(find_other_call(watch, [&] { return ++looks > 5; }).ranks, IsEmpty());
  // No news arrives.
  EXPECT_THAT(find_other_call(watch).ranks, ElementsAre(GlobalRank{0}, GlobalRank{1}));
}

// The progress of a rank in very many groups may exceed the size of an answer.
TEST(StragglerReport, DoesNotBlameARankForAnUnreadableAnswer) {
  CountingWatch watch([](int, int) { return At().after("world", 6).progress; });
  const Case one({1});
  Failure met{ErrorCode::timeout, "rank 1 did not arrive", {GlobalRank{1}}};
  met.is_suspicion = true;
  const Members world = world_of(kRanks);
  const auto named = [&] {
    return name_stragglers(met, one.question,
                           {.world = world,
                            .watch = watch,
                            .own = [&] { return one.own.progress; },
                            .over = [] { return false; }})
        .message;
  };
  EXPECT_THAT(named(), HasSubstr("rank 1 (host, pid 101) has not called it"));
  watch.garbles = true;
  EXPECT_EQ(named(), "rank 1 did not arrive");
}

// ---- random webs of waits

// Each rank but the culprit waits for a lower one, in a group or for its message; all chains end at
// rank 1, which is stopped or computes. Every search finds it.
RC_GTEST_PROP(StragglerProperty, EveryChainOfWaitsIsFollowedToItsEnd, ()) {
  const int ranks = *rc::gen::inRange(3, 12);
  const bool stopped = *rc::gen::arbitrary<bool>();
  ProgressAnswers answers;
  answers[1] = stopped ? ProgressAnswers::mapped_type(NoAnswer::stopped)
                       : ProgressAnswers::mapped_type(At().after("world", 6).progress);
  for (int rank = 2; rank < ranks; ++rank) {
    const int next = *rc::gen::inRange(1, rank);
    At at;
    switch (*rc::gen::inRange(0, 4)) {
      case 0:
        at.in("world", 7, {next});
        break;
      case 1:
        at.in("world", 6, {next}, "broadcast");
        break;
      case 2:
        at.after("world", 6).in(fmt::format("pair{}", rank), 1, {next});
        break;
      default:
        at.after("world", 6).receiving("world", next);
    }
    answers[rank] = at.progress;
  }
  Case one({*rc::gen::inRange(1, ranks)});
  one.question.world_size = ranks;
  one.answers = std::move(answers);
  // A rank in call 6 or 7 of world may wait in vain for one that has finished 6: only rank 1 can
  // hold it up.
  const StragglerFindings found = one.find();
  RC_ASSERT(found.to_ask.empty());
  RC_ASSERT(found.circle.empty());
  for (const auto& [rank, straggler] : found.stragglers)
    RC_ASSERT(rank == 1);
}

// ---- encoding

RC_GTEST_PROP(RankProgressProperty, SurvivesEncoding, ()) {
  const auto ranks = rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 5000));
  const auto text = rc::gen::arbitrary<std::string>();
  RankProgress progress;
  for (int i = *rc::gen::inRange(0, 4); i > 0; --i) {
    GroupProgress group{
        .id = *text, .name = *text, .lanes = {}, .transfers = {}, .members = *ranks};
    for (LaneProgress& lane : group.lanes) {
      lane = {*rc::gen::arbitrary<uint64_t>(),
              *rc::gen::arbitrary<uint64_t>(),
              *text,
              *rc::gen::arbitrary<bool>(),
              *ranks,
              {}};
      if (*rc::gen::arbitrary<bool>())
        lane.calls = {{*rc::gen::arbitrary<uint64_t>(), {1, 2, 3}}, {4, {5, 6, 7}}};
    }
    if (*rc::gen::arbitrary<bool>()) group.transfers.push_back({OpKind::recv, -1});
    if (*rc::gen::arbitrary<bool>()) group.transfers.push_back({OpKind::send, 3});
    progress.groups.push_back(std::move(group));
  }
  if (*rc::gen::arbitrary<bool>()) progress.troubles.push_back({*ranks, 17ms});
  RC_ASSERT(RankProgress::decode(progress.encode()) == progress);
}

}  // namespace
}  // namespace muster::worker

// ---- groups that ask

namespace muster::worker::group_test {
namespace {

using Ranks = std::vector<GlobalRank>;

CallOptions soon() {
  return {.timeout = 100ms};
}

// Waits until a rank reports that it is in a call or transfer of the group.
void wait_until_in(FakeJob& job, int rank, const std::string& group, Lane lane) {
  const auto is_in = [&](const GroupProgress& one) {
    return one.name == group && (one.lane(lane).is_under_way() || !one.transfers.empty());
  };
  const auto says_so = [&] {
    const auto progress = RankProgress::decode(job.watch().progress(rank));
    return progress && std::ranges::any_of(progress->groups, is_in);
  };
  test::wait_for(says_so, "rank " + std::to_string(rank) + " is in " + group);
}

TEST(GroupStragglers, NamesAStoppedRankAndNotItsLateNeighbour) {
  FakeJob job(3);
  job.watch().is(2, ProcessState::stopped);
  auto between = std::async(std::launch::async, [&] {
    std::vector<int64_t> data(1);
    return thrown_by([&] { job[1].world().recv(data, GroupRank{2}); });
  });
  wait_until_in(job, 1, "world", Lane::host);
  Ranks ranks;
  EXPECT_EQ(thrown_by([&] { job[0].world().barrier(soon()); }, &ranks),
            "timeout: barrier 1 of group world: rank 2 (host, pid 102) is stopped (by SIGSTOP, or "
            "by a debugger); rank 1 (host, pid 101), which this one waited for, is in recv from "
            "rank 2 of group world itself");
  EXPECT_EQ(ranks, Ranks{{2}});
  EXPECT_THAT(between.get(), HasSubstr("rank 2 (host, pid 102) is stopped"));
}

TEST(GroupStragglers, FollowsARankThatWaitsForAQueuedWork) {
  FakeJob job(3);
  job.watch().is(2, ProcessState::stopped);
  const Ranks two{{1}, {2}};
  auto made = std::async(std::launch::async, [&] { return job[2].new_group(two); });
  ProcessGroup pair = job[1].new_group(two);
  made.get();
  std::vector<int64_t> data(1);
  Work first = pair.barrier_async();
  Work second = pair.barrier_async();
  auto between = std::async(std::launch::async, [&] { return thrown_by([&] { second.wait(); }); });
  wait_until_in(job, 1, "group of ranks 1,2", Lane::host);
  // As long as no thread waits for them, the others wait for the rank itself.
  Ranks ranks;
  const auto is_held = [&] {
    const auto progress = RankProgress::decode(job.watch().progress(1));
    const auto group =
        std::ranges::find(progress->groups, "group of ranks 1,2", &GroupProgress::name);
    return group->lane(Lane::host).is_held;
  };
  test::wait_for(is_held, "a call that is held");
  thrown_by([&] { job[0].world().barrier(soon()); }, &ranks);
  EXPECT_EQ(ranks, Ranks{{2}});
  pair.abort();
  between.get();
}

TEST(GroupStragglers, AWorkThatIsNotAwaitedExcusesNoRank) {
  FakeJob job(3);
  job.watch().is(2, ProcessState::stopped);
  const Ranks two{{1}, {2}};
  auto made = std::async(std::launch::async, [&] { return job[2].new_group(two); });
  ProcessGroup pair = job[1].new_group(two);
  made.get();
  Work alone = pair.barrier_async();
  wait_until_in(job, 1, "group of ranks 1,2", Lane::host);
  Ranks ranks;
  thrown_by([&] { job[0].new_group({{0}, {1}}, {.timeout = 100ms}); }, &ranks);
  EXPECT_EQ(ranks, Ranks{{1}});
  pair.abort();
}

TEST(GroupStragglers, AWorkThatExpiresInTheQueueNamesWhatBlocksIt) {
  FakeJob job(2);
  job.watch().is(1, ProcessState::stopped);
  ProcessGroup world = job[0].world();
  Work first = world.barrier_async({.timeout = 60s});
  Work second = world.barrier_async(soon());
  Ranks ranks;
  EXPECT_EQ(thrown_by([&] { second.wait(); }, &ranks),
            "timeout: barrier of group world: its timeout expired while earlier operations were in "
            "progress: rank 1 (host, pid 101) is stopped (by SIGSTOP, or by a debugger)");
  EXPECT_EQ(ranks, Ranks{{1}});
}

TEST(GroupStragglers, TwoLateRanksBlameTheSameRank) {
  FakeJob job(3);
  job.watch().is(2, ProcessState::stopped);
  job.each([&](FakeRank& rank) {
    if (rank.me == 2) return;
    Ranks ranks;
    thrown_by([&] { rank.world().barrier(soon()); }, &ranks);
    EXPECT_EQ(ranks, Ranks{{2}}) << rank.me;
  });
}

// Otherwise the visit would join the group's threads, and this rank would answer no other
// meanwhile.
TEST(GroupStragglers, AVisitDestroysNoGroupThatTheProgramDropsMeanwhile) {
  FakeJob job(2);
  std::vector<ProcessGroup> pair(2);
  const auto make = [&](const std::string& name) {
    job.each([&](FakeRank& rank) {
      pair[static_cast<size_t>(rank.me)] = rank.new_group({{0}, {1}}, {.name = name});
    });
  };
  const auto look = [&] { job[0].host->visit([&](const Group&) { pair[0] = ProcessGroup(); }); };
  make("first");
  look();
  EXPECT_THAT(job.tables().named("first").gone(), IsEmpty());
  make("second");
  EXPECT_THAT(job.tables().named("first").gone(), UnorderedElementsAre(0, 1));
  look();
  EXPECT_THAT(job.tables().named("second").gone(), IsEmpty());
  job[0].host->close_groups();
  EXPECT_THAT(job.tables().named("second").gone(), ElementsAre(0));
}

TEST(GroupStragglers, AVisitAfterCloseKeepsNoGroup) {
  FakeJob job(1);
  ProcessGroup alone = job[0].new_group({{0}}, {.name = "alone"});
  job[0].host->close_groups();
  job[0].host->visit([&](const Group&) { alone = ProcessGroup(); });
  const std::weak_ptr<GroupHost> host = job[0].host;
  job[0] = FakeRank();
  EXPECT_TRUE(host.expired()) << "a group that lingers holds it";
}

TEST(GroupStragglers, AbortBlamesTheRankThatCallsIt) {
  FakeJob job(2);
  job[1].world().abort("enough");
  job.watch().settle();
  for (int rank = 0; rank < 2; ++rank) {
    Ranks ranks;
    thrown_by([&] { job[rank].world().barrier(); }, &ranks);
    EXPECT_EQ(ranks, Ranks{{1}}) << rank;
  }
}

}  // namespace
}  // namespace muster::worker::group_test
