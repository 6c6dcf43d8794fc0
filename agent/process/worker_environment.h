// The environment of a worker, variable by variable: torchrun's contract (the worker's environment
// is the launcher's own with these on top, less the job's token). Pure: what it needs is handed in.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace muster {

// Sorted, so that whoever walks it does so in the same order everywhere.
using Environment = std::map<std::string, std::string>;

// One attempt of the job as this node sees it. On one node group_rank is 0 and the sums are
// trivial; with many nodes the rendezvous fills them.
struct RoundView {
  int group_rank = 0;
  int group_world_size = 1;
  int local_world_size = 1;
  int base_rank = 0;  // Global rank of local rank 0.
  int world_size = 1;
  int base_role_rank = 0;
  int role_world_size = 1;
  std::string role = "default";
  std::string master_addr;
  int master_port = 0;
  bool agent_store =
      false;  // Whether MASTER_PORT is served by an agent (TORCHELASTIC_USE_AGENT_STORE).
  int restart_count = 0;
  int max_restarts = 0;
  std::string run_id;
};

struct WorkerVariables {
  int local_rank = 0;        // The worker's real index on this node.
  int shown_local_rank = 0;  // LOCAL_RANK: 0 where a worker sees one device only.
  std::string error_file;    // Empty: no log folder.
  std::string failure_file;  // Likewise.
  std::string signals_to_handle;
  std::optional<std::string> timer_file;
  std::optional<int> omp_num_threads;         // Only where the user set none.
  std::optional<std::string> gloo_interface;  // GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME: where the
  std::optional<std::string> nccl_interface;  // user set none and several reach somebody.
  // Device variables from the placement, in order; nullopt unsets.
  std::vector<std::pair<std::string, std::optional<std::string>>> device_variables;
};

Environment worker_environment(const Environment& inherited, const RoundView& round,
                               const WorkerVariables& worker);

// "NAME=value" strings for execve, sorted by name.
std::vector<std::string> environment_strings(const Environment& environment);

}  // namespace muster
