// Who this process is, from its options and its environment: the contract's variables (torchrun's
// names, see rendezvous/base/contract.h), else those of Open MPI's mpirun, else those of Slurm's
// srun, else nobody's: a world of one. Whatever is wrong is named: the variable, its value, and
// what contradicts it. Pure: the environment is handed in.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "muster/init.h"
#include "worker_lib/failure.h"
#include "worker_lib/joining/env_reader.h"
#include "worker_lib/joining/identity.h"

namespace muster::worker {

// Fails with invalid_argument where an option is wrong, and with environment where a variable is.
Outcome<Identity> find_identity(const InitOptions& options, const EnvironmentLookup& lookup);

}  // namespace muster::worker
