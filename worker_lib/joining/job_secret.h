// Makes the ranks of a job share the secret by which they authenticate each other (link_proof.h).
// It comes from the launcher's environment, or from the meeting file if only this user can read
// that. Otherwise rank 0 offers one with its record in the store, and anyone who can read the store
// during the meeting knows it. Pure, but for randomness.
#pragma once

#include <string>
#include <vector>

#include "rendezvous/base/env_reader.h"
#include "worker_lib/failure.h"
#include "worker_lib/joining/identity.h"
#include "worker_lib/members.h"

namespace muster::worker {

std::string random_job_secret();

// Reads MUSTER_WORKER_SECRET; empty: not set, or wrong, which `env` notes.
std::string read_job_secret(EnvReader& env);

// Returns this rank's statement on the secret for its record, which does not reveal a given one.
std::string secret_claim(const Identity& self);

// Returns the job's secret from all ranks' secret_claim()s, by rank. Fails with environment if only
// some ranks have one, or if one has another. All ranks fail, and name the same one.
Outcome<std::string> agree_on_secret(const Identity& self, const Members& world,
                                     const std::vector<std::string>& claims);

}  // namespace muster::worker
