// The verdict of one attempt in the words of a report. Each node reports what its workers left
// behind; where all reports are together (on the only node, or at the job's host), the judge
// decides, and all nodes receive this result. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agent/report/job_report.h"
#include "agent/report/judge.h"
#include "rendezvous/base/error.h"

namespace muster {

struct WorkerEvidence {
  WorkerSigns signs;
  WorkerFailure failure;
  Cause cause;  // As far as this worker alone can tell.

  friend bool operator==(const WorkerEvidence&, const WorkerEvidence&) = default;
};

struct NodeEvidence {
  std::string host;
  int node_rank = 0;
  std::optional<Error> error;             // Of the node itself: the program cannot be executed.
  std::vector<WorkerEvidence> workers;    // Every worker that was started.
  std::vector<DetectedCulprit> detected;  // Of all nodes, on the one that runs the hang detector.
  std::optional<std::string> store_full = {};  // On the store's node, if it was: a line about it.

  friend bool operator==(const NodeEvidence&, const NodeEvidence&) = default;
};

struct JudgedAttempt : AttemptFailures {
  int attempt = 0;
  // An error of a node itself takes precedence over every failure of a worker.
  std::optional<Error> error;
  std::string error_host;
  int error_node_rank = 0;
  std::optional<int> lost_node;  // The node rank of the lost node, if its loss is the cause.

  friend bool operator==(const JudgedAttempt&, const JudgedAttempt&) = default;
};

JudgedAttempt judge_attempt(const std::vector<NodeEvidence>& nodes,
                            const std::vector<LostNode>& lost = {});

// Copies it into a report. Does not change the report's end.
void apply_judged(JobReport& report, const JudgedAttempt& judged);

}  // namespace muster
