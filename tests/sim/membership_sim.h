// Runs one simulated job from one seed: first a safety phase with arbitrary faults, in which the
// promises are checked after every step; then faults stop and are repaired, and within
// Plan::bound() of virtual time all live nodes must run one common epoch or know one common end.
// The running workers then succeed, and so must the job on every node.
//
// The bound, after the last fault: one join time-out (of an agent that has lost contact for good,
// or of a host that has just begun to wait for nodes that never come), the last call, six leases
// (for connections that broke without notice, and what the other nodes then detect), and 5 s for
// workers that are slow to stop.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tests/sim/membership_plan.h"
#include "tests/sim/membership_promises.h"
#include "tests/sim/runs.h"

namespace muster::roundsim {

using Outcome = RunOf<MembershipPromises::Reached>;

Outcome simulate(const Plan& plan, bool tracing = false);

struct ScaleFigures {
  Duration formed_after{};     // Virtual time from the common start to the last agent's round.
  double cpu_seconds = 0;      // CPU time of the whole run.
  double bytes_per_agent = 0;  // In both directions, until the round has formed.
  uint64_t steps = 0;
  std::optional<std::string> violation;
};
// REQUIRES: nodes >= 2.
ScaleFigures form_at_scale(int nodes);

}  // namespace muster::roundsim
