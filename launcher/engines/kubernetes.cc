// Pods of jobs that say how many pods there are, or which one this is. PET_* variables, which
// Kubeflow's trainer and operator write, are read as flags and not here.
#include <fmt/format.h>

#include "launcher/engines/families.h"
#include "rendezvous/base/contract.h"
#include "rendezvous/base/text.h"
#include "rendezvous/membership/agent_protocol.h"

namespace muster {
namespace {

// The service under which the pods have names, from the pod's own line in /etc/hosts: "10.1.2.3
// train-0.service.namespace.svc.cluster.local train-0". Empty if there is none.
std::string service_of(std::string_view hosts, std::string_view pod) {
  const std::string beginning = fmt::format("{}.", pod);
  for (const std::string_view line : split(hosts, '\n')) {
    for (std::string_view word : split(line.substr(0, line.find('#')), ' ')) {
      for (const std::string_view name : split(word, '\t')) {
        if (!name.starts_with(beginning)) continue;
        const std::string_view rest = name.substr(beginning.size());
        return std::string(rest.substr(0, rest.find('.')));
      }
    }
  }
  return {};
}

// Takes RANK and WORLD_SIZE, which count pods here; a worker's environment has LOCAL_RANK too.
std::optional<EngineFacts> find_pytorch_job(EnvReader& env) {
  if (!env.has("KUBERNETES_SERVICE_HOST") || env.has(env::kLocalRank) || !env.has(env::kRank) ||
      !env.has(env::kWorldSize) || env.text(env::kMasterAddr).value_or("").empty())
    return std::nullopt;
  const auto nodes = engine_number(env, env::kWorldSize, 1);
  const auto rank = engine_number(env, env::kRank, 0);
  if (!nodes || !rank) return std::nullopt;
  EngineFacts facts;
  facts.name = "the PyTorchJob";
  facts.nodes = *nodes;
  facts.node_rank = *rank;
  facts.host = *env.text(env::kMasterAddr);
  facts.port = env.number(env::kMasterPort, 1, 65535);
  facts.job_id = "pytorchjob";  // Its pods have a network of their own.
  env.demand_below(env::kRank, rank->value, env::kWorldSize, nodes->value);
  return facts;
}

// Renumbers the pod over all Jobs of a JobSet, whose pods are called JOBSET-REPLICATEDJOB-JOB-POD.
// The variables are those of examples/engines/jobset.yaml. False if they do not say how many pods
// each Job has.
bool number_over_jobs(EnvReader& env, EngineFacts& facts, std::string& base) {
  const auto job = engine_number(env, "JOBSET_JOB_INDEX", 0);
  const auto jobs = engine_number(env, "JOBSET_REPLICATEDJOB_REPLICAS", 1);
  if (!job || !jobs || jobs->value == 1) return true;
  const int nodes = whole_number<int>(env.text("PET_NNODES").value_or("")).value_or(0);
  if (nodes < 1 || nodes > membership::kNodesMax || nodes % jobs->value != 0) return false;
  env.demand_below(job->from, job->value, jobs->from, jobs->value);
  if (job->value >= jobs->value) return true;
  facts.node_rank.value += job->value * (nodes / jobs->value);
  facts.node_rank.from = "JOBSET_JOB_INDEX and JOB_COMPLETION_INDEX";
  const std::string suffix = fmt::format("-{}", job->value);
  if (base.ends_with(suffix)) base.replace(base.size() - suffix.size(), suffix.size(), "-0");
  return true;
}

// An Indexed Job says which pod this is; PET_NNODES or the flag says how many there are. The pods
// are called JOB-0, JOB-1 and so on, under the name of a service.
std::optional<EngineFacts> find_indexed_job(EnvReader& env, const TextOfFile& text_of) {
  const auto index = engine_number(env, "JOB_COMPLETION_INDEX", 0);
  if (!index) return std::nullopt;
  const std::string pod = env.text("HOSTNAME").value_or("");
  const std::string suffix = fmt::format("-{}", index->value);
  std::string base =
      pod.ends_with(suffix) ? pod.substr(0, pod.size() - suffix.size()) : std::string();
  const std::string job_set = env.text("JOBSET_NAME").value_or("");
  EngineFacts facts;
  facts.node_rank = *index;
  facts.nodes = {0, index->from};
  facts.engine.job = job_set.empty() ? base : job_set;
  facts.engine.starts = env.number("JOBSET_RESTART_ATTEMPT", 0).value_or(0);
  const bool numbered = number_over_jobs(env, facts, base);
  const std::string service =
      job_set.empty() || base.empty() ? service_of(text_of("/etc/hosts"), pod) : job_set;
  facts.name = job_set.empty()
                   ? fmt::format("the Indexed Job {}", base.empty() ? "of this pod" : base)
                   : fmt::format("the JobSet {}", job_set);
  if (env.text("PET_NNODES").value_or("") == "1") return facts;
  if (!numbered) {
    facts.unserved = fmt::format(
        "pods of {} Jobs are numbered by PET_NNODES, which has to be a multiple of that: set it to "
        "the number of all pods",
        env.text("JOBSET_REPLICATEDJOB_REPLICAS").value_or(""));
    return facts;
  }
  if (base.empty() || service.empty()) {
    facts.unserved =
        "the pods have no names by which they find each other: give the pod template a subdomain "
        "and the namespace a headless service of that name, or give --rdzv-endpoint";
    return facts;
  }
  facts.host = fmt::format("{}-0.{}", base, service);
  facts.job_id = fmt::format("{}.{}", base, facts.engine.starts);
  return facts;
}

}  // namespace

std::optional<EngineFacts> find_kubernetes(EnvReader& env, const TextOfFile& text_of) {
  std::optional<EngineFacts> facts = find_pytorch_job(env);
  if (!facts) facts = find_indexed_job(env, text_of);
  if (!facts && env.has("KUBERNETES_SERVICE_HOST")) facts.emplace().name = "the pod";
  if (facts) facts->kills_after_30_s = true;  // The default terminationGracePeriodSeconds.
  return facts;
}

}  // namespace muster
