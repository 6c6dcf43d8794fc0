// Slurm. A task has the variables of its step, which count before the job's (SLURM_NNODES,
// SLURM_JOB_NODELIST): the job may have more nodes than the step. A batch script and salloc's shell
// have only the job's.
#include <algorithm>

#include <fmt/format.h>

#include "launcher/engines/families.h"
#include "launcher/engines/node_list.h"
#include "launcher/engines/slurm_step_command.h"
#include "rendezvous/base/contract.h"
#include "rendezvous/base/task_variables.h"
#include "rendezvous/base/text.h"

namespace muster {
namespace {

std::string job_id(const EnvReader& env) {
  return env.text("SLURM_JOB_ID").value_or(env.text("SLURM_JOBID").value_or(""));
}

std::optional<EngineNumber> first_number(EnvReader& env, std::initializer_list<const char*> names,
                                         int min) {
  for (const char* name : names) {
    if (env.has(name)) return engine_number(env, name, min);
  }
  return std::nullopt;
}

constexpr int kPartsMax = 128;  // MAX_HET_JOB_COMPS of slurm.h

std::string group_variable(std::string_view name, std::string_view kind, int group) {
  return fmt::format("{}_{}_GROUP_{}", name, kind, group);
}

// The host of the step's node 0. A heterogeneous step's nodes are numbered part by part, but its
// list is sorted by name.
std::string first_host(const EnvReader& env, int parts) {
  const std::string step = env.text("SLURM_STEP_NODELIST").value_or("");
  for (int group = 0; group < parts && parts > 1; ++group) {
    auto list = env.text(group_variable("SLURM_JOB_NODELIST", "HET", group));
    if (!list) list = env.text(group_variable("SLURM_JOB_NODELIST", "PACK", group));  // srun A : B
    if (!list) continue;
    const std::string host = first_host_of(*list);
    if (position_of_host(step, host)) return host;
  }
  return first_host_of(step.empty() ? env.text("SLURM_JOB_NODELIST").value_or("") : step);
}

// The number of tasks on this node, found by the node's position in the step's list.
std::optional<int> tasks_here(const EnvReader& env, int node, int parts) {
  const std::string name = env.text("SLURMD_NODENAME").value_or("");
  const std::string list = env.text("SLURM_STEP_NODELIST").value_or("");
  if (parts == 1) return slurm_local_size(env, node);
  return slurm_local_size(env, position_of_host(list, name).value_or(node));
}

int visible_devices(const EnvReader& env, std::string_view name) {
  const auto list = env.text(name);
  if (!list || list->empty()) return 0;
  return static_cast<int>(std::ranges::count(*list, ',')) + 1;
}

// The number of GPUs that Slurm gave this task: all of the job's on this node, or those that the
// task sees, if fewer (--gpus-per-task). A list of devices is Slurm's only if Slurm counts GPUs.
std::optional<EngineNumber> gpus_of(EnvReader& env) {
  const auto on_node = engine_number(env, "SLURM_GPUS_ON_NODE", 0);
  if (!on_node || on_node->value == 0) return std::nullopt;
  for (const std::string_view name :
       {env::kCudaVisibleDevices, std::string_view("ROCR_VISIBLE_DEVICES")}) {
    const int seen = visible_devices(env, name);
    if (seen > 0 && seen < on_node->value) return EngineNumber{seen, std::string(name)};
  }
  return on_node;
}

// Makes this task a rank, since there are several on a node.
void place_task(EnvReader& env, const EngineNumber& tasks, int parts, EngineFacts& facts) {
  const auto rank = engine_number(env, "SLURM_PROCID", 0);
  const auto local_rank = env.number("SLURM_LOCALID", 0);
  const auto here = tasks_here(env, facts.node_rank.value, parts);
  if (!rank || !local_rank || !here || *here < 1) {
    return env.complain(
        "SLURM_PROCID, SLURM_LOCALID and SLURM_STEP_TASKS_PER_NODE do not say which "
        "task this is");
  }
  facts.task = TaskPlace{.local_rank = *local_rank,
                         .local_size = *here,
                         .node = facts.node_rank.value,
                         .nodes = facts.nodes.value,
                         .own_gpu = false,
                         .cpus = env.number("SLURM_CPUS_PER_TASK", 1)};
  facts.task->own_gpu = facts.workers && facts.workers->value == 1 && *here > 1;
  facts.workers.reset();
  facts.nodes = tasks;
  facts.node_rank = *rank;
  if (env.has("SLURM_PTY_PORT")) {
    facts.unserved = fmt::format(
        "this shell of srun --pty is one of its {} tasks, and the others have ended: leave it and "
        "start muster by srun or in salloc, or give --nnodes 1 for a job on this node",
        tasks.value);
  }
  if (env.text("SLURM_DISTRIBUTION") == "arbitrary") {
    facts.unserved =
        "it does not say on which node task 0 is (--distribution=arbitrary): start one "
        "task on each node";
  }
  env.demand_below("SLURM_LOCALID", *local_rank, "the number of tasks on the node", *here);
}

EngineFacts task_facts(EnvReader& env, int parts, EngineFacts facts) {
  const auto nodes = first_number(env, {"SLURM_STEP_NUM_NODES", "SLURM_NNODES"}, 1);
  const auto node = engine_number(env, "SLURM_NODEID", 0);
  const auto tasks = first_number(env, {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}, 1);
  if (!nodes || !node || !tasks) {
    env.complain("SLURM_STEP_NUM_NODES, SLURM_NODEID and SLURM_STEP_NUM_TASKS are not all set");
    return facts;
  }
  facts.nodes = *nodes;
  facts.node_rank = *node;
  facts.workers = gpus_of(env);
  facts.host = first_host(env, parts);
  env.demand_below("SLURM_NODEID", node->value, nodes->from, nodes->value);
  if (tasks->value > nodes->value) place_task(env, *tasks, parts, facts);
  return facts;
}

}  // namespace

void take_slurm_job(EnvReader& env, EngineFacts& facts) {
  EngineSpec& engine = facts.engine;
  engine.name = "Slurm";
  engine.job = job_id(env);
  engine.starts = env.number("SLURM_RESTART_COUNT", 0).value_or(0);
  engine.signals_all = true;
  engine.time_left = {{kSlurmTimeLeftFlag, engine.job}, "squeue"};
  engine.requeue = {{kSlurmRequeueFlag, engine.job}, "scontrol"};
  engine.requeue_if_preempted = {{kSlurmRequeueFlag, engine.job, kIfPreempted}, "scontrol"};
  engine.requeue_by_hand = "scontrol requeue " + engine.job;
  const auto end = whole_number<uint32_t>(env.text("SLURM_JOB_END_TIME").value_or(""));
  if (end) engine.ends_at = *end;
  facts.kills_after_30_s = true;  // The default KillWait of slurm.conf.
}

std::optional<EngineFacts> find_slurm(EnvReader& env) {
  const std::string job = job_id(env);
  if (job.empty()) return std::nullopt;
  const int parts = env.number("SLURM_HET_SIZE", 1, kPartsMax).value_or(1);
  const std::string step =
      env.text("SLURM_STEP_ID").value_or(env.text("SLURM_STEPID").value_or(""));
  const bool task = !step.empty() && is_slurm_task(env);
  EngineFacts facts;
  facts.name = fmt::format("Slurm {}{}", job, task ? "." + step : "");
  facts.engine.one_console = task;
  take_slurm_job(env, facts);
  facts.job_id = fmt::format("slurm-{}.{}.{}", job, task ? step : "batch", facts.engine.starts);
  if (task) return task_facts(env, parts, std::move(facts));
  auto nodes = first_number(env, {"SLURM_JOB_NUM_NODES", "SLURM_NNODES"}, 1);
  if (!nodes) return std::nullopt;
  for (int group = 1; group < parts; ++group) {
    const auto more = engine_number(env, group_variable("SLURM_JOB_NUM_NODES", "HET", group), 1);
    nodes->value += more ? more->value : 0;
  }
  facts.workers = gpus_of(env);
  const bool on_one = env.has("SLURMD_NODENAME");
  if (nodes->value > 1 || parts > 1 || !on_one)
    facts.reserved = ReservedNodes{*nodes, parts, on_one};
  return facts;
}

}  // namespace muster
