// All nodes show the same failure, whatever it is; damaged bytes are refused or harmless.
#include <algorithm>
#include <limits>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "agent/report/failure_wire.h"
#include "agent/report/result_json.h"
#include "agent/report/text.h"
#include "agent/report/verdict.h"
#include "tests/unit/agent/report/report_generators.h"

namespace muster {
namespace {

// A verdict on node rank 1 of 4, whose host is node-7.
JudgedAttempt any_verdict() {
  const JobReport report = any_failed_job();
  JudgedAttempt judged;
  judged.attempt = *rc::gen::inRange(0, 4);
  judged.failures = report.failures;
  judged.culprit = report.culprit;
  judged.witness = report.witness;
  judged.reason = report.reason;
  for (WorkerFailure& failure : judged.failures)
    failure.node_rank = 1;
  WorkerFailure& culprit = judged.failures[*judged.culprit];
  culprit.stderr_log_path = *any_output();
  culprit.declared = *rc::gen::element<std::string>("", "stuck for 60 s");
  judged.cause = cause_of(culprit, any_evidence());
  return judged;
}

JobReport a_report(int node_rank) {
  JobReport report = sample_job(JobEnd::failed);
  report.host = node_rank == 1 ? "node-7" : "node-1";
  report.nnodes = 4;
  report.node_rank = node_rank;
  return report;
}

JobReport told(JobReport report, const std::string& detail) {
  const Result<JudgedAttempt> judged = decode_verdict(detail);
  RC_ASSERT(judged.has_value());
  apply_judged(report, *judged);
  return report;
}

// True if the wire cut any of the culprit's texts; it cuts lines a little shorter than the screen.
bool was_cut(const JudgedAttempt& judged, const WorkerFailure& sent) {
  const WorkerFailure& culprit = judged.failures[*judged.culprit];
  const auto lines = last_lines(culprit.stderr_tail, 30, std::numeric_limits<size_t>::max());
  const bool all_fit = std::all_of(
      lines.begin(), lines.end(), [](const std::string& line) { return clean_line(line) == line; });
  return !all_fit || last_lines(sent.stderr_tail, 30) != lines ||
         sent.device != valid_utf8(culprit.device) || sent.call != valid_utf8(culprit.call) ||
         sent.stderr_log_path != valid_utf8(culprit.stderr_log_path) ||
         sent.error_file_content.value_or("") !=
             valid_utf8(culprit.error_file_content.value_or(""));
}

RC_GTEST_PROP(AnyFailure, IsShownAlikeOnAllNodes, ()) {
  const JudgedAttempt judged = any_verdict();
  const std::string detail = encode_verdict(judged);
  RC_ASSERT(detail.size() <= kVerdictBytesMax);
  const JobReport there = told(a_report(1), detail);
  const JobReport here = told(a_report(0), detail);
  RC_ASSERT(render_end(here, {}) == render_end(there, {}));
  RC_ASSERT(here.failures == there.failures);
  JobReport before = a_report(1);
  apply_judged(before, judged);
  RC_ASSERT(exit_code_of(here, ExitCodePolicy::culprit) ==
            exit_code_of(before, ExitCodePolicy::culprit));
}

RC_GTEST_PROP(AnyFailure, IsShownAsItsOwnNodeShowsIt, ()) {
  const JudgedAttempt judged = any_verdict();
  const JobReport here = told(a_report(0), encode_verdict(judged));
  RC_PRE(!judged.witness && !was_cut(judged, here.failures[*here.culprit]));
  for (const WorkerFailure& failure : judged.failures)
    RC_PRE(failure.part != Part::simultaneous);
  const auto is_whole = [](const WorkerFailure& there, const WorkerFailure& sent) {
    return there.part != Part::crashed || there.sentence == sent.sentence;
  };
  RC_PRE(std::ranges::equal(here.failures, judged.failures, is_whole));
  JobReport own = a_report(1);
  apply_judged(own, judged);
  RC_ASSERT(render_end(here, {}) == render_end(own, {}));
}

RC_GTEST_PROP(AnyFailure, ComesBackAsItWasSent, ()) {
  const std::string detail = encode_verdict(any_verdict());
  const Result<JudgedAttempt> once = decode_verdict(detail);
  RC_ASSERT(once.has_value());
  RC_ASSERT(encode_verdict(*once) == detail);
}

RC_GTEST_PROP(AnyFailure, HasASentenceOfOneLine, ()) {
  const std::string sentence = verdict_sentence(any_verdict());
  RC_ASSERT(!sentence.empty());
  RC_ASSERT(sentence.find('\n') == std::string::npos);
}

RC_GTEST_PROP(AnyDamagedDetail, IsRefusedOrHarmless, ()) {
  std::string detail = encode_verdict(any_verdict());
  const int changes = *rc::gen::inRange(1, 4);
  for (int i = 0; i < changes; ++i) {
    const size_t at = *rc::gen::inRange<size_t>(0, detail.size());
    detail[at] = *rc::gen::oneOf(rc::gen::arbitrary<char>(),
                                 rc::gen::element('"', '{', '}', '[', ']', ',', ':', '-', '9'));
  }
  const Result<JudgedAttempt> judged = decode_verdict(detail);
  if (!judged) {
    RC_ASSERT(judged.error().message.find('\n') == std::string::npos);
    return;
  }
  JobReport report = a_report(0);
  apply_judged(report, *judged);
  const std::string text = render_end(report, {});
  RC_ASSERT(is_printable(text));
  RC_ASSERT(nlohmann::json::accept(result_json(report, ExitCodePolicy::culprit)));
  const int code = exit_code_of(report, ExitCodePolicy::culprit);
  RC_ASSERT(code >= 1 && code <= 255);
}

}  // namespace
}  // namespace muster
