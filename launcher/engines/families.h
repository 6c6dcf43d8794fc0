// The families of engines, each in a file of its own; engine.h has the order and what they give. A
// variable that is no number where it has to be one becomes a complaint of `env`.
#pragma once

#include <optional>

#include "launcher/engines/engine.h"

namespace muster {

std::optional<EngineFacts> find_mpi(EnvReader& env);
std::optional<EngineFacts> find_slurm(EnvReader& env);
// What holds of all processes of a Slurm job, those of mpirun within it too.
void take_slurm_job(EnvReader& env, EngineFacts& facts);
std::optional<EngineFacts> find_kubernetes(EnvReader& env, const TextOfFile& text_of);

// The variable as a number of at least `min`, with its name; nullopt: it is not set, or wrong.
std::optional<EngineNumber> engine_number(EnvReader& env, std::string_view name, int min);

}  // namespace muster
