#include "launcher/engines/engine.h"

#include <fmt/format.h>

#include "launcher/engines/families.h"
#include "rendezvous/base/contract.h"
#include "rendezvous/membership/agent_protocol.h"

namespace muster {

std::optional<EngineNumber> engine_number(EnvReader& env, std::string_view name, int min) {
  const std::optional<int> number = env.number(name, min, membership::kNodesMax);
  if (!number) return std::nullopt;
  return EngineNumber{*number, std::string(name)};
}

EngineOutcome find_engine(const Environment& environment, const TextOfFile& text_of,
                          std::string_view family) {
  if (family == "none") return std::nullopt;
  const EnvironmentLookup read = [&environment](std::string_view name) {
    return lookup(environment, name);
  };
  EnvReader env(read);
  if (env.has(env::kRunId)) return std::nullopt;
  const auto wanted = [family](std::string_view name) {
    return family == "auto" || family == name;
  };
  std::optional<EngineFacts> facts;
  if (wanted("mpi")) facts = find_mpi(env);
  if (!facts && wanted("slurm")) facts = find_slurm(env);
  if (!facts && wanted("kubernetes")) facts = find_kubernetes(env, text_of);
  if (env.complaint()) {
    return tl::unexpected(
        fmt::format("{}: what the engine says of this job cannot be used; unset it, or give "
                    "--engine none and the flags about nodes",
                    *env.complaint()));
  }
  if (!facts && family != "auto") {
    return tl::unexpected(
        fmt::format("--engine {}: its variables are not set here; give --engine auto", family));
  }
  return facts;
}

}  // namespace muster
