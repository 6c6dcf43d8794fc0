// How a job with many nodes comes to one verdict: the node on which a worker failed packs what a
// verdict shows of it into the `detail` of a membership::Failure, the rendezvous hands that on
// unread with the End, and every agent, the culprit's own included, puts it into its JobReport. So
// all nodes print the same block and exit with the same code. The bytes come from the network:
// decoding checks every type and range, and what a program wrote is cleaned when it is rendered, as
// always. JSON, at most 64 KiB. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/report/job_report.h"
#include "rendezvous/base/error.h"
#include "rendezvous/membership/agent_protocol.h"

namespace muster {

inline constexpr size_t kFailureDetailBytesMax = 65536;

// What one node tells the others of the failure that ended, or restarts, the job.
struct RemoteFailure {
  std::string host;  // The node that tells.
  int node_rank = 0;
  int nodes = 1;
  int world_size = 1;
  int restarts_used = 0;
  int max_restarts = 0;

  // Either an error of the node itself (the program cannot be executed) ...
  std::optional<Error> error;
  // ... or workers that failed: the culprit, the others in order of observation.
  WorkerFailure culprit;
  Cause cause;
  std::vector<WorkerFailure> others;
  int others_untold = 0;
};

// Shortens what is long: stderr to the last 30 lines and 16 KiB, the error file to 16 KiB (its
// shape is kept), all of it further if it would not fit. Empty if the report tells of no failure.
std::string encode_failure_detail(const JobReport& report);

// Fails on anything that encode_failure_detail could not have written.
Result<RemoteFailure> decode_failure_detail(std::string_view detail);

// "exited with 1: ValueError: boom", in one clean line: Failure::sentence.
std::string failure_sentence(const JobReport& report);

// Replaces what the report knows of failures and its numbers of the world and of restarts. `end`
// stays as it is, except that a failed job ends as spawn_failed for an error of the node itself.
void apply_remote_failure(JobReport& report, RemoteFailure remote);

// All that an End says: how the job ended, by whose doing, and the counts of the job. An End whose
// detail is missing or cannot be read still names rank, node and reason. That processes of this
// node outlived SIGKILL stays the end of its report.
void apply_end(JobReport& report, const membership::End& end);

}  // namespace muster
