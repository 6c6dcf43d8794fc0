// The lines of `--event-log-handler console`: torch's elastic events, one JSON object per line on
// stderr, key for key and space for space as torchrun prints them, so that parsers of its logs keep
// working. One difference is intended: the timestamp is the real one, in milliseconds as torch
// documents it, whereas torchrun prints 0. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "agent/report/job_report.h"

namespace muster {

struct TorchEventContext {
  WallTime time;
  std::string run_id;
  std::string role = "default";
  std::string hostname;
  std::string rdzv_backend = "c10d";
  std::string entry_point;              // Basename of the executable: "python3".
  std::optional<int> group_rank;        // nullopt until the first rendezvous is over.
  std::optional<int> group_world_size;  // nullopt until then, too.
  int64_t total_run_time_s = 0;
  int agent_restarts = 0;
};

// state: RENDEZVOUS, ASSIGN_WORKER_RANKS (both with their duration), SUCCEEDED, FAILED (with
// raw_error). SUCCEEDED means that the agent did its work, even if workers failed.
std::string torch_agent_event(const TorchEventContext& context, const std::string& state,
                              std::optional<double> duration_ms = std::nullopt,
                              const std::optional<std::string>& raw_error = std::nullopt);

struct TorchWorker {
  int global_rank = 0;
  int local_rank = 0;
  int role_rank = 0;
  int role_world_size = 1;
  pid_t pid = 0;
};

// state: START, SUCCEEDED, TERMINATED, FAILED. `failure` is given for FAILED only.
std::string torch_worker_event(const TorchEventContext& context, const TorchWorker& worker,
                               const std::string& state, const WorkerFailure* failure = nullptr);

}  // namespace muster
