// Runs the simulators by hand:
//   sim [--machine workers] --seed N [--count M] [--bug NAME] [--trace]
//   sim --machine membership --seed N [--count M] [--bug NAME] [--trace]
//   sim --machine membership --nodes N
//   sim --machine hosting --seed N [--count M] [--bug NAME] [--trace]
// One seed prints its transcript; several print the first that breaks a promise, or a summary.
// --nodes forms one round of that many agents and prints its cost.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "tests/sim/hosting_planted_bugs.h"
#include "tests/sim/hosting_sim.h"
#include "tests/sim/membership_planted_bugs.h"
#include "tests/sim/membership_sim.h"
#include "tests/sim/planted_bugs.h"
#include "tests/sim/worker_group_sim.h"
#include "tests/transcripts/worker_group_transcript.h"

namespace {

enum class Machine { workers, membership, hosting };

struct Arguments {
  Machine machine = Machine::workers;
  uint64_t seed = 1;
  uint64_t count = 1;
  int nodes = 0;
  std::string bug = "none";
  bool trace = false;
};

template <typename Bug, size_t N>
void print_bugs(const char* machine, const std::pair<const char*, Bug> (&bugs)[N]) {
  fmt::print(stderr, "bugs of {}:", machine);
  for (const auto& [name, bug] : bugs)
    fmt::print(stderr, " {}", name);
  fmt::print(stderr, "\n");
}

int usage() {
  fmt::print(
      stderr,
      "usage: sim [--machine workers|membership|hosting] [--seed N] [--count M] [--bug NAME] "
      "[--trace]\n       sim --machine membership --nodes N\n");
  print_bugs("workers", muster::kWorkerBugs);
  print_bugs("membership", muster::kMembershipBugs);
  print_bugs("hosting", muster::kHostingBugs);
  return 2;
}

bool take(std::string_view flag, const std::string& value, Arguments& arguments) {
  if (flag == "--machine") {
    if (value == "membership") arguments.machine = Machine::membership;
    if (value == "hosting") arguments.machine = Machine::hosting;
    return arguments.machine != Machine::workers || value == "workers";
  }
  if (flag == "--bug") {
    arguments.bug = value;
    return true;
  }
  const uint64_t number = std::strtoull(value.c_str(), nullptr, 10);
  if (flag == "--seed") {
    arguments.seed = number;
  } else if (flag == "--count") {
    arguments.count = number;
  } else if (flag == "--nodes") {
    arguments.nodes = static_cast<int>(number);
  } else {
    return false;
  }
  return true;
}

template <typename Bug, size_t N>
bool switch_on(const std::pair<const char*, Bug> (&bugs)[N], const std::string& wanted, Bug& bug) {
  for (const auto& [name, one] : bugs) {
    if (wanted == name) bug = one;
  }
  return bug != Bug::none || wanted == "none";
}

bool set_bug(const Arguments& arguments) {
  switch (arguments.machine) {
    case Machine::membership:
      return (arguments.nodes == 0 || arguments.nodes >= 2) &&
             switch_on(muster::kMembershipBugs, arguments.bug, muster::membership_bug_switch());
    case Machine::hosting:
      return arguments.nodes == 0 &&
             switch_on(muster::kHostingBugs, arguments.bug, muster::hosting_bug_switch());
    case Machine::workers:
      break;
  }
  return arguments.nodes == 0 &&
         switch_on(muster::kWorkerBugs, arguments.bug, muster::planted_bug_switch());
}

// Accepts --flag=value and --flag value.
std::optional<Arguments> parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--trace") {
      arguments.trace = true;
      continue;
    }
    const size_t equals = std::min(argument.find('='), argument.size());
    std::string value;
    if (equals < argument.size()) {
      value = argument.substr(equals + 1);
    } else if (i + 1 < argc) {
      value = argv[++i];
    }
    if (!take(argument.substr(0, equals), value, arguments)) return std::nullopt;
  }
  return set_bug(arguments) ? std::optional(arguments) : std::nullopt;
}

