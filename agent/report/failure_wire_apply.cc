#include <algorithm>
#include <csignal>
#include <utility>

#include <fmt/format.h>

#include "agent/report/failure_wire.h"
#include "agent/report/result_json.h"
#include "agent/report/text.h"
#include "rendezvous/base/signal_name.h"

namespace muster {
namespace {

// An End comes from the network; its exit code must not read as success.
ExitCode failing_code(int code) {
  return static_cast<ExitCode>(std::clamp(code, 1, 255));
}

void end_with_error(JobReport& report, const membership::End& end) {
  report.end = JobEnd::round_failed;
  report.error = {failing_code(end.exit_code), end.text};
  report.lost_node = end.why == membership::EndWhy::lost;
}

void end_as_failed(JobReport& report, const membership::End& end) {
  if (!end.verdict) return end_with_error(report, end);
  report.end = JobEnd::failed;
  Result<JudgedAttempt> told = decode_verdict(end.verdict->detail);
  JudgedAttempt judged = told ? *std::move(told) : verdict_in_short(*end.verdict);
  if (!told) judged.failures[0].program = report.program;
  apply_judged(report, judged);
  if (!judged.error) return;
  report.end = JobEnd::spawn_failed;
  report.error = *judged.error;
  report.error.message.insert(0, node_text(judged.error_host, judged.error_node_rank) + ": ");
}

void end_as_stopped(JobReport& report, const membership::End& end) {
  // The job's host may have appended to the name, to make it unique.
  const bool here = end.host_name.starts_with(report.host) && end.node_rank == report.node_rank;
  report.end = JobEnd::stopped;
  report.stop_signal = std::clamp(end.signal, 1, SIGRTMAX);
  report.stopped_by =
      here ? std::string()
           : signal_name(report.stop_signal) + " on " + node_text(end.host_name, end.node_rank);
  // A failure before the stop.
  if (!end.verdict) return;
  const Result<JudgedAttempt> told = decode_verdict(end.verdict->detail);
  if (told && told->culprit) apply_judged(report, *told);
}

// Returns why the last attempt ended, which this node alone could not know.
std::string attempt_end_text(const JobReport& report, const membership::End& end) {
  if (report.end != JobEnd::failed || !report.culprit) {
    return end.text.empty() ? outcome_name(report.end) : clean_line(end.text);
  }
  return fmt::format("rank {} on {} {}", report.the_culprit().rank,
                     clean_line(report.the_culprit().host), clean_line(report.cause.sentence));
}

}  // namespace

void apply_end(JobReport& report, const membership::End& end) {
  const JobEnd own_end = report.end;
  report.error = {};
  switch (end.why) {
    case membership::EndWhy::success:
      report.end = JobEnd::success;
      break;
    case membership::EndWhy::failed:
      end_as_failed(report, end);
      break;
    case membership::EndWhy::stopped:
      end_as_stopped(report, end);
      break;
    case membership::EndWhy::lost:
    case membership::EndWhy::timeout:
      end_with_error(report, end);
      break;
  }
  if (!report.attempts.empty() && report.attempts.back().by_outcome) {
    AttemptRecord& last = report.attempts.back();
    last.why_ended = attempt_end_text(report, end);
    if (report.end == JobEnd::failed && report.culprit) last.culprit = attempt_culprit(report);
  }
  if (own_end == JobEnd::unkillable) report.end = JobEnd::unkillable;
  report.restarts_used = end.restarts;
  report.membership_changes = end.changes;
}

}  // namespace muster
