// The texts that a person reads about a hang, whole, for each class.
#include "agent/hang/hang_text.h"

#include <algorithm>
#include <csignal>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::hang {
namespace {

constexpr const char* kGoesOn =
    "\n  the job goes on; stop it with Ctrl-C, or with SIGTERM to muster";

RankPlace on_node_b(int rank) {
  return {"node-b", 4700 + rank, fmt::format("GPU {} (0000:3b:00.0)", rank)};
}

RankPlace nowhere(int /*rank*/) {
  return {};
}

Life doing(LifeState state, const char* call = "") {
  Life life{.state = state};
  if (*call != '\0') life.call = SystemCall{.is_known = true, .name = call};
  return life;
}

const Life kRunning = doing(LifeState::running);

ring::Call sum_of(uint64_t count, ring::Reduction reduction = ring::Reduction::sum) {
  return {.kind = ring::CallKind::all_reduce,
          .type = ring::ElementType::float32,
          .reduction = reduction,
          .count = count};
}

ring::Call broadcast_of(ring::ElementType type, uint64_t count, int root) {
  return {.kind = ring::CallKind::broadcast, .type = type, .root = root, .count = count};
}

const ring::Call kBarrier{.kind = ring::CallKind::barrier};

Operation call_in(const std::string& group, uint64_t ordinal, const ring::Call& call) {
  return {.group = {group, {}}, .ordinal = ordinal, .call = call};
}

Suspect suspect(int rank, const Life& life = {}) {
  Suspect one;
  one.rank = rank;
  one.life = life;
  return one;
}

Suspect ended_rank(int rank, ExitStatus status) {
  Suspect one = suspect(rank);
  one.ended = status;
  return one;
}

Suspect caller(int rank, const Operation& call, const std::string& site = "") {
  Suspect one = suspect(rank);
  one.call = call;
  one.site = site;
  return one;
}

Suspect caller(int rank, const ring::Call& call, const std::string& site = "") {
  return caller(rank, call_in("world", 17, call), site);
}

// The other ranks of eight wait.
Finding finding_of(Class what, const std::vector<Suspect>& suspects) {
  Finding finding;
  finding.what = what;
  finding.ranks = suspects;
  for (Suspect& one : finding.ranks)
    one.what = what;
  for (int rank = 0; rank < 8; ++rank) {
    const bool waits = std::ranges::find(suspects, rank, &Suspect::rank) == suspects.end();
    if (waits) finding.waiting.push_back(rank);
  }
  finding.operation = call_in("world", 1042, sum_of(262144));
  finding.waited = std::chrono::milliseconds(12'400);
  return finding;
}

Finding blocked_in_read() {
  Life blocked = doing(LifeState::blocked, "read");
  blocked.call->descriptor = 3;
  blocked.target = "pipe:[4711]";
  return finding_of(Class::never_entered, {suspect(5, blocked)});
}

// ---- calls

TEST(HangCall, IsNamedByItsOrdinalInItsGroup) {
  EXPECT_EQ(call_text(call_in("world", 17, sum_of(8))), "all_reduce #17 of group 'world'");
  EXPECT_EQ(call_text(call_in("tp", 7, kBarrier)), "barrier #7 of group 'tp'");
  EXPECT_EQ(call_text(call_in("tp", 7, {})), "call #7 of group 'tp'");
}

TEST(HangCall, IsNamedByItsGroupIfItHasNoOrdinal) {
  using enum Operation::Kind;
  EXPECT_EQ(call_text({.kind = forming, .group = {"tp", {}}}), "forming group 'tp'");
  EXPECT_EQ(call_text({.kind = send, .group = {"pp", {}}, .peer = 3}),
            "send to rank 3 in group 'pp'");
  EXPECT_EQ(call_text({.kind = recv, .group = {"pp", {}}}), "recv from any rank in group 'pp'");
  EXPECT_EQ(call_text({.kind = forming, .group = {"mesh_tp", "0,4,8"}}),
            "forming group 'mesh_tp' of ranks 0,4,8");
  EXPECT_EQ(call_text({.kind = forming, .group = {"mesh_tp", "3"}}),
            "forming group 'mesh_tp' of rank 3");
  EXPECT_EQ(call_text({.kind = forming, .group = {"group of ranks 0-1", "0-1"}}),
            "forming group of ranks 0-1");
}

// ---- notices

TEST(HangNotice, SaysWhichRanksWaitAndWhatTheLateRankDoes) {
  Finding finding = blocked_in_read();
  finding.waited = std::chrono::seconds(10);
  EXPECT_EQ(notice_text(finding, on_node_b),
            "7 ranks have waited 10.0 s for rank 5 (node-b, GPU 5, pid 4705) in all_reduce #1042 "
            "of group 'world' (sum of 262144 float32); rank 5 has not called it and is blocked in "
            "read() of a pipe (descriptor 3)");
}

TEST(HangNotice, OmitsTheNodeInAJobOfOneNode) {
  Finding finding = finding_of(Class::busy, {suspect(1)});
  finding.waiting = {0};
  finding.operation = call_in("world", 7, kBarrier);
  const auto place = [](int rank) { return RankPlace{"", 100 + rank, ""}; };
  EXPECT_EQ(notice_text(finding, place),
            "rank 0 has waited 12.4 s for rank 1 (pid 101) in barrier #7 of group 'world'; rank 1 "
            "has not called it");
}

TEST(HangNotice, ShowsSeveralLateRanksAsRanges) {
  const Finding finding = finding_of(
      Class::never_entered,
      {suspect(2, kRunning), suspect(5, doing(LifeState::sleeping, "poll")), suspect(6, kRunning)});
  EXPECT_EQ(notice_text(finding, on_node_b),
            "5 ranks have waited 12.4 s for ranks 2,5-6 in all_reduce #1042 of group 'world' (sum "
            "of 262144 float32); ranks 2,5-6 have not called it");
}

TEST(HangNotice, DescribesAGroupThatIsNotFormed) {
  Finding finding = finding_of(Class::never_entered, {suspect(5, kRunning)});
  finding.operation = {.kind = Operation::Kind::forming, .group = {"tp", {}}};
  EXPECT_EQ(notice_text(finding, nowhere),
            "7 ranks have waited 12.4 s for rank 5 in forming group 'tp'; rank 5 has not begun to "
            "form it and is running");
  EXPECT_EQ(verdict_line(finding, nowhere),
            "rank 5 has not begun to form group 'tp'; 7 other ranks have waited 12.4 s; rank 5 is "
            "running");
  finding.ranks[0].is_inside = true;
  EXPECT_EQ(verdict_line(finding, nowhere),
            "rank 5 has not formed group 'tp'; 7 other ranks have waited 12.4 s; rank 5 is "
            "running");
  finding.ranks.clear();
  finding.what = Class::incomplete;
  EXPECT_EQ(notice_text(finding, nowhere),
            "all members have begun to form group 'tp', and it is not ready after 12.4 s");
}

TEST(HangNotice, SaysWhereTheRanksWait) {
  Finding finding = finding_of(Class::busy, {suspect(5, kRunning)});
  finding.site = "train.py:88 step";
  EXPECT_EQ(notice_text(finding, nowhere),
            "7 ranks have waited 12.4 s for rank 5 in all_reduce #1042 of group 'world' (sum of "
            "262144 float32) at train.py:88 step; rank 5 has not called it and is running");
}

TEST(HangNotice, ShowsHowARankEnded) {
  Finding finding = finding_of(Class::exited, {ended_rank(5, ExitStatus::exited(0))});
  EXPECT_EQ(notice_text(finding, nowhere),
            "7 ranks have waited 12.4 s for rank 5 in all_reduce #1042 of group 'world' (sum of "
            "262144 float32); rank 5 exited with 0");
}

TEST(HangNotice, DoesNotDependOnTheConfidence) {
  Finding finding = blocked_in_read();
  const std::string sure = notice_text(finding, on_node_b);
  finding.confidence = Confidence::low;
  EXPECT_EQ(notice_text(finding, on_node_b), sure);
}

TEST(HangNotice, IsFollowedByALineWhenTheWaitEnds) {
  Finding notice = blocked_in_read();
  const WaitEnded ended{1, {5}, std::chrono::milliseconds(31'200)};
  EXPECT_EQ(wait_ended_text(ended, notice),
            "rank 5 came to all_reduce #1042 of group 'world' after 31.2 s");
  EXPECT_EQ(wait_ended_text({1, {5}, std::chrono::seconds(31), false}, notice),
            "the wait for rank 5 in all_reduce #1042 of group 'world' is over after 31.0 s");
  notice.what = Class::incomplete;
  EXPECT_EQ(wait_ended_text(ended, notice),
            "the wait for rank 5 in all_reduce #1042 of group 'world' is over after 31.2 s");
  notice = finding_of(Class::never_entered, {suspect(5), suspect(6)});
  notice.operation = {.kind = Operation::Kind::forming, .group = {"world", {}}};
  EXPECT_EQ(wait_ended_text({1, {5, 6}, std::chrono::seconds(31)}, notice),
            "the wait for ranks 5-6 in forming group 'world' is over after 31.0 s");
  EXPECT_EQ(wait_ended_text({1, {}, std::chrono::seconds(31)}, notice),
            "the wait in forming group 'world' is over after 31.0 s");
}

// ---- verdicts

TEST(HangVerdict, ShowsAllThatIsKnownOfABlockedRank) {
  Finding finding = blocked_in_read();
  finding.ranks[0].call = call_in("tp", 9, broadcast_of(ring::ElementType::int64, 1, 0));
  finding.ranks[0].site = "train.py:80 load";
  finding.ranks[0].section = "checkpoint";
  finding.site = "train.py:88 step";
  EXPECT_EQ(
      verdict_text(finding, on_node_b, "job7"),
      R"(rank 5 (node-b, GPU 5, pid 4705) never entered all_reduce #1042 of group 'world' (sum of 262144 float32); 7 other ranks have waited 12.4 s; rank 5 is blocked in read() of a pipe (descriptor 3)
  rank 5: last call: broadcast #9 of group 'tp' at train.py:80 load; in section 'checkpoint'
  waiting: ranks 0-4,6-7 at train.py:88 step
  the last calls: musterctl records job7 --ranks 5
  the job goes on; stop it with Ctrl-C, or with SIGTERM to muster)");
}

TEST(HangVerdict, LeavesOutWhatIsUnknown) {
  Finding finding = finding_of(Class::never_entered, {suspect(1)});
  finding.waiting = {0};
  EXPECT_EQ(verdict_text(finding, nowhere, "job7"),
            std::string("rank 1 never entered all_reduce #1042 of group 'world' (sum of 262144 "
                        "float32); rank 0 has waited 12.4 s"
                        "\n  waiting: rank 0"
                        "\n  the last calls: musterctl records job7 --ranks 1") +
                kGoesOn);
}

TEST(HangVerdict, DescribesTheFirstOfSeveralRanks) {
  std::vector<Suspect> suspects;
  for (int rank = 0; rank < 6; ++rank)
    suspects.push_back(suspect(rank, rank == 3 ? kRunning : doing(LifeState::blocked, "futex")));
  EXPECT_EQ(verdict_text(finding_of(Class::never_entered, suspects), on_node_b, "job7"),
            std::string("ranks 0-5 never entered all_reduce #1042 of group 'world' (sum of 262144 "
                        "float32); 2 other ranks have waited 12.4 s"
                        "\n  rank 0 (node-b, GPU 0, pid 4700): blocked in futex()"
                        "\n  rank 1 (node-b, GPU 1, pid 4701): blocked in futex()"
                        "\n  rank 2 (node-b, GPU 2, pid 4702): blocked in futex()"
                        "\n  rank 3 (node-b, GPU 3, pid 4703): running"
                        "\n  and 2 more"
                        "\n  waiting: ranks 6-7"
                        "\n  the last calls: musterctl records job7 --ranks 0-3") +
                kGoesOn);
}

TEST(HangVerdict, StaysShortForAThousandRanks) {
  std::vector<Suspect> suspects;
  for (int rank = 0; rank < 2000; rank += 2)
    suspects.push_back(suspect(rank, kRunning));
  Finding finding = finding_of(Class::busy, suspects);
  finding.waiting.clear();
  for (int rank = 1; rank < 2000; rank += 2)
    finding.waiting.push_back(rank);
  const std::string text = verdict_text(finding, on_node_b, "job7");
  EXPECT_LT(text.size(), 1200U);
  EXPECT_LE(std::ranges::count(text, '\n'), 9);
}

TEST(HangVerdict, SaysHowARankEndedWithoutTheCall) {
  Finding finding = finding_of(Class::exited, {ended_rank(2, ExitStatus::exited(0))});
  finding.operation = call_in("world", 7, kBarrier);
  finding.waiting = {0, 1, 3};
  EXPECT_EQ(verdict_line(finding, nowhere),
            "rank 2 exited with 0 without calling barrier #7 of group 'world', for which 3 ranks "
            "wait");
  finding.ranks[0].ended = ExitStatus::signaled(SIGKILL);
  EXPECT_EQ(verdict_line(finding, nowhere),
            "rank 2 was killed by SIGKILL without calling barrier #7 of group 'world', for which 3 "
            "ranks wait");
  finding = finding_of(Class::exited, {ended_rank(0, ExitStatus::exited(0)),
                                       ended_rank(2, ExitStatus::signaled(SIGKILL))});
  finding.operation = call_in("world", 7, kBarrier);
  finding.waiting = {1};
  EXPECT_EQ(verdict_line(finding, nowhere),
            "ranks 0,2 ended without calling barrier #7 of group 'world', for which rank 1 waits");
  finding.operation = {.kind = Operation::Kind::recv, .group = {"world", {}}, .peer = 2};
  EXPECT_EQ(verdict_line(finding, nowhere),
            "ranks 0,2 ended without taking part in recv from rank 2 in group 'world', for which "
            "rank 1 waits");
}

TEST(HangVerdict, SaysHowToResumeAStoppedRank) {
  const Finding finding = finding_of(Class::stopped, {suspect(5, doing(LifeState::stopped))});
  EXPECT_EQ(verdict_line(finding, on_node_b),
            "rank 5 (node-b, GPU 5, pid 4705) is stopped by a signal (SIGSTOP) and has not called "
            "all_reduce #1042 of group 'world' (sum of 262144 float32); 7 other ranks have waited "
            "12.4 s; resume it with `kill -CONT 4705`");
  EXPECT_EQ(verdict_line(finding_of(Class::stopped, {suspect(5), suspect(6)}), on_node_b),
            "ranks 5-6 are stopped by a signal (SIGSTOP) and have not called all_reduce #1042 of "
            "group 'world' (sum of 262144 float32); 6 other ranks have waited 12.4 s; resume them "
            "with SIGCONT");
  Life frozen = doing(LifeState::stopped);
  frozen.thawing = "echo 0 >/sys/fs/cgroup/job/cgroup.freeze";
  EXPECT_EQ(verdict_line(finding_of(Class::stopped, {suspect(5, frozen)}), on_node_b),
            "rank 5 (node-b, GPU 5, pid 4705) is frozen with its cgroup (resume it with `echo 0 "
            ">/sys/fs/cgroup/job/cgroup.freeze`) and has not called all_reduce #1042 of group "
            "'world' (sum of 262144 float32); 7 other ranks have waited 12.4 s");
}

TEST(HangVerdict, SaysThatABusyRankIsRunning) {
  Finding finding = finding_of(Class::busy, {suspect(5, kRunning)});
  finding.waited = std::chrono::seconds(62);
  EXPECT_EQ(verdict_line(finding, nowhere),
            "rank 5 has not called all_reduce #1042 of group 'world' (sum of 262144 float32); 7 "
            "other ranks have waited 1 min 2 s; rank 5 is running");
}

TEST(HangVerdict, SaysThatARankHasNotCompletedTheCall) {
  Finding finding =
      finding_of(Class::never_entered, {suspect(5, doing(LifeState::blocked, "poll"))});
  finding.ranks[0].is_inside = true;
  EXPECT_EQ(verdict_line(finding, nowhere),
            "rank 5 has not completed all_reduce #1042 of group 'world' (sum of 262144 float32); 7 "
            "other ranks have waited 12.4 s; rank 5 is blocked in poll()");
  EXPECT_TRUE(notice_text(finding, nowhere)
                  .ends_with("; rank 5 has not completed it and is blocked in poll()"));
  EXPECT_EQ(wait_ended_text({1, {5}, std::chrono::seconds(31)}, finding),
            "rank 5 completed all_reduce #1042 of group 'world' after 31.0 s");
  finding.what = finding.ranks[0].what = Class::exited;
  finding.ranks[0].life = doing(LifeState::gone);
  EXPECT_EQ(verdict_line(finding, nowhere),
            "rank 5 ended without completing all_reduce #1042 of group 'world' (sum of 262144 "
            "float32), for which 7 ranks wait");
}

TEST(HangVerdict, SaysWhatHoldsForAllRanksIfTheirReasonsDiffer) {
  Finding finding = finding_of(Class::stopped, {suspect(5, doing(LifeState::stopped)),
                                                suspect(6, doing(LifeState::blocked, "read"))});
  finding.ranks[1].what = Class::never_entered;
  EXPECT_EQ(verdict_line(finding, nowhere),
            "ranks 5-6 have not called all_reduce #1042 of group 'world' (sum of 262144 float32); "
            "6 other ranks have waited 12.4 s");
  finding.ranks[1].is_inside = true;
  EXPECT_TRUE(verdict_line(finding, nowhere).starts_with("ranks 5-6 have not called or completed"));
}

TEST(HangVerdict, SaysWhatIsSeenOfARankInAnUnknownState) {
  Finding finding = blocked_in_read();
  const std::string late =
      "rank 5 never entered all_reduce #1042 of group 'world' (sum of 262144 "
      "float32); 7 other ranks have waited 12.4 s";
  finding.ranks[0].life = {.sign = LifeSign::hidden_process};
  EXPECT_EQ(verdict_line(finding, nowhere), late + "; rank 5: its process is hidden");
  EXPECT_TRUE(
      notice_text(finding, nowhere).ends_with("; rank 5 has not called it: its process is hidden"));
  finding.ranks[0].life = doing(LifeState::unknown, "poll");
  EXPECT_EQ(verdict_line(finding, nowhere), late + "; rank 5: waits in poll()");
}

Finding mismatch(Class what, const std::vector<Suspect>& suspects, const ring::Call& expected) {
  Finding finding = finding_of(what, suspects);
  finding.by = By::proof;
  finding.operation = call_in("world", 17, expected);
  return finding;
}

TEST(HangVerdict, ShowsBothCountsIfTheSizesDiffer) {
  const Finding finding =
      mismatch(Class::signature, {caller(5, sum_of(8), "train.py:90")}, sum_of(16));
  EXPECT_EQ(verdict_text(finding, nowhere, "job7"),
            std::string("rank 5 called all_reduce #17 of group 'world' with 8 float32, the others "
                        "with 16 float32"
                        "\n  rank 5: called it at train.py:90"
                        "\n  waiting: ranks 0-4,6-7"
                        "\n  the last calls: musterctl records job7 --ranks 5") +
                kGoesOn);
}

TEST(HangVerdict, ShowsBothReductionsOrRootsIfTheyDiffer) {
  EXPECT_EQ(verdict_line(
                mismatch(Class::signature, {caller(5, sum_of(8, ring::Reduction::max))}, sum_of(8)),
                nowhere),
            "rank 5 called all_reduce #17 of group 'world' with max of 8 float32, the others with "
            "sum of 8 float32");
  EXPECT_EQ(verdict_line(mismatch(Class::signature,
                                  {caller(5, broadcast_of(ring::ElementType::float32, 8, 1))},
                                  broadcast_of(ring::ElementType::float32, 8, 0)),
                         nowhere),
            "rank 5 called broadcast #17 of group 'world' with 8 float32 from rank 1 of the group, "
            "the others with 8 float32 from rank 0 of the group");
}

TEST(HangVerdict, NamesBothOperationsIfTheyDiffer) {
  EXPECT_EQ(verdict_line(mismatch(Class::signature, {caller(5, kBarrier)}, sum_of(8)), nowhere),
            "rank 5 called barrier as #17 of group 'world', the others all_reduce (sum) of 8 "
            "float32");
}

TEST(HangVerdict, NamesTheCallOfEachWrongRank) {
  const Finding finding =
      mismatch(Class::signature, {caller(2, sum_of(8)), caller(3, sum_of(4)), caller(5, sum_of(8))},
               sum_of(16));
  EXPECT_EQ(verdict_line(finding, nowhere),
            "ranks 2,5 called all_reduce #17 of group 'world' with 8 float32, rank 3 with 4 "
            "float32, the others with 16 float32");
}

TEST(HangVerdict, NamesBothSidesOfATie) {
  Finding finding =
      mismatch(Class::signature, {caller(0, sum_of(8)), caller(1, sum_of(16))}, sum_of(8));
  finding.is_tie = true;
  finding.waiting = {0, 1};
  EXPECT_EQ(
      verdict_line(finding, on_node_b),
      "rank 0 (node-b, GPU 0, pid 4700) called all_reduce #17 of group 'world' with 8 float32, "
      "rank 1 (node-b, GPU 1, pid 4701) with 16 float32; which of them is wrong is unknown");
}

TEST(HangVerdict, GivesTheRangeOfADifferenceInCallsNoLongerRecorded) {
  Finding finding = mismatch(Class::signature, {suspect(5)}, {});
  finding.from_ordinal = 17;
  finding.operation.ordinal = 32;
  EXPECT_EQ(verdict_line(finding, nowhere),
            "the calls of rank 5 in group 'world' differ from those of the others, somewhere from "
            "#17 to #32");
  finding.ranks = {suspect(0), suspect(1)};
  finding.is_tie = true;
  EXPECT_EQ(verdict_line(finding, nowhere),
            "the calls of ranks 0-1 in group 'world' differ, somewhere from #17 to #32; which of "
            "them is wrong is unknown");
}

TEST(HangVerdict, GivesTheCauseForARankThatFailsBecauseOfTheHang) {
  EXPECT_EQ(hang_cause(blocked_in_read(), 5),
            "never entered all_reduce #1042 of group 'world' (sum of 262144 float32); 7 other "
            "ranks have waited 12.4 s; rank 5 is blocked in read() of a pipe (descriptor 3)");
  const Finding circle = finding_of(Class::circle, {suspect(2), suspect(3)});
  EXPECT_TRUE(hang_cause(circle, 3).starts_with("is part of a hang: ranks wait for each other:"));
}

TEST(HangVerdict, DoesNotSayThatTheJobGoesOnIfARankWillFail) {
  const std::string text = verdict_text(blocked_in_read(), nowhere, "exp7", /*goes_on=*/false);
  EXPECT_TRUE(text.ends_with("\n  the last calls: musterctl records exp7 --ranks 5")) << text;
}

TEST(HangVerdict, PutsTheFailedRankFirstInTheCauseOfAMismatch) {
  const Suspect five = caller(5, sum_of(8));
  Finding finding = mismatch(Class::signature, {five}, sum_of(16));
  EXPECT_EQ(mismatch_cause(finding, 5),
            "called all_reduce #17 of group 'world' with 8 float32, the others with 16 float32");
  finding.ranks = {caller(2, kBarrier), five, caller(6, sum_of(8))};
  EXPECT_EQ(mismatch_cause(finding, 5),
            "and rank 6 called all_reduce (sum) of 8 float32 as #17 of group 'world', rank 2 "
            "barrier, the others all_reduce (sum) of 16 float32");
  finding.ranks = {caller(0, sum_of(16)), five};
  finding.is_tie = true;
  EXPECT_EQ(mismatch_cause(finding, 5),
            "called all_reduce #17 of group 'world' with 8 float32, rank 0 with 16 float32; which "
            "of them is wrong is unknown");
  finding.from_ordinal = 2;
  EXPECT_EQ(mismatch_cause(finding, 5),
            "made other calls in group 'world' than the others, somewhere from #2 to #17; which of "
            "them are wrong is unknown");
}

TEST(HangVerdict, DoesNotSayThatAFailedJobGoesOn) {
  Finding finding = mismatch(Class::signature, {caller(5, kBarrier)}, sum_of(8));
  finding.is_over = true;
  EXPECT_EQ(verdict_text(finding, nowhere, "job7"),
            verdict_line(finding, nowhere) + "\n  waiting: ranks 0-4,6-7");
}

TEST(HangVerdict, SaysThatTheSameCallsCameInAnotherOrder) {
  EXPECT_EQ(verdict_line(mismatch(Class::order, {caller(1, kBarrier)}, sum_of(8)), nowhere),
            "rank 1 called barrier as #17 of group 'world', the others all_reduce (sum) of 8 "
            "float32: the same calls in another order");
}

TEST(HangVerdict, NamesTheFirstOfManyDifferentCalls) {
  std::vector<Suspect> suspects;
  for (int rank = 0; rank < 6; ++rank)
    suspects.push_back(caller(rank, sum_of(static_cast<uint64_t>(rank) + 1)));
  EXPECT_EQ(verdict_line(mismatch(Class::signature, suspects, sum_of(9)), nowhere),
            "rank 0 called all_reduce #17 of group 'world' with 1 float32, rank 1 with 2 float32, "
            "rank 2 with 3 float32, rank 3 with 4 float32, and so on");
}

TEST(HangVerdict, NamesTheRanksOfACircleInOrder) {
  Finding finding = finding_of(Class::circle, {caller(4, call_in("tp", 3, sum_of(8)), "step.py:5"),
                                               caller(0, call_in("pp", 9, sum_of(8)))});
  EXPECT_EQ(verdict_text(finding, nowhere, "job7"),
            std::string("ranks wait for each other: rank 4 in all_reduce #3 of group 'tp' for rank "
                        "0, rank 0 in all_reduce #9 of group 'pp' for rank 4; 6 other ranks wait "
                        "for them"
                        "\n  rank 4: is in it at step.py:5"
                        "\n  waiting: ranks 1-3,5-7"
                        "\n  the last calls: musterctl records job7 --ranks 0,4") +
                kGoesOn);
  for (const int rank : {1, 2, 3})
    finding.ranks.push_back(suspect(rank));
  finding.waiting = {0, 1};  // Both are part of the circle.
  EXPECT_EQ(
      verdict_line(finding, nowhere),
      "ranks wait for each other: rank 4 in all_reduce #3 of group 'tp' for rank 0, rank 0 in "
      "all_reduce #9 of group 'pp' for rank 1, rank 1 for rank 2, rank 2 for rank 3, and so "
      "on through 5 ranks");
}

TEST(HangVerdict, NamesTheRanksInACallThatDoesNotEnd) {
  Finding finding = finding_of(Class::incomplete, {suspect(1), suspect(2), suspect(3)});
  finding.waited = std::chrono::seconds(62);
  EXPECT_EQ(verdict_line(finding, nowhere),
            "all members have called all_reduce #1042 of group 'world' (sum of 262144 float32), "
            "and it has not ended for 1 min 2 s; ranks 1-3 are still in it");
  finding.ranks.clear();
  EXPECT_TRUE(verdict_line(finding, nowhere).ends_with("and it has not ended for 1 min 2 s"));
}

TEST(HangVerdict, SaysHowSureItIsAndWhy) {
  Finding finding = blocked_in_read();
  const std::string sure = verdict_line(finding, nowhere);
  finding.confidence = Confidence::medium;
  EXPECT_EQ(verdict_line(finding, nowhere), "probably " + sure);
  finding.doubt = {Doubt::Why::records_nothing, {3, 4}};
  EXPECT_EQ(verdict_line(finding, nowhere),
            "probably " + sure + "; not certain: ranks 3-4 record nothing that helps");
  finding.confidence = Confidence::low;
  finding.doubt = {Doubt::Why::also_late, {3}};
  EXPECT_EQ(verdict_line(finding, nowhere),
            "possibly " + sure + "; not certain: rank 3 is late as well");
  finding.doubt = {Doubt::Why::unknown_members, {}};
  EXPECT_EQ(verdict_line(finding, nowhere),
            "possibly " + sure + "; not certain: some members of the group are unknown");
  finding.doubt = {};
  finding.ranks[0].life = {};
  EXPECT_EQ(verdict_line(finding, nowhere),
            "possibly rank 5 never entered all_reduce #1042 of group 'world' (sum of 262144 "
            "float32); 7 other ranks have waited 12.4 s; not certain: what rank 5 does is unknown");
}

TEST(HangVerdict, IsWithdrawnWithTheNewLimit) {
  EXPECT_EQ(withdrawn_text({1, {5}, std::chrono::seconds(24)}, blocked_in_read()),
            "rank 5 went on: the verdict on all_reduce #1042 of group 'world' is withdrawn; from "
            "now on the limit is 24.0 s");
  EXPECT_EQ(withdrawn_text({1, {5}, Duration{0}}, blocked_in_read()),
            "rank 5 went on: the verdict on all_reduce #1042 of group 'world' is withdrawn");
}

// Text from a worker's ring must neither move the cursor nor begin a line.
TEST(HangVerdict, CannotDriveATerminalWhateverAWorkerWrote) {
  const std::string hostile = "x\r\n\x1b[2J" + std::string(10'000, 'y') + "\xff";
  const auto place = [&](int /*rank*/) { return RankPlace{hostile, 1, hostile}; };
  for (const Class what : {Class::never_entered, Class::exited, Class::stopped, Class::busy,
                           Class::signature, Class::order, Class::circle, Class::incomplete}) {
    Finding finding = finding_of(what, {caller(5, call_in(hostile, 3, kBarrier), hostile)});
    Life& life = finding.ranks[0].life;
    life = doing(LifeState::uninterruptible, "read");
    life.target = life.wchan = life.task.name = life.thawing = hostile;
    finding.ranks[0].section = finding.operation.group.text = finding.site = hostile;
    finding.confidence = Confidence::low;
    const std::string line = verdict_line(finding, place) + notice_text(finding, place) +
                             wait_ended_text({1, {5}, {}}, finding) +
                             withdrawn_text({1, {5}, {}}, finding);
    EXPECT_EQ(line.find_first_of("\r\n\x1b\xff"), std::string::npos) << line;
    const std::string text = verdict_text(finding, place, "job7");
    EXPECT_EQ(text.find_first_of("\r\x1b\xff"), std::string::npos) << text;
    EXPECT_LT(text.size(), 6000U);
  }
}

// ---- stragglers

TEST(StragglersText, SaysWhichRankMadeHowManyWaitHowLong) {
  Stragglers stragglers;
  stragglers.time = std::chrono::minutes(10);
  stragglers.ranks.push_back({.rank = 5,
                              .share = 0.123,
                              .waited = std::chrono::milliseconds(31),
                              .calls = 2104,
                              .group = "dp",
                              .others = 7});
  EXPECT_EQ(stragglers_text(stragglers, on_node_b),
            "stragglers of the last 10 min 0 s: rank 5 (node-b, GPU 5, pid 4705) made the 7 others "
            "of group 'dp' wait 12 % of the time (31 ms in each of 2104 calls)");
  stragglers.ranks.push_back({.rank = 3,
                              .node_rank = 1,
                              .is_node = true,
                              .share = 0.06,
                              .waited = std::chrono::microseconds(1530),
                              .calls = 9,
                              .group = "tp\x1b[2J",
                              .others = 1});
  EXPECT_THAT(stragglers_text(stragglers, on_node_b),
              testing::EndsWith("; the ranks of node-b made the other rank of group "
                                "'tp' wait 6 % of the time (1.53 ms in each of 9 calls)"));
  stragglers.ranks[1].hides_waits = true;
  EXPECT_THAT(stragglers_text(stragglers, on_node_b),
              testing::EndsWith("9 calls); it does not show which of them waited for another one"));
}

}  // namespace
}  // namespace muster::hang