int summarise(const Arguments& arguments, uint64_t events,
              const std::map<std::string, uint64_t>& outcomes) {
  fmt::print("{} schedules from seed {}, {} events, no promise broken\n", arguments.count,
             arguments.seed, events);
  for (const auto& [kind, count] : outcomes)
    fmt::print("  {:>6} {}\n", count, kind);
  return 0;
}

int run_workers(const Arguments& arguments) {
  std::map<std::string, uint64_t> outcomes;
  uint64_t steps = 0;
  for (uint64_t seed = arguments.seed; seed < arguments.seed + arguments.count; ++seed) {
    const muster::sim::Plan plan = muster::sim::plan_for(seed);
    const muster::sim::Report report = muster::sim::simulate(plan);
    steps += static_cast<uint64_t>(report.steps);
    if (report.violation || arguments.trace || arguments.count == 1) {
      fmt::print("{}", muster::describe_failure(plan, report));
    }
    if (report.violation) return 1;
    const std::string text = muster::group::to_text(*report.outcome);
    ++outcomes[text.substr(0, text.find(','))];
  }
  return summarise(arguments, steps, outcomes);
}

// `count` adds to the outcomes what one run has reached.
template <typename PlanFor, typename Count>
int run_nodes(const Arguments& arguments, PlanFor plan_for, const Count& count) {
  std::map<std::string, uint64_t> outcomes;
  uint64_t steps = 0;
  for (uint64_t seed = arguments.seed; seed < arguments.seed + arguments.count; ++seed) {
    const auto plan = plan_for(seed);
    const auto outcome = simulate(plan);
    steps += outcome.steps;
    if (outcome.violation || arguments.trace || arguments.count == 1) {
      fmt::print("{}", muster::describe_failure(plan));
    }
    if (outcome.violation) return 1;
    ++outcomes[outcome.succeeded ? "reached one epoch, and its success" : "ended before"];
    count(outcome.reached, outcomes);
  }
  return summarise(arguments, steps, outcomes);
}

int run_membership(const Arguments& arguments) {
  return run_nodes(arguments, muster::roundsim::plan_for, [](const auto&, auto&) {});
}

int run_hosting(const Arguments& arguments) {
  const auto count = [](const muster::hostsim::HostingPromises::Reached& reached, auto& outcomes) {
    const auto add = [&outcomes](const char* what, int number) {
      outcomes[what] += static_cast<uint64_t>(number);
    };
    add("hosts that followed as members", reached.followed_as_member);
    add("hosts that followed as strangers", reached.followed_as_stranger);
    add("hosts that followed on their machine", reached.followed_on_machine);
    add("hosts that continued after their lease was over", reached.returned);
    add("hosts that stepped down", reached.stepped_down);
    add("nodes that learned of the end from the keeper", reached.told_by_keeper);
    add("rounds", reached.rounds);
  };
  return run_nodes(arguments, muster::hostsim::plan_for, count);
}

int run_at_scale(int nodes) {
  const muster::roundsim::ScaleFigures figures = muster::roundsim::form_at_scale(nodes);
  if (figures.violation) {
    fmt::print("broken promise: {}\n", *figures.violation);
    return 1;
  }
  fmt::print(
      "{} agents: one round after {:.3f} s of virtual time, {:.0f} bytes per agent, {} events, "
      "{:.3f} s of processor time for all of it\n",
      nodes, std::chrono::duration<double>(figures.formed_after).count(), figures.bytes_per_agent,
      figures.steps, figures.cpu_seconds);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::optional<Arguments> arguments = parse(argc, argv);
  if (!arguments) return usage();
  if (arguments->machine == Machine::workers) return run_workers(*arguments);
  if (arguments->machine == Machine::hosting) return run_hosting(*arguments);
  return arguments->nodes > 0 ? run_at_scale(arguments->nodes) : run_membership(*arguments);
}
