#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "agent/job/job_recorder.h"
#include "agent/report/verdict.h"

namespace muster {
namespace {

using Json = nlohmann::json;
using Strings = std::vector<std::string>;

// A job of two workers on one node; rank 1 is late.
class HangingJob : public testing::Test {
 protected:
  HangingJob() : record_(job(), options()) { start_attempt(0); }

  static JobReport job() {
    JobReport result;
    result.run_id = "job1";
    result.program = "train.py";
    result.host = "node7";
    return result;
  }

  JobRecorder::Options options() {
    JobRecorder::Options result;
    result.append_event = [this](const std::string& line) { events_.push_back(Json::parse(line)); };
    return result;
  }

  void start_attempt(int attempt, int nodes = 1) {
    RoundView round;
    round.base_rank = nodes > 1 ? 1 : 0;
    round.nodes = nodes;
    record_.round_ready(attempt, round, {}, {{}, {"", "", "", "GPU 1 (0000:3b:00.0)"}});
    record_.worker_started(0, 100 + 10 * attempt);
    record_.worker_started(1, 101 + 10 * attempt);
    events_.clear();
  }

  static ring::Call sum_of(uint64_t count) {
    return {.kind = ring::CallKind::all_reduce,
            .type = ring::ElementType::float32,
            .reduction = ring::Reduction::sum,
            .count = count};
  }

