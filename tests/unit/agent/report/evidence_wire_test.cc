// The evidence that a node sends to the job's host, and the host's judgement of all nodes.
#include <csignal>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "agent/report/failure_wire.h"
#include "agent/report/verdict.h"
#include "tests/unit/agent/report/report_generators.h"
#include "tests/unit/instants.h"

namespace muster {
namespace {

using membership::Testimony;
using std::chrono::milliseconds;

// Node rank 1 with ranks 2 and 3: rank 3 was killed at 100 ms, rank 2 stopped.
NodeEvidence node_b() {
  NodeEvidence node;
  node.host = "node-b";
  node.node_rank = 1;
  WorkerEvidence stopped;
  stopped.failure = sample_stopped(2);
  stopped.signs.status = stopped.failure.status;
  stopped.signs.at_stop = AtStop::running;
  stopped.signs.by_stop = true;
  stopped.signs.ended = at_ms(150);
  stopped.signs.order = 1;
  WorkerEvidence killed;
  killed.failure = sample_failure(3, ExitStatus::signaled(SIGSEGV));
  killed.failure.stderr_tail = "last words\n";
  killed.cause = cause_of(killed.failure);
  killed.signs.status = killed.failure.status;
  killed.signs.at_stop = AtStop::exiting;
  killed.signs.ended = at_ms(100);
  killed.signs.active_until = at_ms(60);
  stopped.failure.program = stopped.failure.binary = "";  // Not sent for stopped workers.
  node.workers = {killed, stopped};
  for (WorkerEvidence& worker : node.workers) {
    worker.signs.rank = worker.failure.rank;
    worker.signs.node_rank = worker.failure.node_rank = 1;
    worker.failure.local_rank = worker.failure.rank - 2;
    worker.failure.host = "node-b";
  }
  return node;
}

// Node rank 0 with ranks 0 and 1; rank 0 raised at 80 ms that a peer is gone, and ended first.
NodeEvidence node_a() {
  NodeEvidence node;
  node.host = "node-a";
  WorkerEvidence victim;
  victim.failure = sample_failure(0, ExitStatus::exited(1));
  victim.failure.host = "node-a";
  victim.failure.node_rank = 0;
  victim.cause = cause_of(victim.failure);
  victim.signs.status = victim.failure.status;
  victim.signs.at_stop = AtStop::ended;
  victim.signs.ended = at_ms(90);
  victim.signs.raised = at_ms(80);
  victim.signs.raised_error = milliseconds(1);
  victim.signs.blame = Blame{{3}};
  node.workers = {victim};
  return node;
}

// As the host received it: both clocks agree within a millisecond.
Testimony testimony_of(const NodeEvidence& node, int base_rank) {
  Testimony testimony;
  testimony.host_name = node.host;
  testimony.node_rank = node.node_rank;
  testimony.base_rank = base_rank;
  testimony.workers = 2;
  testimony.evidence =
      membership::Evidence{at_ms(1000), milliseconds(1), encode_evidence(node, at_ms(1000))};
  return testimony;
}

membership::NodeFailure reported(int rank, int64_t ms, int exit_code, const std::string& sentence,
                                 int signal = 0) {
  membership::NodeFailure failure;
  failure.rank = rank;
  failure.exit_code = exit_code;
  failure.signal = signal;
  failure.sentence = sentence;
  failure.at = at_ms(ms);
  return failure;
}

JudgedAttempt decoded_judgement(const membership::Judgement& judgement) {
  return decoded_verdict(judgement.verdict.detail);
}

bool told_in_full(const WorkerEvidence& worker) {
  return !worker.signs.by_stop && !worker.failure.stderr_tail.empty();
}

// ---- the round trip

TEST(EvidenceWire, ConvertsTimesToTheClockOfTheReader) {
  NodeEvidence expected = node_b();
  expected.workers[0].signs.told_by_library = at_ms(45);
  expected.workers[0].signs.left = at_ms(44);
  expected.workers[0].signs.blame = Blame{{}, false, /*is_hearsay=*/true};
  expected.detected = {
      {1, true, "called barrier, the others broadcast", "look at train.py:88", at_ms(50)},
      {2, false, "never entered barrier #3", "", {}, {0, 1, 3}}};
  const Result<NodeEvidence> read =
      decode_evidence(encode_evidence(expected, at_ms(40)), at_ms(1040), {});
  ASSERT_TRUE(read) << read.error().message;
  for (WorkerEvidence& worker : expected.workers) {
    worker.signs.ended += milliseconds(1000);
    for (auto* at : {&worker.signs.active_until, &worker.signs.told_by_library, &worker.signs.left})
      if (*at) **at += milliseconds(1000);
  }
  *expected.detected[0].failed += milliseconds(1000);
  EXPECT_EQ(*read, expected);
  const Result<NodeEvidence> other =
      decode_evidence(encode_evidence(node_a(), at_ms(40)), at_ms(40), {});
  ASSERT_TRUE(other);
  EXPECT_EQ(*other, node_a());
}

TEST(EvidenceWire, CarriesAnErrorOfTheNode) {
  NodeEvidence node;
  node.host = "node-c";
  node.error = Error{ExitCode::not_found, "no such program"};
  const Result<NodeEvidence> read = decode_evidence(encode_evidence(node, at_ms(0)), at_ms(0), {});
  ASSERT_TRUE(read);
  EXPECT_EQ(*read, node);
}

TEST(EvidenceWire, FitsTheLimitWithTheFailedWorkersFirst) {
  NodeEvidence node = node_b();
  const WorkerEvidence failed = node.workers[0];
  const WorkerEvidence stopped = node.workers[1];
  node.workers.assign(4000, stopped);
  node.workers.insert(node.workers.end(), 20, failed);
  for (WorkerEvidence& worker : node.workers)
    worker.failure.stderr_tail = std::string(60'000, 'x') + "\n";
  const std::string bytes = encode_evidence(node, at_ms(0));
  EXPECT_LE(bytes.size(), membership::kDetailBytesMax);
  const Result<NodeEvidence> read = decode_evidence(bytes, at_ms(0), {});
  ASSERT_TRUE(read);
  EXPECT_GE(read->workers.size(), 600u);
  EXPECT_EQ(std::ranges::count_if(read->workers, told_in_full), 20);
}

// 64 workers, each with an error file of 3 kB and 30 lines of stderr. The last one dies of SIGSEGV,
// the others of their lost connections to it.
NodeEvidence many_that_failed() {
  NodeEvidence node;
  node.host = "node-a";
  for (int rank = 0; rank < 64; ++rank) {
    const bool first = rank == 63;
    WorkerEvidence& worker = node.workers.emplace_back();
    worker.failure = sample_failure(rank, first ? ExitStatus::signaled(SIGSEGV)  //
                                                : ExitStatus::exited(1));
    worker.failure.local_rank = rank;
    worker.failure.node_rank = 0;
    worker.failure.host = "node-a";
    worker.failure.error_file_content = std::string(3000, 'e');
    for (int line = 0; line < 30; ++line)
      worker.failure.stderr_tail += std::string(first ? 90 : 60, 'x') + "\n";
    worker.cause = cause_of(worker.failure);
    worker.signs.rank = rank;
    worker.signs.order = rank;
    worker.signs.status = worker.failure.status;
    worker.signs.at_stop = AtStop::ended;
    worker.signs.ended = at_ms(first ? 100 : 110 + rank);
  }
  return node;
}

TEST(EvidenceWire, CoversAllWorkersIfTheirOutputDoesNotFit) {
  const NodeEvidence node = many_that_failed();
  const JudgedAttempt here = judge_attempt({node});
  Testimony told = testimony_of(node, 0);
  told.workers = 64;
  told.evidence->since_error = {};
  const JudgedAttempt there = decoded_judgement(judge_testimonies({told}));
  ASSERT_TRUE(here.culprit && there.culprit);
  EXPECT_EQ(here.failures[*here.culprit].rank, 63);
  const WorkerFailure& culprit = there.failures[*there.culprit];
  EXPECT_EQ(culprit.rank, 63);
  EXPECT_EQ(culprit.stderr_tail, node.workers[63].failure.stderr_tail);
  EXPECT_EQ(culprit.error_file_content, node.workers[63].failure.error_file_content);
  EXPECT_EQ(there.failures.size() + static_cast<size_t>(there.others_untold), 64u);
}

TEST(EvidenceWire, SummarizesAWorkerIfOnlyItsSignsFit) {
  NodeEvidence node = many_that_failed();
  node.workers = {node.workers[5]};
  node.workers[0].failure.attempt = 2;
  auto json = nlohmann::json::parse(encode_evidence(node, at_ms(1000)));
  for (const char* key : {"worker", "cause", "words"})
    EXPECT_EQ(json.at("workers").at(0).erase(key), 1u) << key;
  Testimony told = testimony_of(node, 0);
  told.workers = 64;
  told.evidence->detail = json.dump();
  const JudgedAttempt judged = decoded_judgement(judge_testimonies({told}));
  ASSERT_TRUE(judged.culprit);
  EXPECT_EQ(judged.attempt, 2);
  EXPECT_EQ(judged.cause.sentence, "exited with 1");
  const WorkerFailure& culprit = judged.failures[*judged.culprit];
  EXPECT_TRUE(culprit.summary_only);
  EXPECT_EQ(culprit.local_rank, 5);
  EXPECT_EQ(culprit.status, ExitStatus::exited(1));
  json.at("workers").at(0).at("code") = 256;
  EXPECT_FALSE(decode_evidence(json.dump(), at_ms(0), {}));
}

TEST(EvidenceWire, RefusesWhatItNeverWrites) {
  const auto json = nlohmann::json::parse(encode_evidence(node_a(), at_ms(0)));
  const std::vector<std::pair<const char*, nlohmann::json>> lies = {
      {"/version", 1},
      {"/host", 3},
      {"/node_rank", -1},
      {"/workers", 3},
      {"/workers/0", nullptr},
      {"/workers/0/ended", 1},
      {"/workers/0/signs/rank", -1},
      {"/workers/0/signs/at_stop", 4},
      {"/workers/0/signs/ended", std::numeric_limits<int64_t>::max()},
      {"/workers/0/signs/raised", 3},
      {"/workers/0/signs/raised/at", std::numeric_limits<int64_t>::min()},
      {"/workers/0/signs/raised_error", -1},
      {"/workers/0/signs/blame/ranks", {1, -1}},
      {"/workers/0/signs/blame/ranks", std::vector<int>(2000, 1)},
      {"/workers/0/worker/status/code", 256},
      {"/workers/0/cause/kind", 99},
      {"/error", {{"code", 0}, {"message", "m"}}},
  };
  for (const auto& [pointer, value] : lies) {
    auto lie = json;
    lie[nlohmann::json::json_pointer(pointer)] = value;
    EXPECT_FALSE(decode_evidence(lie.dump(), at_ms(0), {})) << pointer << " " << value;
  }
  for (const char* bytes : {"", "{", "[]", "7", "{}"})
    EXPECT_FALSE(decode_evidence(bytes, at_ms(0), {})) << bytes;
}

// ---- the judge of the host

TEST(JudgeTestimonies, NamesACauseOnANodeThatDidNotReportFirst) {
  Testimony a = testimony_of(node_a(), 0);
  a.failure = reported(0, 90, 1, "exited with 1");
  const membership::Judgement judgement = judge_testimonies({a, testimony_of(node_b(), 2)});
  EXPECT_EQ(judgement.verdict.rank, 3);
  EXPECT_EQ(judgement.verdict.node_rank, 1);
  EXPECT_EQ(judgement.verdict.host_name, "node-b");
  EXPECT_EQ(judgement.verdict.exit_code, 139);
  EXPECT_FALSE(judgement.by_departure);
  const JudgedAttempt judged = decoded_judgement(judgement);
  EXPECT_EQ(judged.reason, Reason::only_failure);
  ASSERT_EQ(judged.failures.size(), 3u);
  EXPECT_EQ(judged.failures[*judged.culprit].stderr_tail, "last words\n");
}

TEST(JudgeTestimonies, ListsTheRanksOfNodesWithoutEvidence) {
  Testimony silent;
  silent.node_rank = 2;
  silent.base_rank = 4;
  silent.workers = 3;
  const JudgedAttempt judged =
      decoded_judgement(judge_testimonies({testimony_of(node_b(), 2), silent}));
  EXPECT_EQ(judged.stopped_elsewhere, (std::vector<int>{4, 5, 6}));
  JobReport report = sample_job(JobEnd::failed);
  report.nnodes = 3;
  apply_judged(report, judged);
  EXPECT_NE(render_end(report, {})
                .find("4 others were stopped by muster: rank 2 killed by SIGTERM; "
                      "ranks 4-6\n"),
            std::string::npos)
      << render_end(report, {});
}

// Rank 3 was killed because rank 4, which still ran, had made another call.
TEST(JudgeTestimonies, BlamesAMismatchOnAnyNode) {
  NodeEvidence a = node_a();
  a.workers.clear();
  a.detected = {
      {4, true, "called all_reduce #1 with 8 float32, the others with 16", "look at x.py:3"}};
  Testimony silent;
  silent.host_name = "node-c";
  silent.node_rank = 2;
  silent.base_rank = 4;
  silent.workers = 2;
  const membership::Judgement judgement =
      judge_testimonies({testimony_of(a, 0), testimony_of(node_b(), 2), silent});
  EXPECT_EQ(judgement.verdict.rank, 4);
  EXPECT_EQ(judgement.verdict.node_rank, 2);
  EXPECT_EQ(judgement.verdict.host_name, "node-c");
  EXPECT_EQ(judgement.verdict.exit_code, 139) << "the exit code is the failed worker's";
  const JudgedAttempt judged = decoded_judgement(judgement);
  EXPECT_EQ(judged.reason, Reason::mismatch);
  EXPECT_EQ(judged.cause.sentence, "called all_reduce #1 with 8 float32, the others with 16");
  EXPECT_EQ(judged.cause.remedy, "look at x.py:3");
  EXPECT_EQ(judged.the_culprit().local_rank, 0);
  EXPECT_EQ(judged.stopped_elsewhere, std::vector<int>{5});
}

TEST(JudgeTestimonies, PutsAFailureFoundByTheWorkerLibraryBeforeAMismatch) {
  NodeEvidence a = node_a();
  a.detected = {{0, true, "called barrier, the others broadcast", ""}};
  NodeEvidence b = node_b();
  b.workers[0].signs.told_by_library = at_ms(100);
  EXPECT_EQ(judge_testimonies({testimony_of(a, 0), testimony_of(b, 2)}).verdict.rank, 3);
  a.detected[0].failed = at_ms(102);  // The clocks differ by at most a millisecond.
  EXPECT_EQ(judge_testimonies({testimony_of(a, 0), testimony_of(b, 2)}).verdict.rank, 3);
}

// Ranks of another node learn of a peer's end before their node gets the order to stop. If the
// clocks agree less well, the order of the two is unknown.
TEST(JudgeTestimonies, DoesNotCreditTheLibraryWithWhatFollowsAFailureForAHang) {
  NodeEvidence a = node_a();
  a.detected = {{0, false, "never entered all_reduce #31", "", at_ms(100)}};
  NodeEvidence b = node_b();
  b.workers[0].signs.told_by_library = at_ms(101);
  EXPECT_EQ(judge_testimonies({testimony_of(a, 0), testimony_of(b, 2)}).verdict.rank, 0);
  b.workers[0].signs.told_by_library = at_ms(98);
  EXPECT_EQ(judge_testimonies({testimony_of(a, 0), testimony_of(b, 2)}).verdict.rank, 3);
  Testimony vague = testimony_of(b, 2);
  vague.evidence->since_error = milliseconds{2};
  EXPECT_EQ(judge_testimonies({testimony_of(a, 0), vague}).verdict.rank, 0);
}

// A time-out of NCCL, for example, does not name the missing rank.
TEST(JudgeTestimonies, BlamesTheRankThatAVictimOfATimeoutWaitedFor) {
  NodeEvidence a = node_a();
  a.workers[0].signs.blame = Blame{.about = Blame::About::timeout};
  a.detected = {{2, false, "never entered all_reduce #31", "", {}, {0, 1}}};
  NodeEvidence b;  // Its ranks ran until the stop.
  const membership::Judgement judgement =
      judge_testimonies({testimony_of(a, 0), testimony_of(b, 2)});
  EXPECT_EQ(judgement.verdict.rank, 2);
  const JudgedAttempt judged = decoded_judgement(judgement);
  EXPECT_EQ(judged.reason, Reason::hang);
  EXPECT_EQ(judged.cause.sentence, "never entered all_reduce #31");
  ASSERT_TRUE(judged.witness);
  EXPECT_EQ(judged.failures[*judged.witness].rank, 0);

  // Rank 2 itself waited for rank 3, which is to blame; between two candidates nothing decides.
  a.detected.push_back({3, false, "never entered barrier #7", "", {}, {0, 2}});
  EXPECT_EQ(judge_testimonies({testimony_of(a, 0), testimony_of(b, 2)}).verdict.rank, 3);
  a.detected[1].waiting = {0};
  EXPECT_EQ(judge_testimonies({testimony_of(a, 0), testimony_of(b, 2)}).verdict.rank, 0);
  a.detected.pop_back();
  // A broken connection is no time-out.
  a.workers[0].signs.blame->about = Blame::About::loss;
  EXPECT_EQ(judge_testimonies({testimony_of(a, 0), testimony_of(b, 2)}).verdict.rank, 0);
  a.workers[0].signs.blame->about = Blame::About::timeout;
  EXPECT_EQ(judge_testimonies({testimony_of(a, 0), testimony_of(b, 2)}).verdict.rank, 2);
  // Another rank than the victim waited for it.
  a.detected[0].waiting = {1};
  EXPECT_EQ(judge_testimonies({testimony_of(a, 0), testimony_of(b, 2)}).verdict.rank, 0);
  // A worker failed by itself.
  a.detected[0].waiting = {0, 1};
  EXPECT_EQ(judge_testimonies({testimony_of(a, 0), testimony_of(node_b(), 2)}).verdict.rank, 3);
  a.workers[0].signs.blame.reset();
  EXPECT_EQ(judge_testimonies({testimony_of(a, 0), testimony_of(b, 2)}).verdict.rank, 0);
}

// PyTorch's flight recorder informs even the missing rank that another one gave up.
TEST(JudgeTestimonies, MayBlameARankWithOnlySecondHandKnowledgeOfATimeout) {
  NodeEvidence a = node_a();
  a.workers[0].signs.blame = Blame{.about = Blame::About::timeout};
  a.detected = {{2, false, "never entered all_reduce #31", "", {}, {0, 1}}};
  NodeEvidence b = node_b();
  b.workers.erase(b.workers.begin());
  WorkerSigns& late = b.workers[0].signs;
  late.raised = at_ms(85);
  late.presumed = true;
  late.blame = Blame{{}, false, /*is_hearsay=*/true};
  const auto culprit = [&] {
    const membership::Judgement judgement =
        judge_testimonies({testimony_of(a, 0), testimony_of(b, 2)});
    EXPECT_EQ(judgement.verdict.rank, 2);
    return decoded_judgement(judgement).cause.sentence;
  };
  EXPECT_EQ(culprit(), "never entered all_reduce #31");
  // Its process ended before those of the waiting ranks, which were stopped.
  std::swap(a.workers[0].failure.status, b.workers[0].failure.status);
  a.workers[0].signs.by_stop = true;
  a.workers[0].signs.raised.reset();
  a.workers[0].signs.blame.reset();
  late.by_stop = late.presumed = false;
  late.at_stop = AtStop::ended;
  EXPECT_EQ(culprit(), "never entered all_reduce #31");
  // Its blame is first-hand: it is a victim itself.
  late.blame->is_hearsay = false;
  EXPECT_NE(culprit(), "never entered all_reduce #31");
}

TEST(JudgeTestimonies, BelievesAMismatchOnlyFromTheNodeWithTheDetector) {
  NodeEvidence b = node_b();
  b.detected = {{0, true, "called barrier, the others broadcast", ""}};
  EXPECT_EQ(judge_testimonies({testimony_of(node_a(), 0), testimony_of(b, 2)}).verdict.rank, 3);
}

TEST(JudgeTestimonies, IgnoresWhatANodeSaysOfAnotherNodesWorkers) {
  NodeEvidence liar = node_b();
  liar.workers[0].signs.rank = liar.workers[0].failure.rank = 7;
  liar.host = "node-x";
  Testimony b = testimony_of(liar, 2);
  b.host_name = "node-b";
  b.failure = reported(3, 100, 139, "killed by SIGSEGV", SIGSEGV);
  const membership::Judgement judgement = judge_testimonies({b});
  EXPECT_NE(judgement.verdict.rank, 7);
  EXPECT_EQ(judgement.verdict.host_name, "node-b");
}

TEST(JudgeTestimonies, UsesTheReportOfANodeWithoutEvidence) {
  Testimony a = testimony_of(node_a(), 0);
  Testimony b;
  b.host_name = "node-b";
  b.node_rank = 1;
  b.base_rank = 2;
  b.workers = 2;
  b.failure = reported(3, 100, 139, "killed by SIGSEGV", SIGSEGV);
  const JudgedAttempt judged = decoded_judgement(judge_testimonies({a, b}));
  ASSERT_TRUE(judged.culprit);
  EXPECT_EQ(judged.failures[*judged.culprit].rank, 3);
  EXPECT_TRUE(judged.failures[*judged.culprit].summary_only);
  b.evidence = membership::Evidence{at_ms(0), {}, "junk"};
  EXPECT_EQ(judge_testimonies({a, b}).verdict.rank, 3);
}

TEST(JudgeTestimonies, TreatsALostNodeAsADepartureIfItExplainsTheVictims) {
  Testimony a = testimony_of(node_a(), 0);
  a.failure = reported(0, 90, 1, "exited with 1");
  Testimony b;
  b.node_rank = 1;
  b.base_rank = 2;
  b.workers = 2;
  b.gone = true;
  b.last_heard = at_ms(50);
  b.gone_by = at_ms(300);
  EXPECT_TRUE(judge_testimonies({a, b}).by_departure);
  // The node was heard after the failure, and no rank named one of its ranks.
  NodeEvidence own = node_a();
  own.workers[0].signs.blame.reset();
  Testimony first = testimony_of(own, 0);
  b.last_heard = at_ms(95);
  EXPECT_FALSE(judge_testimonies({first, b}).by_departure);
}

TEST(JudgeTestimonies, PutsAnErrorOfANodeFirst) {
  NodeEvidence c;
  c.host = "node-c";
  c.node_rank = 2;
  c.error = Error{ExitCode::not_found, "no such program"};
  const membership::Judgement judgement =
      judge_testimonies({testimony_of(node_b(), 2), testimony_of(c, 4)});
  EXPECT_EQ(judgement.verdict.exit_code, 127);
  EXPECT_EQ(judgement.verdict.node_rank, 2);
  EXPECT_EQ(judgement.verdict.sentence, "no such program");
}

TEST(JudgeTestimonies, UsesTheFirstReportIfNoNodeHasEvidence) {
  Testimony a;
  a.host_name = "node-a";
  a.workers = 2;
  a.failure = reported(1, 90, 3, "exited with 3");
  Testimony b = a;
  b.node_rank = 1;
  b.base_rank = 2;
  b.failure = reported(2, 40, 5, "exited with 5");
  const membership::Judgement judgement = judge_testimonies({a, b});
  EXPECT_EQ(judgement.verdict.rank, 2);
  EXPECT_EQ(judgement.verdict.exit_code, 5);
}

template <typename T>
std::optional<T> maybe(const rc::Gen<T>& gen) {
  return *rc::gen::arbitrary<bool>() ? std::optional<T>(*gen) : std::nullopt;
}

WorkerSigns any_signs(int rank, int workers) {
  const auto any_instant = rc::gen::map(
      rc::gen::inRange(0, 20'000), [](int us) { return Instant{std::chrono::microseconds{us}}; });
  WorkerSigns signs;
  signs.rank = rank;
  signs.order = rank;
  signs.at_stop =
      *rc::gen::element(AtStop::unknown, AtStop::running, AtStop::exiting, AtStop::ended);
  signs.by_stop = *rc::gen::arbitrary<bool>();
  signs.declared = *rc::gen::inRange(0, 10) == 0;
  signs.ended = *any_instant;
  signs.raised = maybe(any_instant);
  if (signs.raised) signs.raised_error = milliseconds{*rc::gen::inRange(0, 2)};
  signs.active_until = maybe(any_instant);
  if (*rc::gen::arbitrary<bool>()) signs.blame = Blame{{*rc::gen::inRange(0, workers)}};
  return signs;
}

RC_GTEST_PROP(AnyEvidence, LeadsToTheSameCulpritOnAnotherNode, ()) {
  const int workers = *rc::gen::inRange(1, 200);
  const auto line = static_cast<size_t>(*rc::gen::element(0, 20, 500));
  NodeEvidence node;
  for (int rank = 0; rank < workers; ++rank) {
    WorkerEvidence& worker = node.workers.emplace_back();
    const ExitStatus status = *rc::gen::oneOf(rc::gen::just(ExitStatus::exited(0)),  //
                                              any_failed_status());
    worker.failure = sample_failure(rank, status);
    worker.signs = any_signs(rank, workers);
    if (*rc::gen::inRange(0, 10) > 0) worker.signs.status = status;
    worker.failure.error_file_content = std::string(line * 10, 'e');
    for (int lines = 0; lines < 30; ++lines)
      worker.failure.stderr_tail += std::string(line, 'x') + "\n";
  }
  const std::string bytes = encode_evidence(node, at_ms(0));
  RC_ASSERT(bytes.size() <= membership::kDetailBytesMax);
  const Result<NodeEvidence> read = decode_evidence(bytes, at_ms(0), {});
  RC_ASSERT(read.has_value());
  RC_ASSERT(read->workers.size() == node.workers.size());
  const JudgedAttempt here = judge_attempt({node});
  const JudgedAttempt there = judge_attempt({*read});
  RC_ASSERT(here.culprit == there.culprit);
  RC_ASSERT(here.reason == there.reason);
  for (size_t i = 0; i < here.failures.size(); ++i) {
    RC_ASSERT(here.failures[i].rank == there.failures[i].rank);
    RC_ASSERT(here.failures[i].part == there.failures[i].part);
  }
}

RC_GTEST_PROP(AnyEvidence, ComesBackAndIsHarmlessIfDamaged, ()) {
  NodeEvidence node = node_b();
  node.workers[0].failure.stderr_tail = *any_output();
  node.workers[0].failure.device = *any_output();
  std::string bytes = encode_evidence(node, at_ms(0));
  RC_ASSERT(decode_evidence(bytes, at_ms(0), {}).has_value());
  const int changes = *rc::gen::inRange(0, 4);
  for (int i = 0; i < changes; ++i) {
    const size_t where = *rc::gen::inRange<size_t>(0, bytes.size());
    bytes[where] = *rc::gen::oneOf(rc::gen::arbitrary<char>(),
                                   rc::gen::element('"', '{', '}', '[', ']', ',', ':', '-', '9'));
  }
  Testimony b = testimony_of(node_b(), 2);
  b.evidence->detail = bytes;
  b.failure = reported(3, 100, 139, "killed by SIGSEGV", SIGSEGV);
  const membership::Judgement judgement = judge_testimonies({testimony_of(node_a(), 0), b});
  RC_ASSERT(judgement.verdict.exit_code >= 0 && judgement.verdict.exit_code <= 255);
}

}  // namespace
}  // namespace muster
