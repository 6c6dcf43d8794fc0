// A made-up world under the real worker-group machine: processes that exit, crash, ignore TERM,
// hang, leave descendants or sleep uninterruptibly; rounds and starts that are slow or fail;
// signals, suspensions, changes of membership, late and doubled events, and a clock that jumps.
// Virtual time, one thread, one seed: the same seed gives the same transcript on every machine.
//
// First a safety phase with arbitrary faults, in which what must never happen is checked after
// every step; then faults cease, and the job must end within a bounded time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agent/job/worker_group.h"
#include "rendezvous/base/prng.h"

namespace muster::sim {

// Everything random that is not decided on the way. Drawn from the seed.
struct Plan {
  uint64_t seed = 0;
  WorkerGroup::Options group;
  Duration horizon{};  // When faults cease.
  bool stop_at_horizon = false;
  bool some_hang = false;     // Workers that never end by themselves (then stop_at_horizon too).
  int leftovers_percent = 0;  // Of workers that leave descendants running.
  int ignore_term_percent = 0;
  int failing_percent = 0;  // Of workers that fail by themselves.
  int spawn_fails_percent = 0;
  int round_fails_percent = 0;
  int doubled_percent = 0;    // Of events that are said twice.
  bool kernel_sleep = false;  // Some processes are slow to die even of KILL.
  int faults = 0;             // How many things happen from outside.
};

Plan plan_for(uint64_t seed);
std::string to_text(const Plan& plan);

struct Report {
  std::optional<std::string> violation;  // The first promise that was broken.
  std::optional<group::JobOutcome> outcome;
  std::vector<std::string> trace;
  int steps = 0;
  int attempts = 0;
};

Report simulate(const Plan& plan);

// The plan, the transcript and the violation, to be read by a person and replayed by the seed.
std::string describe_failure(const Plan& plan, const Report& report);

// The first of `count` seeds from `first` whose run breaks a promise.
std::optional<uint64_t> first_failing_seed(uint64_t first, uint64_t count);

}  // namespace muster::sim
