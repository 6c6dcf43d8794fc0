#include "launcher/engines/engine.h"

#include "launcher/values/values.h"
#include "rendezvous/base/contract.h"

namespace muster {
namespace detail {

std::string engine_text(const Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() ? std::string() : found->second;
}

std::optional<int> engine_number(const Environment& environment, const std::string& name) {
  const Parsed<int> number = parse_int(engine_text(environment, name), 0);
  return number ? std::optional(*number) : std::nullopt;
}

}  // namespace detail

std::optional<EngineFacts> detect_engine(const Environment& environment) {
  if (environment.contains(std::string(env::kRunId))) return std::nullopt;
  for (const auto detect : {detail::detect_mpi, detail::detect_slurm,
                            detail::detect_process_manager, detail::detect_kubernetes}) {
    const std::optional<EngineFacts> facts = detect(environment);
    if (!facts) continue;
    const bool alone = facts->processes <= 1 && !facts->at_least && facts->nodes <= 1;
    return alone ? std::nullopt : facts;
  }
  return std::nullopt;
}

}  // namespace muster
