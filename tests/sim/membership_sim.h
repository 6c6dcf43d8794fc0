// Runs one simulated job from one seed: first a safety phase with arbitrary faults, in which the
// promises are checked after every step; then everything is mended, nothing fails any more, and
// within Plan::bound() of virtual time all that is alive must run one common epoch, or know one
// common end. Those who run are then let end well, and the job must succeed everywhere.
//
// The bound, after the last fault: one join time-out (of an agent that has lost contact for good,
// or of a host that has just begun to wait for nodes that never come), the last call, six leases
// (for what broke without notice, and whatever that makes the others find out), and 5 s for workers
// that are slow to stop.
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
  bool succeeded = false;          // A common epoch was reached, and its success told to all.
  Duration converged_after{};      // Since faults ceased.
  std::vector<std::string> trace;  // Where it was asked for.
  uint64_t steps = 0;
};

Outcome simulate(const Plan& plan, bool tracing = false);

// The plan, the transcript and the violation, to be read by a person and replayed by the seed.
std::string describe_failure(const Plan& plan);

// The first of `count` seeds from `first` whose run breaks a promise.
std::optional<uint64_t> first_failing_seed(uint64_t first, uint64_t count);

struct ScaleFigures {
  Duration formed_after{};     // Virtual, from the start of all to the last one's round.
  double cpu_seconds = 0;      // Of this process, for all of it.
  double bytes_per_agent = 0;  // Both directions, from the start to the end of forming.
  uint64_t steps = 0;
  std::optional<std::string> violation;
};
// REQUIRES: nodes >= 2.
ScaleFigures form_at_scale(int nodes);

}  // namespace muster::roundsim
