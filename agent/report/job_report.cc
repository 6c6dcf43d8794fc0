#include "agent/report/job_report.h"

#include <algorithm>

namespace muster {
namespace {

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

}  // namespace

std::optional<int> node_rank_of(const JobReport& report, const WorkerFailure& failure) {
  if (failure.node_rank >= 0) return failure.node_rank;
  return report.nnodes > 1 ? std::optional(report.node_rank) : std::nullopt;
}

// If muster had to stop the culprit, or it exited with 0, its status does not say how the job
// failed; then the first worker that failed by itself does. In a hang none did.
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

int exit_code_of(const JobReport& report, ExitCodePolicy policy) {
  const int code = own_code(report);
  return policy == ExitCodePolicy::torchrun && code != 0 ? 1 : code;
}

}  // namespace muster
