// A worker's environment under torchrun's contract: the launcher's own, plus the variables below,
// minus the job's token. Pure: all inputs are passed in.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/membership/agent_protocol.h"

namespace muster {

// Sorted, so that the order of iteration is deterministic.
using Environment = std::map<std::string, std::string>;

inline std::optional<std::string> lookup(const Environment& environment, std::string_view name) {
  const auto it = environment.find(std::string(name));
  return it == environment.end() ? std::nullopt : std::optional(it->second);
}

// One attempt of the job as this node's workers see it: the nodes of the round may be those of an
// engine's tasks, and `restarts` counts this node's.
struct RoundView : membership::Round {
  int local_world_size = 1;
  std::string role = "default";
  bool agent_store = false;  // True if an agent serves MASTER_PORT (TORCHELASTIC_USE_AGENT_STORE).
  int max_restarts = 0;
  int start_count = 0;
  std::string run_id;
};

struct WorkerVariables {
  int local_rank = 0;                    // The worker's real index on this node.
  int shown_local_rank = 0;              // LOCAL_RANK: 0 if a worker sees only one device.
  std::string error_file;                // Empty: no log folder.
  std::optional<std::string> record_fd;  // ring::to_text(); nullopt: the worker has no ring.
  std::string python_hook;               // Folder to put before PYTHONPATH; empty: none.
  std::string nccl_plugin;               // The plugin's file; empty: none.
  bool record_kernels = false;           // True if that plugin is to record kernels.
  std::string signals_to_handle;
  std::optional<std::string> timer_file;
  std::optional<int> omp_num_threads;         // Applies only if the user set none.
  std::optional<std::string> gloo_interface;  // GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME: apply only
  std::optional<std::string> nccl_interface;  // if the user set none; nullopt: not needed.
  // Device variables from the placement, in order; nullopt unsets.
  std::vector<std::pair<std::string, std::optional<std::string>>> device_variables;
};

Environment worker_environment(const Environment& inherited, const RoundView& round,
                               const WorkerVariables& worker);

// "NAME=value" strings for execve, sorted by name.
std::vector<std::string> environment_strings(const Environment& environment);

}  // namespace muster
