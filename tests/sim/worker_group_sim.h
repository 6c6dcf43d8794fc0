// A simulated world around the real worker-group machine: processes that exit, crash, ignore
// SIGTERM, hang, leave descendants or sleep uninterruptibly; rounds and starts that are slow or
// fail; signals, suspensions, changes of membership, late and doubled events, and clock jumps.
// Virtual time, one thread; a seed gives the same transcript on every machine. In a first phase
// with arbitrary faults the promises are checked after every step; then faults stop, and the job
// must end within a bounded time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agent/job/worker_group.h"
#include "rendezvous/base/prng.h"
#include "tests/sim/runs.h"

namespace muster::sim {

// Everything random that is not decided during the run, drawn from the seed.
struct Plan {
  uint64_t seed = 0;
  WorkerGroup::Options group;
  Duration horizon{};  // Time until faults stop.
  bool stop_at_horizon = false;
  bool some_hang = false;     // Some workers never end by themselves (implies stop_at_horizon).
  int leftovers_percent = 0;  // Share of workers that leave descendants running.
  int ignore_term_percent = 0;
  int failing_percent = 0;  // Share of workers that fail by themselves.
  int spawn_fails_percent = 0;
  int round_fails_percent = 0;
  int doubled_percent = 0;    // Share of events that are delivered twice.
  bool kernel_sleep = false;  // Some processes are slow to die even from SIGKILL.
  int faults = 0;             // Number of external faults.
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

}  // namespace muster::sim
