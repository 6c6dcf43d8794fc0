#include "agent/report/job_report.h"

namespace muster {
namespace {

// If muster had to stop the culprit, or it exited with 0, its status does not say how the job
// failed; then the first worker that failed by itself does. With a culprit it is never 0.
int culprit_code(const JobReport& report) {
  if (!report.culprit) return static_cast<int>(ExitCode::internal);
  CHECK(*report.culprit < report.failures.size());
  const WorkerFailure& culprit = report.failures[*report.culprit];
  if (!culprit.status.success() && !culprit.stopped_by_muster) return culprit.status.code();
  for (const WorkerFailure& failure : report.failures) {
    if (!failure.status.success() && !failure.stopped_by_muster) return failure.status.code();
  }
  return 1;
}

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

int exit_code_of(const JobReport& report, ExitCodePolicy policy) {
  const int code = own_code(report);
  return policy == ExitCodePolicy::torchrun && code != 0 ? 1 : code;
}

}  // namespace muster
