// Runs one simulated job that meets by way of a keeper, from one seed: first a safety phase with
// arbitrary faults, in which the promises are checked after every step; then nothing fails any
// more, and within Plan::bound() of virtual time all live nodes must run one common epoch or be
// over. The running workers then end successfully, the job must succeed everywhere, and every
// process exit.
//
// The bound, after the last fault: one join time-out and the last call (as in membership_sim.h),
// six leases of the nodes', five of the keeper's (a host's that has just begun, the two that a
// stranger waits, and its own first ones), and 10 s for workers that are slow to stop, requests
// that arrive late and back-offs. Nodes that can meet do so without the join time-out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/sim/hosting_plan.h"
#include "tests/sim/hosting_promises.h"

namespace muster::hostsim {

struct Outcome {
  std::optional<std::string> violation;  // The first promise that was broken.
  HostingPromises::Reached reached;
  bool succeeded = false;          // A common epoch was reached, and all were told of its success.
  Duration converged_after{};      // Time since faults stopped.
  std::vector<std::string> trace;  // If requested.
  uint64_t steps = 0;
};

Outcome simulate(const Plan& plan, bool tracing = false);

// The plan, the transcript and the violation: readable, and reproducible from the seed.
std::string describe_failure(const Plan& plan);

// The first of `count` seeds from `first` on whose run breaks a promise.
std::optional<uint64_t> first_failing_seed(uint64_t first, uint64_t count);

}  // namespace muster::hostsim
