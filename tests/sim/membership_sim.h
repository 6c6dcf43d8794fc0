// Runs one simulated job from one seed: first a safety phase with arbitrary faults, in which the
// promises are checked after every step; then everything is repaired, nothing fails any more, and
// within Plan::bound() of virtual time all live nodes must run one common epoch or know one common
// end. The running workers then end successfully, and the job must succeed everywhere.
//
// The bound, after the last fault: one join time-out (of an agent that has lost contact for good,
// or of a host that has just begun to wait for nodes that never come), the last call, six leases
// (for connections that broke without notice, and whatever the other nodes then detect), and 5 s
// for workers that are slow to stop.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/sim/membership_plan.h"
#include "tests/sim/membership_promises.h"

namespace muster::roundsim {

struct Outcome {
  std::optional<std::string> violation;  // The first promise that was broken.
  MembershipPromises::Reached reached;
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

struct ScaleFigures {
  Duration formed_after{};     // Virtual, from the common start to the last agent's round.
  double cpu_seconds = 0;      // Of this process, for the whole run.
  double bytes_per_agent = 0;  // In both directions, from the start until the round has formed.
  uint64_t steps = 0;
  std::optional<std::string> violation;
};
// REQUIRES: nodes >= 2.
ScaleFigures form_at_scale(int nodes);

}  // namespace muster::roundsim
