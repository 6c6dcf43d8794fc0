// Shared by the simulators: describes a run and searches seeds for a failing one. A simulator has a
// Plan, to_text(plan), simulate(plan, tracing), and plan_for(seed), which is passed in.
#pragma once

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

}  // namespace muster
