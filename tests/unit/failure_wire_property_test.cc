// Whatever failed on one node: the others show the same, and whatever arrives harms nobody.
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
#include "tests/unit/report_generators.h"

namespace muster {
namespace {

// Node rank 1 of 4, named node-7 as all its workers are.
JobReport any_culprits_report() {
  JobReport report = any_failed_job();
  report.nnodes = 4;
  report.node_rank = 1;
  report.max_restarts = *rc::gen::inRange(0, 4);
  report.restarts_used = *rc::gen::inRange(0, report.max_restarts + 1);
  WorkerFailure& culprit = report.failures[*report.culprit];
  culprit.attempt = report.restarts_used;
  culprit.stderr_log_path = *any_output();
  culprit.declared = *rc::gen::element<std::string>("", "stuck for 60 s");
  report.cause = classify(culprit, any_evidence());
  report.program = culprit.program;
  return report;
}

JobReport other_nodes_report() {
  JobReport report = sample_job(JobEnd::failed);
  report.host = "node-1";
  report.node_rank = *rc::gen::inRange(-1, 1);
  report.world_size = *rc::gen::inRange(1, 9);
  return report;
}

JobReport told(JobReport report, const std::string& detail) {
  Result<RemoteFailure> remote = decode_failure_detail(detail);
  RC_ASSERT(remote.has_value());
  apply_remote_failure(report, *std::move(remote));
  return report;
}

// Whether the wire had to cut anything of the culprit; a line that is too long to be shown is cut a
// little earlier there.
bool was_cut(const JobReport& report, const WorkerFailure& sent) {
  const WorkerFailure& culprit = report.failures[*report.culprit];
  const auto lines = last_lines(culprit.stderr_tail, 30, std::numeric_limits<size_t>::max());
  const bool all_fit = std::all_of(
      lines.begin(), lines.end(), [](const std::string& line) { return clean_line(line) == line; });
  return !all_fit || last_lines(sent.stderr_tail, 30) != lines ||
         sent.device != valid_utf8(culprit.device) ||
         sent.stderr_log_path != valid_utf8(culprit.stderr_log_path) ||
         sent.error_file_content.value_or("") !=
             valid_utf8(culprit.error_file_content.value_or(""));
}

RC_GTEST_PROP(AnyFailure, IsShownAlikeOnAllNodes, ()) {
  const JobReport report = any_culprits_report();
  const std::string detail = encode_failure_detail(report);
  RC_ASSERT(detail.size() <= kFailureDetailBytesMax);
  const JobReport there = told(report, detail);
  const JobReport here = told(other_nodes_report(), detail);
  RC_ASSERT(render_end(here, {}) == render_end(there, {}));
  RC_ASSERT(here.cause == there.cause);
  RC_ASSERT(here.failures == there.failures);
  RC_ASSERT(exit_code_of(here, ExitCodePolicy::culprit) ==
            exit_code_of(report, ExitCodePolicy::culprit));
}

RC_GTEST_PROP(AnyFailure, IsShownAsItsOwnNodeWould, ()) {
  const JobReport report = any_culprits_report();
  const JobReport here = told(other_nodes_report(), encode_failure_detail(report));
  RC_PRE(!was_cut(report, here.failures[0]));
  RC_ASSERT(render_end(here, {}) == render_end(report, {}));
}

RC_GTEST_PROP(AnyFailure, ComesBackAsItWasSent, ()) {
  const std::string detail = encode_failure_detail(any_culprits_report());
  RC_ASSERT(encode_failure_detail(told(sample_job(JobEnd::failed), detail)).size() > 0);
  const Result<RemoteFailure> once = decode_failure_detail(detail);
  RC_ASSERT(once.has_value());
  JobReport passed_on = sample_job(JobEnd::failed);
  passed_on.node_rank = once->node_rank;
  apply_remote_failure(passed_on, *once);
  RC_ASSERT(encode_failure_detail(passed_on) == detail);
}

RC_GTEST_PROP(AnyFailure, HasASentenceOfOneLine, ()) {
  const std::string sentence = failure_sentence(any_culprits_report());
  RC_ASSERT(!sentence.empty());
  RC_ASSERT(sentence.find('\n') == std::string::npos);
}

RC_GTEST_PROP(AnyDamagedDetail, IsRefusedOrHarmless, ()) {
  std::string detail = encode_failure_detail(any_culprits_report());
  const int changes = *rc::gen::inRange(1, 4);
  for (int i = 0; i < changes; ++i) {
    const size_t at = *rc::gen::inRange<size_t>(0, detail.size());
    detail[at] = *rc::gen::oneOf(rc::gen::arbitrary<char>(),
                                 rc::gen::element('"', '{', '}', '[', ']', ',', ':', '-', '9'));
  }
  Result<RemoteFailure> remote = decode_failure_detail(detail);
  if (!remote) {
    RC_ASSERT(remote.error().message.find('\n') == std::string::npos);
    return;
  }
  JobReport report = other_nodes_report();
  apply_remote_failure(report, *std::move(remote));
  const std::string text = render_end(report, {});
  RC_ASSERT(std::all_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) >= 0x20 || c == '\n' || c == '\t';
  }));
  RC_ASSERT(nlohmann::json::accept(result_json(report, ExitCodePolicy::culprit)));
  const int code = exit_code_of(report, ExitCodePolicy::culprit);
  RC_ASSERT(code >= 1 && code <= 255);
}

RC_GTEST_PROP(AnyBytes, AreRefusedAsADetail, (const std::string& bytes)) {
  RC_ASSERT(!decode_failure_detail(bytes).has_value());
}

}  // namespace
}  // namespace muster
