// Runs one simulated job that meets through a keeper, from one seed: first a safety phase with
// arbitrary faults, in which the promises are checked after every step; then faults stop, and
// within Plan::bound() of virtual time all live nodes must run one common epoch or be over. The
// running workers then succeed, so must the job on every node, and every process must exit.
//
// The bound, after the last fault: one join time-out and the last call (as in membership_sim.h),
// six leases of the nodes, five of the keeper (that of a host that has just begun, the two that a
// non-member waits, and its own first ones), and 10 s for workers that are slow to stop, late
// requests and back-offs. Nodes that can meet do so without the join time-out.
#pragma once

#include "tests/sim/hosting_plan.h"
#include "tests/sim/hosting_promises.h"
#include "tests/sim/runs.h"

namespace muster::hostsim {

using Outcome = RunOf<HostingPromises::Reached>;

Outcome simulate(const Plan& plan, bool tracing = false);

}  // namespace muster::hostsim
