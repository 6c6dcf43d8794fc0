#include "agent/process/worker_environment.h"

#include <string_view>

#include "rendezvous/base/contract.h"
#include "rendezvous/base/hex.h"

namespace muster {
namespace {

// Replaces the user's own profiler by our plugin, which loads it. If the launcher is itself a
// worker of another muster, the inherited plugin is that muster's and not the user's.
void put_nccl_plugin(const WorkerVariables& worker, Environment& result) {
  const std::string own(env::kNcclProfiler);
  const std::string chain(env::kNcclProfilerChain);
  const auto inherited = result.find(own);
  if (inherited != result.end() && inherited->second.ends_with(env::kNcclPluginFile)) {
    auto users = result.extract(chain);
    result.erase(own);
    if (!users.empty()) result[own] = users.mapped();
  }
  result.erase(chain);
  result.erase(std::string(env::kRecordKernels));
  if (worker.nccl_plugin.empty()) return;
  if (auto users = result.extract(own); !users.empty()) result[chain] = users.mapped();
  result[own] = worker.nccl_plugin;
  if (worker.record_kernels) result[std::string(env::kRecordKernels)] = "1";
}

}  // namespace

Environment worker_environment(const Environment& inherited, const RoundView& round,
                               const WorkerVariables& worker) {
  Environment result = inherited;
  result.erase(std::string(env::kToken));
  const auto set = [&result](std::string_view name, std::string value) {
    result.insert_or_assign(std::string(name), std::move(value));
  };
  const auto set_number = [&set](std::string_view name, int value) {
    set(name, std::to_string(value));
  };

  set_number(env::kRank, round.base_rank + worker.local_rank);
  set_number(env::kLocalRank, worker.shown_local_rank);
  set_number(env::kGroupRank, round.node_rank);
  set_number(env::kGroupWorldSize, round.nodes);
  set_number(env::kLocalWorldSize, round.local_world_size);
  set_number(env::kWorldSize, round.world_size);
  set(env::kRoleName, round.role);
  set_number(env::kRoleRank, round.base_role_rank + worker.local_rank);
  set_number(env::kRoleWorldSize, round.role_world_size);
  set(env::kMasterAddr, round.master_addr);
  set_number(env::kMasterPort, round.master_port);
  set_number(env::kRestartCount, round.restarts);
  set_number(env::kMaxRestarts, round.max_restarts);
  set_number(env::kStartCount, round.start_count);
  set(env::kRunId, round.run_id);
  set(env::kWorkerSecret, to_hex(round.worker_secret));
  set(env::kUseAgentStore, round.agent_store ? "True" : "False");
  set(env::kErrorFile, worker.error_file);
  // An inherited one belongs to another muster, of which this launcher is a worker.
  result.erase(std::string(env::kRecordFd));
  if (worker.record_fd) set(env::kRecordFd, *worker.record_fd);
  put_nccl_plugin(worker, result);
  if (!worker.python_hook.empty()) {
    std::string& path = result[std::string(env::kPythonPath)];
    path = path.empty() ? worker.python_hook : worker.python_hook + ":" + path;
  }
  set(env::kSignalsToHandle, worker.signals_to_handle);
  // A value set by the user is kept; otherwise torch's default of "abort on error" needs the 1.
  result.try_emplace(std::string(env::kNcclAsyncErrorHandling), "1");
  if (worker.timer_file) set(env::kTimerFile, *worker.timer_file);
  if (worker.omp_num_threads) {
    result.try_emplace(std::string(env::kOmpNumThreads), std::to_string(*worker.omp_num_threads));
  }
  if (worker.gloo_interface)
    result.try_emplace(std::string(env::kGlooSocketIfname), *worker.gloo_interface);
  if (worker.nccl_interface)
    result.try_emplace(std::string(env::kNcclSocketIfname), *worker.nccl_interface);
  for (const auto& [name, value] : worker.device_variables) {
    if (value) {
      set(name, *value);
    } else {
      result.erase(name);
    }
  }
  return result;
}

std::vector<std::string> environment_strings(const Environment& environment) {
  std::vector<std::string> strings;
  strings.reserve(environment.size());
  for (const auto& [name, value] : environment)
    strings.push_back(name + "=" + value);
  return strings;
}

}  // namespace muster
