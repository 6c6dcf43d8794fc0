#include "agent/report/job_report.h"

#include <algorithm>

#include "agent/report/cause.h"

namespace muster {
namespace {

constexpr std::string_view kHangCause = "hang";
constexpr std::string_view kLostCause = "lost";
constexpr std::string_view kRendezvousCause = "rendezvous";
constexpr std::string_view kStoppedCause = "stopped";

int own_code(const JobReport& report) {
  switch (report.end) {
    case JobEnd::success:
      return static_cast<int>(ExitCode::success);
    case JobEnd::failed:
      return culprit_code(report);
    case JobEnd::stopped:
      return 128 + report.stop_signal;
    case JobEnd::spawn_failed:
    case JobEnd::round_failed:
      return static_cast<int>(report.error.code);
    case JobEnd::unkillable:
      return static_cast<int>(ExitCode::unkillable);
  }
  CHECK(false);
}

// Returns the cause's name for --exit-code; empty if it has none.
std::string_view cause_of(const JobReport& report) {
  switch (report.end) {
    case JobEnd::success:
    case JobEnd::spawn_failed:
      return {};
    case JobEnd::failed:
      if (!report.culprit) return {};
      if (report.reason == Reason::hang) return kHangCause;
      if (report.reason == Reason::node_lost) return kLostCause;
      return failure_class_name(report.cause.kind);
    case JobEnd::stopped:
      return kStoppedCause;
    case JobEnd::round_failed:
      if (report.lost_node) return kLostCause;
      return report.error.code == ExitCode::rendezvous ? kRendezvousCause : std::string_view();
    case JobEnd::unkillable:
      return failure_class_name(FailureClass::stuck);
  }
  CHECK(false);
}

}  // namespace

std::vector<std::string_view> exit_causes() {
  std::vector<std::string_view> causes;
  for (int kind = 0; kind <= static_cast<int>(FailureClass::limit); ++kind)
    causes.emplace_back(failure_class_name(static_cast<FailureClass>(kind)));
  causes.insert(causes.end(), {kHangCause, kLostCause, kRendezvousCause, kStoppedCause});
  return causes;
}

std::optional<int> node_rank_of(const JobReport& report, const WorkerFailure& failure) {
  if (failure.node_rank >= 0) return failure.node_rank;
  return report.nnodes > 1 ? std::optional(report.node_rank) : std::nullopt;
}

// The status of a culprit that muster stopped, or that exited with 0, does not say how the job
// failed; that of the first worker that failed by itself does. In a hang none did.
int culprit_code(const AttemptFailures& attempt) {
  if (!attempt.culprit) return static_cast<int>(ExitCode::internal);
  if (attempt.reason == Reason::hang) return 1;
  const auto tells = [](const WorkerFailure& failure) {
    return !failure.status.success() && !failure.stopped_by_muster;
  };
  if (tells(attempt.the_culprit())) return attempt.the_culprit().status.code();
  const auto first = std::ranges::find_if(attempt.failures, tells);
  return first == attempt.failures.end() ? 1 : first->status.code();
}

AttemptCulprit attempt_culprit(const AttemptFailures& attempt) {
  const WorkerFailure& culprit = attempt.the_culprit();
  return {culprit.rank, culprit.status, attempt.cause.exception, attempt.cause.sentence,
          culprit.ran};
}

int exit_code_of(const JobReport& report, const ExitCodes& codes) {
  const auto given = codes.by_cause.find(cause_of(report));
  if (given != codes.by_cause.end()) return given->second;
  const int code = own_code(report);
  return codes.policy == ExitCodePolicy::torchrun && code != 0 ? 1 : code;
}

}  // namespace muster
