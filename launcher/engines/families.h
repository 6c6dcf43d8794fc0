// The families of engines, each in its own file; engine.cc calls them in order. A variable that
// should be a number and is not becomes a complaint of `env`.
#pragma once

#include <optional>

#include "launcher/engines/engine.h"

namespace muster {

std::optional<EngineFacts> find_mpi(EnvReader& env);
std::optional<EngineFacts> find_slurm(EnvReader& env);
// Adds the facts that hold for all processes of a Slurm job, including those that mpirun started.
void take_slurm_job(EnvReader& env, EngineFacts& facts);
std::optional<EngineFacts> find_kubernetes(EnvReader& env, const TextOfFile& text_of);

// The variable as a number of at least `min`; nullopt if it is not set or wrong.
std::optional<EngineNumber> engine_number(EnvReader& env, std::string_view name, int min);

}  // namespace muster
