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

#include "tests/sim/hosting_plan.h"
#include "tests/sim/hosting_promises.h"
#include "tests/sim/runs.h"

namespace muster::hostsim {

using Outcome = RunOf<HostingPromises::Reached>;

Outcome simulate(const Plan& plan, bool tracing = false);

}  // namespace muster::hostsim
