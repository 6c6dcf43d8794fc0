// Pods on Kubernetes whose job says how many there are, or which of them this one is. The PET_*
// variables of the Kubeflow operator are read as flags before this code runs.
#include <fmt/format.h>

#include "launcher/engines/engine.h"
#include "rendezvous/base/contract.h"

namespace muster::detail {
namespace {

// PyTorchJob and similar: RANK and WORLD_SIZE count pods there. The environment of a worker, in
// contrast, also has LOCAL_RANK.
std::optional<EngineFacts> detect_pytorch_job(const Environment& environment) {
  const bool in_pod = environment.contains("KUBERNETES_SERVICE_HOST");
  const bool in_worker = environment.contains(std::string(env::kLocalRank));
  const auto size = engine_number(environment, std::string(env::kWorldSize));
  const auto rank = engine_number(environment, std::string(env::kRank));
  const std::string master = engine_text(environment, std::string(env::kMasterAddr));
  if (!in_pod || in_worker || !size || !rank || master.empty()) return std::nullopt;
  EngineFacts facts;
  facts.engine = "the PyTorchJob";
  facts.evidence = fmt::format("WORLD_SIZE={}", *size);
  facts.processes = facts.nodes = *size;
  facts.here = 1;
  facts.node_rank = "$RANK";
  facts.first_host = "$MASTER_ADDR";  // May be "localhost" on the master itself.
  facts.port = engine_number(environment, std::string(env::kMasterPort)).value_or(0);
  return facts;
}

// An Indexed Job says which pod this is but not how many there are. The pods are called JOB-0,
// JOB-1 and so on, under a service whose name is in no variable.
std::optional<EngineFacts> detect_indexed_job(const Environment& environment) {
  const auto index = engine_number(environment, "JOB_COMPLETION_INDEX");
  if (!index) return std::nullopt;
  EngineFacts facts;
  facts.engine = "the Indexed Job";
  facts.evidence = fmt::format("JOB_COMPLETION_INDEX={}", *index);
  facts.processes = *index + 1;
  facts.at_least = true;
  facts.here = 1;
  facts.node_rank = "$JOB_COMPLETION_INDEX";
  const std::string pod = engine_text(environment, "HOSTNAME");
  const std::string suffix = fmt::format("-{}", *index);
  if (pod.size() > suffix.size() && pod.ends_with(suffix)) {
    facts.first_host = fmt::format("{}-0.SERVICE", pod.substr(0, pod.size() - suffix.size()));
  }
  return facts;
}

}  // namespace

std::optional<EngineFacts> detect_kubernetes(const Environment& environment) {
  const auto facts = detect_pytorch_job(environment);
  return facts ? facts : detect_indexed_job(environment);
}

}  // namespace muster::detail
