// The verdict of one attempt as reports show it. Each node reports what its workers left behind;
// the judge decides on the only node or at the job's host, and all nodes receive the result. Pure.
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
  Cause cause;  // Derived from this worker alone.

  friend bool operator==(const WorkerEvidence&, const WorkerEvidence&) = default;
};

struct NodeEvidence {
  std::string host;
  int node_rank = 0;
  std::optional<Error> error;             // The node's own: the program cannot be executed.
  std::vector<WorkerEvidence> workers;    // Every worker that was started.
  std::vector<DetectedCulprit> detected;  // All nodes'; only on the node with the hang detector.
  std::optional<std::string> store_full = {};  // A line about it, if this node's store was full.

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

// Bounded, because clock errors are added up.
inline constexpr Duration kClockErrorMax = std::chrono::hours{24 * 366};

// Derives the cause of a worker of which only the end is known; `sentence` says more, if not empty.
void summarize(WorkerEvidence& worker, std::string sentence = {});

JudgedAttempt judge_attempt(const std::vector<NodeEvidence>& nodes,
                            const std::vector<LostNode>& lost = {});

// Copies the failures into a report; the report's end stays.
void apply_judged(JobReport& report, const JudgedAttempt& judged);

}  // namespace muster
