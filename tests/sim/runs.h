// Shared by the simulators: describes a run and searches seeds for a failing one. A simulator has a
// Plan, to_text(plan), simulate(plan, tracing), and plan_for(seed), which is passed in.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "rendezvous/base/time.h"

namespace muster {

// The outcome of a run of several nodes; `Reached` counts what happened in it.
template <typename Reached>
struct RunOf {
  std::optional<std::string> violation;  // The first promise that was broken.
  Reached reached;
  bool succeeded = false;          // True if all reached a common epoch and learned of its success.
  Duration converged_after{};      // Time since faults stopped.
  std::vector<std::string> trace;  // If requested.
  uint64_t steps = 0;
};

// The plan, the transcript and the violation: readable, and reproducible from the seed.
template <typename Plan, typename Run>
std::string describe_failure(const Plan& plan, const Run& run) {
  return fmt::format("{}\n{}\nbroken promise: {}\n", to_text(plan), fmt::join(run.trace, "\n"),
                     run.violation.value_or("none"));
}

template <typename Plan>
std::string describe_failure(const Plan& plan) {
  return describe_failure(plan, simulate(plan, true));
}

// Returns the first of `count` seeds, from `first` on, whose run breaks a promise.
template <typename PlanFor>
std::optional<uint64_t> first_failing_seed(PlanFor plan_for, uint64_t first, uint64_t count) {
  for (uint64_t seed = first; seed < first + count; ++seed) {
    if (simulate(plan_for(seed)).violation) return seed;
  }
  return std::nullopt;
}

// What the simulations of several nodes share; `World` has kStart, prng(), now() and broken().
template <typename Plan, typename World>
class SimulationOf {
 public:
  SimulationOf(const Plan& plan, bool tracing) : plan_(plan), world_(plan, tracing) {}

 protected:
  ~SimulationOf() = default;

  virtual void run_until(Instant when) = 0;
  virtual bool has_common_epoch() = 0;
  virtual bool is_over() const = 0;

  // Runs until all is over or a common epoch has lasted two leases and a second. False: past
  // `limit`.
  bool settle(Instant limit) {
    constexpr Duration kLook = std::chrono::milliseconds{100};
    const Duration steady = 2 * plan_.lease + std::chrono::seconds{1};
    Instant since = world_.now();
    for (Instant look = world_.now(); look <= limit + steady; look += kLook) {
      run_until(look);
      if (world_.broken()) return false;
      if (is_over()) return true;
      if (!has_common_epoch()) since = look;
      if (look - since >= steady) return true;
    }
    return false;
  }

  int any_node() {
    return static_cast<int>(world_.prng().below(static_cast<uint64_t>(plan_.nodes)));
  }
  Duration up_to(Duration most) {
    using std::chrono::milliseconds;
    return milliseconds{world_.prng().below(static_cast<uint64_t>(most / milliseconds{1}) + 1)};
  }
  Duration left() const {
    return std::max(Duration::zero(), World::kStart + plan_.horizon - world_.now());
  }

  const Plan plan_;
  World world_;
};

}  // namespace muster
