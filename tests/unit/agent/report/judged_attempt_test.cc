// From the evidence of nodes to the report: which ranks it lists, in which part, and which of them
// it quotes.
#include "agent/report/judged_attempt.h"

#include <algorithm>
#include <csignal>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "agent/report/verdict.h"
#include "tests/unit/agent/report/report_samples.h"

namespace muster {
namespace {

WorkerFailure saying(WorkerFailure failure, const std::string& words) {
  failure.stderr_tail = words;
  return failure;
}

// The verdict on an attempt of four ranks of which these ended, in this order.
JobReport judged(const std::vector<WorkerFailure>& failures) {
  JobReport report = sample_job(JobEnd::failed);
  report.world_size = 4;
  judge_failures(report, failures);
  return report;
}

JobReport judged_node(const NodeEvidence& node) {
  JobReport report = sample_job(JobEnd::failed);
  apply_judged(report, judge_attempt({node}));
  return report;
}

// The verdict on failures at one moment that the node saw in the order of their ranks.
JobReport judged_at_once(const std::vector<WorkerFailure>& failures) {
  NodeEvidence node;
  for (const WorkerFailure& failure : failures) {
    WorkerRecord record = record_of(failure);
    record.order = failure.rank;
    node.workers.push_back(evidence_of(record));
  }
  return judged_node(node);
}

std::vector<int> ranks_of(const JobReport& report) {
  std::vector<int> ranks;
  for (const WorkerFailure& failure : report.failures)
    ranks.push_back(failure.rank);
  return ranks;
}

TEST(JudgedAttempt, ListsUnsuccessfulRanksInTheOrderOfTheirEnds) {
  const JobReport report = judged({sample_failure(2, ExitStatus::exited(3)),
                                   sample_failure(1, ExitStatus::exited(0)), sample_stopped(0)});
  EXPECT_EQ(ranks_of(report), (std::vector<int>{2, 0}));
  EXPECT_EQ(report.culprit, 0u);
  EXPECT_EQ(report.failures[1].part, Part::bystander);
}

TEST(JudgedAttempt, NamesARankThatLeftEarlyAndQuotesItsFirstVictim) {
  const JobReport report =
      judged({sample_failure(1, ExitStatus::exited(0)),
              saying(sample_failure(0, ExitStatus::exited(1)), kPeerTraceback),
              saying(sample_failure(2, ExitStatus::exited(1)), kPeerTraceback)});
  EXPECT_EQ(ranks_of(report), (std::vector<int>{1, 0, 2}));
  EXPECT_EQ(report.culprit, 0u);
  EXPECT_EQ(report.reason, Reason::left_early);
  EXPECT_EQ(report.cause.sentence, "exited with 0 while ranks 0,2 still needed it");
  EXPECT_EQ(exit_code_of(report, ExitCodePolicy::culprit), 1);
  const std::string screen = render_end(report, {});
  EXPECT_NE(
      screen.find("train.py FAILED: rank 1 of 4 exited with 0 while ranks 0,2 still needed it"),
      std::string::npos)
      << screen;
  EXPECT_NE(screen.find("Its first victim: rank 0 exited with 1: RuntimeError: "),
            std::string::npos)
      << screen;
}

TEST(JudgedAttempt, BlamesTheRankThatWaitingRanksName) {
  const std::string late =
      "terminate called after throwing an instance of 'std::runtime_error'\n"
      "  what():  [Rank 0]: Rank 3 failed to pass monitoredBarrier in 2000 ms\n";
  const JobReport report =
      judged({saying(sample_failure(0, ExitStatus::signaled(SIGABRT)), late),
              saying(sample_failure(1, ExitStatus::signaled(SIGABRT)), late), sample_stopped(3)});
  ASSERT_TRUE(report.culprit);
  EXPECT_EQ(report.failures[*report.culprit].rank, 3);
  EXPECT_EQ(report.reason, Reason::named);
  EXPECT_EQ(report.cause.sentence, "kept ranks 0-1 waiting until they gave up");
  EXPECT_EQ(report.failures[*report.witness].rank, 0);
  EXPECT_EQ(exit_code_of(report, ExitCodePolicy::culprit), 134);
}

TEST(JudgedAttempt, DoesNotCallARankWithAMismatchedCallLate) {
  const std::string other =
      "all_reduce 17 of group world: rank 3 (node7, pid 4711) called barrier, but rank 0 (node7, "
      "pid 4708) called all_reduce (sum) of 4 float32; all ranks must make the same calls in the "
      "same order";
  WorkerRecord victim = record_of(saying(sample_failure(0, ExitStatus::exited(1)), other), 0);
  const int64_t known_ns = victim.ended->time_since_epoch().count();
  victim.library = FailureRecord{known_ns, FailureCode::mismatch, {3}, 0, other};
  NodeEvidence node;
  node.workers = {evidence_of(victim), evidence_of(record_of(sample_stopped(3), 1))};
  node.workers[1].signs.by_stop = true;
  const JobReport report = judged_node(node);
  ASSERT_TRUE(report.culprit);
  EXPECT_EQ(report.failures[*report.culprit].rank, 3);
  EXPECT_EQ(report.cause.sentence, "called something else than rank 0");
}

// Rank 1 raised an error `before` muster stopped it for the failure of its victim.
JobReport judged_raised(Duration before) {
  WorkerRecord hung = record_of(sample_stopped(1), 1);
  hung.printed = {};
  hung.printed.err_tail =
      "[rank1]: Traceback (most recent call last):\n[rank1]: ValueError: boom\n";
  hung.printed.err_total = hung.printed.err_total_before_stop = hung.printed.err_tail.size();
  const StopMark stop{sample_instant(sample_time()), SIGTERM, false};
  hung.printed.err_times.add(hung.printed.err_total, stop.at - before);
  hung.printed.last_output = stop.at - before;
  hung.failure.stderr_tail = hung.printed.err_tail;
  const WorkerRecord victim =
      record_of(saying(sample_failure(0, ExitStatus::exited(1)), kPeerTraceback));
  NodeEvidence node;
  node.workers = {evidence_of(victim, stop), evidence_of(hung, stop)};
  return judged_node(node);
}

TEST(JudgedAttempt, SaysThatAWorkerRaisedAndHung) {
  const JobReport report = judged_raised(std::chrono::seconds(5));
  ASSERT_TRUE(report.culprit);
  EXPECT_EQ(report.failures[*report.culprit].rank, 1);
  EXPECT_EQ(report.cause.sentence,
            "raised ValueError: boom and did not end; muster stopped it 5.0 s later");
  EXPECT_EQ(report.cause.exception, "ValueError: boom");
  EXPECT_EQ(exit_code_of(report, ExitCodePolicy::culprit), 1);
}

TEST(JudgedAttempt, DoesNotSayThatAWorkerHungThatHadNoTimeToEnd) {
  EXPECT_EQ(judged_raised(std::chrono::milliseconds(8)).cause.sentence,
            "raised ValueError: boom; muster stopped it 8 ms later");
}

TEST(JudgedAttempt, QuotesBothRanksThatFailedAtOnce) {
  const JobReport report =
      judged_at_once({saying(sample_failure(0, ExitStatus::exited(3)), "words of 0"),
                      saying(sample_failure(1, ExitStatus::exited(4)), "words of 1")});
  const std::string screen = render_end(report, {});
  EXPECT_NE(screen.find("rank 0 of 8 exited with 3"), std::string::npos) << screen;
  EXPECT_NE(screen.find("At the same moment, as far as can be determined: rank 1 exited with 4\n"
                        "  | words of 1\n"),
            std::string::npos)
      << screen;
  EXPECT_NE(screen.find("1 other failed at the same moment: rank 1 exited with 4"),
            std::string::npos)
      << screen;
}

// The screen of two ranks that exited at once with the same code.
std::string screen_of_two_alike(const std::string& words_of_the_other) {
  const WorkerFailure other = saying(sample_failure(1, ExitStatus::exited(3)), words_of_the_other);
  return render_end(judged_at_once({sample_failure(0, ExitStatus::exited(3)), other}), {});
}

TEST(JudgedAttempt, QuotesTheSecondOfTwoEqualFailuresIfOnlyItHasOutput) {
  const std::string silent = screen_of_two_alike("");
  EXPECT_EQ(silent.find("At the same moment, as far as can be determined"), std::string::npos)
      << silent;
  EXPECT_NE(silent.find("1 other failed at the same moment: rank 1 exited with 3"),
            std::string::npos)
      << silent;
  const std::string said = screen_of_two_alike("cannot go on\n");
  EXPECT_NE(said.find("  | cannot go on\n"), std::string::npos) << said;
}

TEST(JudgedAttempt, FitsTheOutputOfASimultaneousFailureOnOneScreen) {
  std::vector<WorkerFailure> failures;
  for (int rank = 0; rank < 12; ++rank) {
    std::string words;
    for (int line = 0; line < 40; ++line)
      words += "line " + std::to_string(line) + " of " + std::to_string(rank) + "\n";
    failures.push_back(saying(sample_failure(rank, ExitStatus::exited(3 + rank)), words));
    failures.back().error_file_content =
        recorded_error("boom " + std::to_string(rank), "a\nb", "1795215408");
  }
  const std::string screen = render_end(judged_at_once(failures), {});
  EXPECT_LE(std::ranges::count(screen, '\n'), 50) << screen;
  EXPECT_NE(screen.find("line 39 of 1\n"), std::string::npos) << screen;
  EXPECT_NE(screen.find("11 others failed at the same moment"), std::string::npos) << screen;
}

TEST(JudgedAttempt, SaysThatNoOtherRankFailedIfTheCulpritBlamesOthers) {
  const JobReport report =
      judged({saying(sample_failure(0, ExitStatus::exited(1)), kPeerTraceback), sample_stopped(1)});
  EXPECT_EQ(report.reason, Reason::first_victim);
  EXPECT_NE(render_end(report, {}).find("no other rank failed by itself"), std::string::npos);
}

TEST(JudgedAttempt, KeepsAnErrorOfANodeWithTheNodesName) {
  NodeEvidence node;
  node.host = "node-b";
  node.node_rank = 2;
  node.error = Error{ExitCode::not_found, "no such program"};
  const JudgedAttempt verdict = judge_attempt({NodeEvidence{}, node});
  EXPECT_EQ(verdict.error, node.error);
  EXPECT_EQ(verdict.error_host, "node-b");
  EXPECT_EQ(verdict.error_node_rank, 2);
}

}  // namespace
}  // namespace muster
