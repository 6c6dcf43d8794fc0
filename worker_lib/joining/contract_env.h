// Determines this process's place from its options and its environment: the contract's variables
// (torchrun's names, see rendezvous/base/contract.h), else those of Open MPI's mpirun, Slurm's srun
// or MPICH's mpiexec, in this order, else a world of one. An error names the variable, its value,
// and what contradicts it. Pure: the environment is a parameter.
#pragma once

#include "muster/init.h"
#include "rendezvous/base/env_reader.h"
#include "worker_lib/failure.h"
#include "worker_lib/joining/identity.h"

namespace muster::worker {

// Fails with invalid_argument if an option is wrong, and with environment if a variable is.
Outcome<Identity> find_identity(const InitOptions& options, const EnvironmentLookup& lookup);
// Overload for a group made by muster_group_join(). REQUIRES: valid options, with rank and world
// size.
Outcome<Identity> find_identity(const InitOptions& options, const MeetThroughStore& at,
                                const EnvironmentLookup& lookup);

}  // namespace muster::worker