  static hang::Finding finding(uint64_t number = 1, uint64_t ordinal = 17) {
    hang::Finding result;
    result.number = number;
    hang::Suspect& late = result.ranks.emplace_back();
    late.rank = 1;
    late.life = {.state = hang::LifeState::blocked,
                 .call = hang::SystemCall{.is_known = true, .name = "read"}};
    result.waiting = {0};
    result.operation = {.group = {"world", {}}, .ordinal = ordinal, .call = sum_of(8)};
    result.waited = std::chrono::milliseconds(12'500);
    return result;
  }

  static hang::Finding mismatch(uint64_t number) {
    hang::Finding result = finding(number);
    result.what = hang::Class::signature;
    result.by = hang::By::proof;
    result.ranks[0].call = {.group = {"world", {}}, .ordinal = 17, .call = sum_of(4)};
    return result;
  }

  // Ends the attempt and with it the job, which has failed.
  JobReport finish_failed(const AttemptRemains& remains = {}) {
    record_.attempt_drained(remains);
    group::JobOutcome outcome;
    outcome.end = JobEnd::failed;
    return record_.finish(outcome);
  }

  JobReport stopped() {
    group::JobOutcome outcome;
    outcome.end = JobEnd::stopped;
    outcome.signal = 2;
    return record_.finish(outcome);
  }

  // "NAME: TEXT" of each event.
  Strings told() const {
    Strings all;
    for (const Json& event : events_)
      all.push_back(event.at("event").get<std::string>() + ": " +
                    event.at("text").get<std::string>());
    return all;
  }

  std::vector<Json> events_;
  JobRecorder record_;
};

constexpr const char* kVerdict =
    "rank 1 (GPU 1, pid 101) never entered all_reduce #17 of group 'world' (sum of 8 float32); "
    "rank 0 has waited 12.5 s; rank 1 is blocked in read()";

TEST_F(HangingJob, ReportsANoticeAndTheEndOfItsWait) {
  const std::string line = record_.hang_notice({finding()}).text;
  EXPECT_EQ(line,
            "rank 0 has waited 12.5 s for rank 1 (GPU 1, pid 101) in all_reduce #17 of group "
            "'world' (sum of 8 float32); rank 1 has not called it and is blocked in read()");
  const hang::WaitEnded ended{1, {1}, std::chrono::seconds(31)};
  const std::string end = "rank 1 came to all_reduce #17 of group 'world' after 31.0 s";
  EXPECT_EQ(record_.wait_ended(ended).text, end);
  EXPECT_EQ(told(), (Strings{"waiting: " + line, "note: " + end}));
  EXPECT_EQ(record_.wait_ended(ended).text, "") << "the wait has already ended";
  EXPECT_EQ(stopped().hang, std::nullopt) << "a notice blames no rank";
}

TEST_F(HangingJob, GivesAVerdictToTheConsoleTheEventsAndTheReport) {
  EXPECT_EQ(record_.hang_verdict({finding()}).text,
            std::string(kVerdict) +
                "\n  waiting: rank 0"
                "\n  the last calls: musterctl records job1 --ranks 1"
                "\n  the job goes on; stop it with Ctrl-C, or with SIGTERM to muster");
  ASSERT_EQ(events_.size(), 1U);
  events_[0].erase("time");
  EXPECT_EQ(events_[0], Json({{"event", "hang"},
                              {"attempt", 0},
                              {"ranks", {1}},
                              {"class", "never_entered"},
                              {"by", "time"},
                              {"group", "world"},
                              {"operation", "all_reduce (sum) of 8 float32"},
                              {"ordinal", 17},
                              {"waiting", {0}},
                              {"seconds", 12.5},
                              {"confidence", "high"},
                              {"text", kVerdict}}));
  const JobReport report = stopped();
  ASSERT_TRUE(report.hang);
  EXPECT_EQ(report.hang->text, kVerdict);
  EXPECT_EQ(report.hang->ranks, std::vector<int>{1});
  EXPECT_FALSE(report.hang->is_mismatch);
}

TEST_F(HangingJob, ReportsAMismatchedCallAsAMismatch) {
  hang::Finding found = mismatch(1);
  found.confidence = hang::Confidence::medium;
  record_.hang_verdict({found});
  found.what = hang::Class::order;
  record_.hang_verdict({found});
  ASSERT_EQ(events_.size(), 2U);
  EXPECT_EQ(events_[0].at("event"), "mismatch");
  EXPECT_EQ(events_[0].at("class"), "signature");
  EXPECT_EQ(events_[0].at("by"), "proof");
  EXPECT_EQ(events_[0].at("confidence"), "medium");
  EXPECT_EQ(events_[1].at("event"), "mismatch");
  EXPECT_TRUE(stopped().hang->is_mismatch);
}

TEST_F(HangingJob, ForgetsAWithdrawnVerdict) {
  record_.hang_verdict({mismatch(1)});
  record_.hang_verdict({finding(2, 18)});
  const std::string line = record_.hang_withdrawn({2, {1}, std::chrono::seconds(24)}).text;
  EXPECT_EQ(line,
            "rank 1 went on: the verdict on all_reduce #18 of group 'world' is withdrawn; from now "
            "on the limit is 24.0 s");
  EXPECT_EQ(events_.back().at("event"), "withdrawn");
  EXPECT_EQ(events_.back().at("text"), line);
  EXPECT_EQ(events_.back().at("ordinal"), 18);
  EXPECT_EQ(stopped().hang->what, "signature") << "the newest verdict that stands";
  record_.hang_withdrawn({1, {1}, {}});
}

TEST_F(HangingJob, KeepsAVerdictOfAnEarlierAttempt) {
  record_.hang_verdict({finding()});
  start_attempt(1);
  record_.hang_verdict({finding(2, 5)});
  record_.hang_withdrawn({2, {1}, {}});
  const JobReport report = stopped();
  ASSERT_TRUE(report.hang);
  EXPECT_EQ(report.hang->attempt, 0);
  EXPECT_EQ(report.hang->ordinal, 17U);
}

TEST_F(HangingJob, ReportsOnlyAMismatchIfItSucceeds) {
  record_.hang_verdict({mismatch(1)});
  record_.hang_verdict({finding(2)});
  group::JobOutcome success;
  success.end = JobEnd::success;
  EXPECT_EQ(record_.finish(success).hang->what, "signature") << "its results may be wrong";
}

TEST_F(HangingJob, NamesTheNodeOfARankIfThereAreSeveralNodes) {
  start_attempt(1, 2);
  hang::Finding found = finding();
  found.ranks[0].rank = 2;
  found.waiting = {0, 1};
  EXPECT_TRUE(record_.hang_notice({found}).text.starts_with(
      "2 ranks have waited 12.5 s for rank 2 (node7, GPU "
      "1, pid 111) in"));
  found.ranks[0].rank = 0;  // On another node.
  found.waiting = {1, 2};
  EXPECT_TRUE(
      record_.hang_notice({found}).text.starts_with("2 ranks have waited 12.5 s for rank 0 in"));
}

TEST_F(HangingJob, ReportsTheCallThatAWorkerDiedIn) {
  record_.worker_exited({1, 101, ExitStatus::exited(3), std::chrono::seconds(3), 0, 0}, {});
  record_.worker_was_in(1, "barrier #7 of group 'world' for 3.2 s");
  const JobReport report = finish_failed();
  ASSERT_TRUE(report.culprit);
  EXPECT_EQ(report.the_culprit().call, "barrier #7 of group 'world' for 3.2 s");
}

// ---- a time-out, which names no rank

class TimedOutJob : public HangingJob {
 protected:
  // Rank 0 gives up; rank 1 is stopped.
  JobReport failed() {
    record_.worker_exited({0, 100, ExitStatus::exited(1), std::chrono::seconds(3), 0, 0}, {});
    record_.stop_begins(15, std::chrono::seconds(1), {AtStop::ended, AtStop::running});
    record_.worker_exited({1, 101, ExitStatus::signaled(15), std::chrono::seconds(3), 0, 0}, {});
    AttemptRemains remains;
    remains.workers.resize(2);
    remains.workers[0].printed.err_tail =
        "Traceback (most recent call last):\n  File \"a.py\", line 2, in <module>\n"
        "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 5000ms for recv "
        "operation to complete\n";
    remains.workers[0].printed.err_total = remains.workers[0].printed.err_total_before_stop =
        remains.workers[0].printed.err_tail.size();
    return finish_failed(remains);
  }
  static hang::WaitEnded given_up() { return {1, {1}, std::chrono::seconds(31), false}; }
};

TEST_F(TimedOutJob, BlamesTheRankItWaitedFor) {
  record_.hang_notice({finding()});
  const JobReport report = failed();
  ASSERT_TRUE(report.culprit);
  EXPECT_EQ(report.the_culprit().rank, 1);
  EXPECT_EQ(report.reason, Reason::hang);
  EXPECT_TRUE(report.cause.sentence.starts_with("never entered all_reduce #17 of group 'world'"));
}

TEST_F(TimedOutJob, BlamesTheRankItWaitedForThoughTheWaitWasGivenUp) {
  record_.hang_notice({finding()});
  record_.wait_ended(given_up());
  EXPECT_EQ(failed().the_culprit().rank, 1);
}

TEST_F(TimedOutJob, BlamesTheRankThatHasNotSetTheKeyItWaitedFor) {
  hang::Finding on_key = finding();
  on_key.operation = {.kind = hang::Operation::Kind::store_key, .key = "go/1"};
  record_.hang_notice({on_key});
  record_.wait_ended(given_up());
  const JobReport report = failed();
  EXPECT_EQ(report.the_culprit().rank, 1);
  EXPECT_EQ(report.cause.sentence.substr(0, 45), "has not set the key 'go/1' in the job's store");
}

TEST_F(TimedOutJob, DoesNotBlameARankThatIsNotKnownToSetTheKey) {
  hang::Finding on_key = finding();
  on_key.operation = {.kind = hang::Operation::Kind::store_key, .key = "go"};
  on_key.doubt = {hang::Doubt::Why::unknown_setter, {1}};
  record_.hang_notice({on_key});
  on_key.number = 2;
  record_.hang_notice({on_key});
  record_.wait_ended(given_up());
  EXPECT_EQ(failed().the_culprit().rank, 0);
}

TEST_F(TimedOutJob, DoesNotBlameARankThatCame) {
  record_.hang_notice({finding()});
  record_.wait_ended({1, {1}, std::chrono::seconds(31)});
  EXPECT_EQ(failed().the_culprit().rank, 0);
}

TEST_F(TimedOutJob, DoesNotBlameARankWhoseVerdictWasWithdrawn) {
  record_.hang_verdict({finding()});
  record_.hang_withdrawn({1, {1}, {}});
  EXPECT_EQ(failed().the_culprit().rank, 0);
}

TEST_F(TimedOutJob, DoesNotBlameARankOfAnEarlierAttempt) {
  record_.hang_notice({finding()});
  record_.wait_ended(given_up());
  start_attempt(1);
  record_.worker_exited({0, 110, ExitStatus::exited(3), std::chrono::seconds(3), 0, 0}, {});
  EXPECT_EQ(finish_failed().the_culprit().rank, 0);
}

// ---- a mismatch that made workers fail

class MismatchedJob : public HangingJob {
 protected:
  // Rank 0 aborts in a call that rank 1 made differently; rank 1 is stopped.
  JobReport failed(const AttemptRemains& remains = {}) {
    hang::Finding found = mismatch(1);
    found.ranks[0].site = "train.py:90 step";
    found.is_over = true;
    record_.worker_exited({0, 100, ExitStatus::signaled(6), std::chrono::seconds(3), 0, 0}, {});
    EXPECT_EQ(record_.hang_verdict({found}).text,
              std::string(kLine) + "\n  rank 1: called it at train.py:90 step\n  waiting: rank 0");
    record_.hang_explained(1);
    record_.stop_begins(15, std::chrono::seconds(1), {AtStop::ended, AtStop::running});
    record_.worker_exited({1, 101, ExitStatus::signaled(15), std::chrono::seconds(3), 0, 0}, {});
    return finish_failed(remains);
  }

