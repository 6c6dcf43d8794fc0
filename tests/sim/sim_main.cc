// Runs the worker-group simulator by hand:
//   sim --seed=N [--count=M] [--bug=NAME] [--trace]
// One seed prints its transcript; several print the first that breaks a promise, and a summary.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "tests/sim/planted_bugs.h"
#include "tests/sim/worker_group_sim.h"

namespace {

using muster::PlantedBug;

const std::map<std::string_view, PlantedBug> kBugs = {
    {"none", PlantedBug::none},
    {"double_start", PlantedBug::double_start},
    {"lost_exit", PlantedBug::lost_exit},
    {"grace_never_ends", PlantedBug::grace_never_ends},
    {"budget_off_by_one", PlantedBug::budget_off_by_one},
    {"restart_before_reaped", PlantedBug::restart_before_reaped},
};

struct Arguments {
  uint64_t seed = 1;
  uint64_t count = 1;
  bool trace = false;
};

int usage() {
  fmt::print(stderr, "usage: sim --seed=N [--count=M] [--bug=NAME] [--trace]\nbugs:");
  for (const auto& [name, bug] : kBugs)
    fmt::print(stderr, " {}", name);
  fmt::print(stderr, "\n");
  return 2;
}

bool take(std::string_view argument, Arguments& arguments) {
  const auto value_of = [&](std::string_view flag) -> const char* {
    return argument.starts_with(flag) ? argument.data() + flag.size() : nullptr;
  };
  if (const char* seed = value_of("--seed=")) {
    arguments.seed = std::strtoull(seed, nullptr, 10);
  } else if (const char* count = value_of("--count=")) {
    arguments.count = std::strtoull(count, nullptr, 10);
  } else if (const char* bug = value_of("--bug=")) {
    if (!kBugs.contains(bug)) return false;
    muster::planted_bug_switch() = kBugs.at(bug);
  } else if (argument == "--trace") {
    arguments.trace = true;
  } else {
    return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    if (!take(argv[i], arguments)) return usage();
  }
  std::map<std::string, uint64_t> outcomes;
  uint64_t steps = 0;
  for (uint64_t seed = arguments.seed; seed < arguments.seed + arguments.count; ++seed) {
    const muster::sim::Plan plan = muster::sim::plan_for(seed);
    const muster::sim::Report report = muster::sim::simulate(plan);
    steps += static_cast<uint64_t>(report.steps);
    if (report.violation || arguments.trace || arguments.count == 1) {
      fmt::print("{}", muster::sim::describe_failure(plan, report));
    }
    if (report.violation) return 1;
    const std::string text = muster::group::to_text(*report.outcome);
    ++outcomes[text.substr(0, text.find(','))];
  }
  fmt::print("{} schedules from seed {}, {} events, no promise broken\n", arguments.count,
             arguments.seed, steps);
  for (const auto& [kind, count] : outcomes)
    fmt::print("  {:>6} {}\n", count, kind);
  return 0;
}
