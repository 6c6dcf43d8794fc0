// How the ranks of a job come to share the secret by which they know each other (link_proof.h). The
// launcher's environment brings it, or the meeting file, if only this user can read that. Otherwise
// rank 0 offers one of its own with its record in the store: then whoever can read the store while
// the ranks meet knows it. Pure, but for randomness.
#pragma once

#include <string>
#include <vector>

#include "rendezvous/base/env_reader.h"
#include "worker_lib/failure.h"
#include "worker_lib/joining/identity.h"
#include "worker_lib/members.h"

namespace muster::worker {

std::string random_job_secret();

// Of MUSTER_WORKER_SECRET; empty: not set, or wrong, which `env` keeps.
std::string read_job_secret(EnvReader& env);

// What this rank says of the secret in its record. It tells nobody who does not know the secret.
std::string secret_word(const Identity& self);

// The job's secret. `words`: those of all ranks, by rank. Fails with environment if some ranks have
// one that others do not have; all ranks fail then, and name the same rank.
Outcome<std::string> agree_on_secret(const Identity& self, const Members& world,
                                     const std::vector<std::string>& words);

}  // namespace muster::worker
