#include <algorithm>
#include <csignal>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "agent/report/failure_wire.h"
#include "agent/report/result_json.h"
#include "agent/report/text.h"

namespace muster {
namespace {

// An exit code of an End, which comes from the network: the job has not succeeded.
ExitCode failing_code(int code) {
  return static_cast<ExitCode>(std::clamp(code, 1, 255));
}

// The status behind an exit code as a shell would show it, as far as that can be told.
ExitStatus status_in_short(const membership::Failure& failure) {
  const int code = std::clamp(failure.exit_code, 1, 255);
  const int signal = code - 128;
  const bool killed = failure.sentence.starts_with("killed by ") && signal > 0;
  return killed && signal <= SIGRTMAX ? ExitStatus::signaled(signal) : ExitStatus::exited(code);
}

// What an End says where the details of its failure never arrived.
RemoteFailure failure_in_short(const JobReport& report, const membership::End& end,
                               const membership::Failure& failure) {
  RemoteFailure remote;
  remote.host = end.host_name;
  remote.node_rank = std::max(0, end.node_rank);
  remote.nodes = report.nnodes;
  remote.world_size = report.world_size;
  remote.max_restarts = report.max_restarts;
  WorkerFailure& culprit = remote.culprit;
  culprit.rank = failure.rank;
  culprit.local_rank = failure.local_rank;
  culprit.host = end.host_name;
  culprit.program = report.program;
  culprit.status = status_in_short(failure);
  culprit.summary_only = true;
  const bool killed = culprit.status.kind == ExitStatus::Kind::signaled;
  remote.cause.kind = killed ? FailureClass::signal : FailureClass::user;
  remote.cause.sentence = failure.sentence.empty() ? describe(culprit.status) : failure.sentence;
  return remote;
}

void end_with_error(JobReport& report, const membership::End& end) {
  report.end = JobEnd::round_failed;
  report.error = {failing_code(end.exit_code), end.text};
}

void end_as_failed(JobReport& report, const membership::End& end) {
  if (!end.failure) return end_with_error(report, end);
  report.end = JobEnd::failed;
  Result<RemoteFailure> remote = decode_failure_detail(end.failure->detail);
  apply_remote_failure(report,
                       remote ? *std::move(remote) : failure_in_short(report, end, *end.failure));
}

void end_as_stopped(JobReport& report, const membership::End& end) {
  const bool here = end.host_name == report.host && end.node_rank == report.node_rank;
  report.end = JobEnd::stopped;
  report.stop_signal = std::clamp(end.signal, 1, SIGRTMAX);
  report.stopped_by =
      here ? std::string()
           : signal_name(report.stop_signal) + " on " + node_text(end.host_name, end.node_rank);
}

// Why the last attempt ended, where this node alone could not know it.
std::string attempt_end_text(const JobReport& report, const membership::End& end) {
  if (report.end != JobEnd::failed || !report.culprit) {
    return end.text.empty() ? outcome_name(report.end) : clean_line(end.text);
  }
  return fmt::format("rank {} on {} {}", report.failures[*report.culprit].rank,
                     clean_line(report.failures[*report.culprit].host),
                     clean_line(report.cause.sentence));
}

}  // namespace

void apply_remote_failure(JobReport& report, RemoteFailure remote) {
  const bool named = remote.nodes > 1 || remote.host != report.host;
  report.nnodes = remote.nodes;
  report.world_size = remote.world_size;
  report.restarts_used = remote.restarts_used;
  report.max_restarts = remote.max_restarts;
  report.others_untold = remote.others_untold;
  report.failures.clear();
  report.culprit.reset();
  report.cause = {};
  report.error = {};
  if (remote.error) {
    report.error = *std::move(remote.error);
    if (named) {
      report.error.message.insert(0, node_text(remote.host, remote.node_rank) + ": ");
    }
    if (report.end == JobEnd::failed) report.end = JobEnd::spawn_failed;
    return;
  }
  report.failures.push_back(std::move(remote.culprit));
  std::ranges::move(remote.others, std::back_inserter(report.failures));
  for (WorkerFailure& failure : report.failures)
    failure.node_rank = named ? remote.node_rank : -1;
  report.culprit = 0;
  report.cause = std::move(remote.cause);
}

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
  const bool is_open =
      !report.attempts.empty() && report.attempts.back().why_ended == outcome_name(own_end);
  if (is_open) report.attempts.back().why_ended = attempt_end_text(report, end);
  if (own_end == JobEnd::unkillable) report.end = JobEnd::unkillable;
  report.restarts_used = end.restarts;
  report.membership_changes = end.changes;
}

}  // namespace muster