  static constexpr const char* kLine =
      "rank 1 (GPU 1, pid 101) called all_reduce #17 of group 'world' with 4 float32, the others "
      "with 8 float32";
};

TEST_F(MismatchedJob, BlamesTheRankThatMadeADifferentCall) {
  const JobReport report = failed();
  ASSERT_TRUE(report.culprit);
  EXPECT_EQ(report.the_culprit().rank, 1);
  EXPECT_EQ(report.reason, Reason::mismatch);
  EXPECT_EQ(report.cause.kind, FailureClass::user);
  EXPECT_EQ(report.cause.sentence,
            "called all_reduce #17 of group 'world' with 4 float32, the others with 8 float32");
  EXPECT_EQ(report.cause.remedy,
            "all ranks must make the same collective calls, with the same sizes and types: rank 1 "
            "made this one at train.py:90 step");
  const std::string screen = render_end(report, {});
  EXPECT_NE(screen.find("FAILED: rank 1 called all_reduce #17"), std::string::npos) << screen;
  EXPECT_EQ(screen.find("Before the failure"), std::string::npos) << screen;
}

TEST_F(MismatchedJob, PrefersTheReportOfTheWorkerLibrary) {
  AttemptRemains remains;
  remains.workers.resize(2);
  remains.workers[0].library =
      FailureRecord{.time_ns = 1, .code = FailureCode::peer_failed, .rank = 0};
  EXPECT_NE(failed(remains).reason, Reason::mismatch);
}

// Ranks may learn of the failure before their node is asked to stop.
TEST_F(MismatchedJob, IgnoresLibraryReportsThatFollowItsOwnFailure) {
  record_.fails_for_hang();
  const auto later = std::chrono::steady_clock::now().time_since_epoch();
  AttemptRemains remains;
  remains.workers.resize(2);
  remains.workers[0].library =
      FailureRecord{.time_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(later).count(),
                    .code = FailureCode::peer_failed,
                    .rank = 0};
  EXPECT_EQ(failed(remains).reason, Reason::mismatch);
}

TEST_F(MismatchedJob, ForgetsTheMismatchInTheNextAttempt) {
  record_.hang_verdict({mismatch(1)});
  record_.hang_explained(1);
  start_attempt(1);
  record_.worker_exited({0, 110, ExitStatus::exited(3), std::chrono::seconds(3), 0, 0}, {});
  EXPECT_EQ(finish_failed().reason, Reason::only_failure);
}

TEST_F(HangingJob, WritesOneStragglerEventOnEachNode) {
  const hang::Stragglers stragglers{
      .time = std::chrono::seconds(600),
      .ranks = {{.rank = 1, .share = 0.1, .waited = {}, .calls = 3, .group = "dp", .others = 1}}};
  const HangNews news = record_.stragglers(stragglers);
  record_.take(news);
  ASSERT_EQ(events_.size(), 2U);
  EXPECT_EQ(events_[0]["event"], "straggler");
  EXPECT_EQ(events_[0]["rank"], 1);
  EXPECT_EQ(events_[0]["seconds"], 60.0);
  EXPECT_EQ(events_[0]["text"], news.text);
  events_[0].erase("time");
  events_[1].erase("time");
  EXPECT_EQ(events_[0], events_[1]);
}

}  // namespace
}  // namespace muster
