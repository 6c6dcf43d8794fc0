#include "agent/report/others.h"

#include <csignal>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "agent/report/text.h"
#include "tests/unit/agent/report/report_generators.h"
#include "tests/unit/agent/report/report_samples.h"

namespace muster {
namespace {

WorkerFailure with_part(WorkerFailure failure, Part part) {
  failure.part = part;
  return failure;
}

TEST(Others, HaveNoTextBesideALonelyCulprit) {
  EXPECT_EQ(others_text({sample_failure(3, ExitStatus::exited(1))}, 0), "");
}

LeftRank left_in(int rank, std::string where) {
  LeftRank left;
  left.rank = rank;
  left.had = std::chrono::seconds{30};
  left.where = std::move(where);
  return left;
}

LeftRank waiting_in(int rank, std::string call, std::string group = "world") {
  LeftRank left = left_in(rank, "read");
  left.call = std::move(call);
  left.group = std::move(group);
  return left;
}

TEST(LeftText, NamesAwaitedRanksFirst) {
  EXPECT_EQ(left_text({waiting_in(1, "barrier #7"), waiting_in(2, "barrier #7"),
                       left_in(0, "evaluate (train.py:5)"), waiting_in(3, "barrier #7")}),
            "rank 0 had 30.0 s and was in evaluate (train.py:5); ranks 1-3 waited for it in "
            "barrier #7");
}

TEST(LeftText, RoundsTheTime) {
  LeftRank rank = left_in(0, "save");
  rank.had = std::chrono::milliseconds{29'970};
  EXPECT_EQ(left_text({rank}), "rank 0 had 30.0 s and was in save");
}

TEST(LeftText, SaysWhichRankOthersWaitForOnlyIfItIsKnown) {
  EXPECT_EQ(left_text({waiting_in(0, "barrier #7"), waiting_in(1, "barrier #8")}),
            "rank 0 had 30.0 s and waited in barrier #7; rank 1 waited in barrier #8");
  EXPECT_EQ(left_text({left_in(0, "save"), left_in(1, "save"), waiting_in(2, "barrier #7"),
                       waiting_in(3, "all_reduce #2", "tensor")}),
            "ranks 0-1 had 30.0 s and were in save; rank 2 waited for them in barrier #7; rank 3 "
            "waited in all_reduce #2 of group 'tensor'");
}

TEST(LeftText, SaysWhyAPlaceIsUnknownAndStaysShort) {
  LeftRank unknown = left_in(0, "");
  unknown.missing = "its stacks could not be read in time";
  EXPECT_EQ(left_text({unknown}),
            "rank 0 had 30.0 s and was in an unknown place: its stacks could not be read in time");
  std::vector<LeftRank> many;
  for (int i = 0; i < 20; ++i)
    many.push_back(left_in(i, fmt::format("step (train.py:{})", i)));
  EXPECT_TRUE(
      left_text(many).ends_with("rank 5 was in step (train.py:5); the others were "
                                "elsewhere"));
}

TEST(Others, QuoteRanksThatFailedWhileTheyWereStopped) {
  WorkerFailure failure = with_part(sample_failure(7, ExitStatus::exited(1)), Part::crashed);
  failure.sentence = "exited with 1: OSError: disk full";
  EXPECT_EQ(ends_text({failure}), "rank 7 exited with 1: OSError: disk full");
}

TEST(Others, HaveALineForEachPart) {
  const ExitStatus one = ExitStatus::exited(1);
  WorkerFailure hung = with_part(sample_stopped(6), Part::failed_later);
  hung.sentence = "raised E and hung";
  EXPECT_EQ(others_text({sample_stopped(8), with_part(sample_failure(7, one), Part::crashed), hung,
                         with_part(sample_failure(5, one), Part::victim),
                         with_part(sample_failure(4, one), Part::simultaneous),
                         with_part(sample_failure(3, one), Part::culprit)},
                        5),
            "1 other failed at the same moment: rank 4 exited with 1\n"
            "1 other failed afterwards: rank 5 exited with 1\n"
            "1 other failed as well: rank 6 raised E and hung\n"
            "1 other failed while muster stopped it: rank 7 exited with 1\n"
            "1 other was stopped by muster: rank 8 killed by SIGTERM\n");
}

TEST(Others, AreCalledAlikeIfTheyRaisedTheCulpritsError) {
  const ExitStatus one = ExitStatus::exited(1);
  std::vector<WorkerFailure> failures = {sample_stopped(0), sample_failure(1, one),
                                         with_part(sample_failure(2, one), Part::simultaneous),
                                         with_part(sample_stopped(3), Part::failed_later),
                                         with_part(sample_failure(4, one), Part::failed_later)};
  for (WorkerFailure& failure : failures)
    failure.exception = "KeyError: 'step'";
  failures[4].exception = "KeyError: 'lr'";
  EXPECT_EQ(others_text(failures, 1, {}, 8),
            "3 of 8 ranks raised the same error: ranks 1-3\n"
            "1 other failed afterwards: rank 4 exited with 1\n"
            "1 other was stopped by muster: rank 0 killed by SIGTERM\n");
}

TEST(Others, AreCountedInThePlural) {
  const ExitStatus one = ExitStatus::exited(1);
  std::vector<WorkerFailure> failures = {sample_failure(0, one)};
  for (const int rank : {2, 1}) {
    failures.push_back(with_part(sample_failure(rank, one), Part::simultaneous));
    failures.push_back(with_part(sample_failure(rank + 2, one), Part::crashed));
    failures.push_back(sample_stopped(rank + 4));
  }
  EXPECT_EQ(others_text(failures, 0),
            "2 others failed at the same moment: ranks 1-2 exited with 1\n"
            "2 others failed while muster stopped them: ranks 3-4 exited with 1\n"
            "2 others were stopped by muster: ranks 5-6 killed by SIGTERM\n");
}

TEST(Others, ShowTheSentenceOfARankStoppedAfterItsFailure) {
  const std::vector<std::pair<Part, std::string>> lines = {
      {Part::bystander, "1 other was stopped by muster: rank 1 killed by SIGTERM\n"},
      {Part::crashed, "1 other was stopped by muster: rank 1 killed by SIGTERM\n"},
      {Part::victim, "1 other failed as well: rank 1 lost x\n"},
      {Part::simultaneous, "1 other failed as well: rank 1 lost x\n"},
      {Part::failed_later, "1 other failed as well: rank 1 lost x\n"},
  };
  for (const auto& [part, line] : lines) {
    WorkerFailure stopped = with_part(sample_stopped(1), part);
    stopped.sentence = "lost \x1b[31mx";
    EXPECT_EQ(others_text({sample_failure(0, ExitStatus::exited(1)), stopped}, 0), line);
  }
  EXPECT_EQ(others_text({sample_failure(0, ExitStatus::exited(1)),
                         with_part(sample_stopped(1), Part::victim)},
                        0),
            "1 other failed as well: rank 1 killed by SIGTERM\n");
}

TEST(Others, AreShownWithTheDeclarationOfADeclaredFailure) {
  WorkerFailure declared = sample_failure(1, ExitStatus::signaled(SIGKILL));
  declared.declared = "stuck in uninterruptible sleep for 60 s";
  EXPECT_EQ(others_text({sample_failure(0, ExitStatus::exited(1)), declared}, 0),
            "1 other failed afterwards: rank 1 stuck in uninterruptible sleep for 60 s\n");
}

TEST(Others, AreGroupedByEndWithTheLargestGroupFirst) {
  std::vector<WorkerFailure> failures = {sample_failure(9, ExitStatus::exited(1))};
  for (const int rank : {5, 4, 3})
    failures.push_back(sample_failure(rank, ExitStatus::signaled(SIGABRT)));
  for (const int rank : {8, 1})
    failures.push_back(sample_failure(rank, ExitStatus::signaled(SIGABRT, true)));
  for (const int rank : {7, 0})
    failures.push_back(sample_failure(rank, ExitStatus::exited(2)));
  EXPECT_EQ(others_text(failures, 0),
            "7 others failed afterwards: ranks 3-5 killed by SIGABRT; ranks 0,7 exited with 2; "
            "ranks 1,8 killed by SIGABRT (core dumped)\n");
}

TEST(Others, AreOnlyCountedBeyondSixKindsOfEnd) {
  std::vector<WorkerFailure> failures = {sample_failure(0, ExitStatus::exited(1))};
  for (int rank = 1; rank <= 6; ++rank)
    failures.push_back(sample_failure(rank, ExitStatus::exited(rank)));
  const std::string six =
      "rank 1 exited with 1; rank 2 exited with 2; rank 3 exited with 3; rank 4 exited with 4; "
      "rank 5 exited with 5; rank 6 exited with 6";
  EXPECT_EQ(others_text(failures, 0), "6 others failed afterwards: " + six + "\n");
  failures.push_back(sample_failure(7, ExitStatus::exited(7)));
  EXPECT_EQ(others_text(failures, 0), "7 others failed afterwards: " + six + "; 1 more\n");
}

TEST(Others, IncludeStoppedRanksOfOtherNodes) {
  const std::vector<WorkerFailure> failures = {sample_failure(0, ExitStatus::exited(1)),
                                               sample_stopped(1)};
  EXPECT_EQ(others_text(failures, 0, {4, 5, 7}),
            "4 others were stopped by muster: rank 1 killed by SIGTERM; ranks 4-5,7\n");
  EXPECT_EQ(others_text({failures[0]}, 0, {4, 5}), "2 others were stopped by muster: ranks 4-5\n");
}

RC_GTEST_PROP(Others, AreAllCounted, ()) {
  const auto any_part = rc::gen::element(Part::bystander, Part::victim, Part::simultaneous,
                                         Part::failed_later, Part::crashed);
  std::vector<WorkerFailure> failures;
  const int count = *rc::gen::inRange(1, 20);
  for (int rank = 0; rank < count; ++rank) {
    failures.push_back(with_part(sample_failure(rank, *any_failed_status()), *any_part));
    failures.back().stopped_by_muster = *rc::gen::arbitrary<bool>();
  }
  const size_t culprit = *rc::gen::inRange<size_t>(0, failures.size());
  const std::string text = others_text(failures, culprit, {100, 101});
  int counted = 0;
  for (const std::string& line : last_lines(text, 9))
    counted += std::stoi(line);
  RC_ASSERT(counted == count - 1 + 2);
  RC_ASSERT(text.ends_with("ranks 100-101\n"));
}

TEST(Others, HaveAFailedLineAsTorchrunPrintsIt) {
  WorkerFailure failure = sample_failure(3, ExitStatus::signaled(SIGSEGV, true));
  EXPECT_EQ(failed_line(failure),
            "failed (exitcode: -11) local_rank: 3 (pid: 1003) of binary: /usr/bin/python3");
  failure.binary = "";
  failure.program = "./a\x1b[2J\nb";
  failure.local_rank = 0;
  EXPECT_EQ(failed_line(failure),
            "failed (exitcode: -11) local_rank: 0 (pid: 1003) of binary: ./ab");
}

TEST(Others, ShowAPidIfTheirNodeReportedIt) {
  WorkerFailure failure;
  for (const auto& [pid, text] : std::vector<std::pair<pid_t, std::string>>{
           {1, "1"}, {4'194'304, "4194304"}, {0, "unknown"}, {-1, "unknown"}}) {
    failure.pid = pid;
    EXPECT_EQ(pid_text(failure), text);
  }
}

}  // namespace
}  // namespace muster
