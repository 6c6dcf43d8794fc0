#include "tests/sim/membership_sim.h"

#include <algorithm>
#include <csignal>
#include <ctime>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "tests/sim/membership_world.h"

namespace muster::roundsim {

using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

class Simulation final : public SimulationOf<Plan, World> {
 public:
  using SimulationOf::SimulationOf;

  Outcome run();

 private:
  void plan_starts();
  void plan_faults();
  void fault();
  void run_until(Instant when) override;
  bool has_common_epoch() override;
  bool is_over() const override;
  std::string state() const;

  int any_guest() {
    return 1 + static_cast<int>(world_.prng().below(static_cast<uint64_t>(plan_.nodes - 1)));
  }
};

void Simulation::plan_starts() {
  for (int node = 0; node < plan_.nodes; ++node) {
    const bool late = world_.prng().chance(static_cast<uint64_t>(plan_.late_percent), 100);
    world_.start_later(node, up_to(late ? plan_.horizon : milliseconds{200}));
  }
}

void Simulation::plan_faults() {
  for (int i = 0; i < plan_.faults; ++i)
    world_.fault_later(World::kStart + up_to(plan_.horizon));
}

void Simulation::fault() {
  // One draw per statement, so that a seed gives the same schedule with every compiler.
  switch (world_.prng().below(18)) {
    case 0:
    case 1:
      return world_.reset_connection(any_node());
    case 2:
      return world_.black_hole(any_node());
    case 3:
    case 4: {
      const int node = any_guest();
      const uint64_t way = world_.prng().below(3);
      world_.cut(node, way != 0, way != 1);
      return world_.mend_later(node, up_to(std::min(left(), 4 * plan_.lease)));
    }
    case 5:
    case 6:
    case 7: {
      const int node = any_guest();
      world_.crash(node, world_.prng().chance(1, 2));
      if (world_.prng().chance(2, 3)) world_.start_later(node, up_to(left()));
      return;
    }
    case 8:
    case 9:
      world_.crash(0, world_.prng().chance(1, 2));
      return world_.start_later(0, up_to(std::min(left(), 3 * plan_.lease)));
    case 10: {
      const int node = any_guest();
      return world_.freeze(node, up_to(left()));
    }
    case 11:
      return world_.freeze(0, up_to(left()));
    case 12: {
      if (world_.prng().chance(1, 2)) return;
      const int node = any_node();
      return world_.leave(node, world_.prng().chance(1, 2) ? SIGTERM : SIGINT);
    }
    case 13:
    case 14: {  // A flap, with or without a broken connection.
      const int node = any_guest();
      if (world_.prng().chance(1, 2)) world_.reset_connection(node);
      world_.cut(node, true, true);
      return world_.mend_later(node, up_to(std::min(left(), plan_.lease)));
    }
    case 15: {  // An outage of the host's own link.
      const Duration length = up_to(std::min(left(), 3 * plan_.lease));
      for (int node = 1; node < plan_.nodes; ++node) {
        world_.cut(node, true, true);
        world_.mend_later(node, length);
      }
      return;
    }
    default:
      return world_.fail_worker(any_node());
  }
}

void Simulation::run_until(Instant when) {
  while (!world_.broken() && world_.next() <= when) {
    world_.advance();
    if (world_.take_fault()) fault();
  }
}

// True if all live nodes run one epoch, except those for which it has no room. A node that
// succeeded and exited keeps its rank until the end, so another process that asks for it waits.
bool Simulation::has_common_epoch() {
  const std::set<int> done_and_gone = world_.promises().done_and_gone();
  membership::Epoch epoch = 0;
  int running = 0;
  int waiting = 0;
  for (int index = 0; index < world_.nodes(); ++index) {
    const World::Node& node = world_.node(index);
    if (!node.member) continue;
    if (node.workers_stopping || node.leaving || node.member->over()) return false;
    if (!node.workers_alive && !node.workers_done) {
      const bool is_taken = plan_.explicit_ranks && done_and_gone.contains(index);
      waiting += is_taken ? 0 : 1;
      continue;
    }
    if (running++ > 0 && node.round.epoch != epoch) return false;
    epoch = node.round.epoch;
  }
  running += static_cast<int>(done_and_gone.size());
  for (int index = 0; index < world_.nodes(); ++index) {
    const World::Node& node = world_.node(index);
    if (node.member && (node.workers_alive || node.workers_done) && node.round.nodes != running) {
      return false;
    }
  }
  const bool no_room = running == plan_.nodes_max || plan_.max_membership_changes;
  return running >= plan_.nodes_min && (waiting == 0 || no_room);
}

bool Simulation::is_over() const {
  for (int index = 0; index < world_.nodes(); ++index) {
    if (world_.node(index).member) return false;
  }
  return true;
}

std::string Simulation::state() const {
  std::string text = world_.host() != nullptr ? world_.host()->status(world_.now()) : "no host";
  for (int index = 0; index < world_.nodes(); ++index) {
    const World::Node& node = world_.node(index);
    if (node.member) text += fmt::format(" | {}: {}", index, node.member->status(world_.now()));
  }
  return text;
}

Outcome Simulation::run() {
  plan_starts();
  plan_faults();
  run_until(World::kStart + plan_.horizon);
  const Instant healed = World::kStart + plan_.horizon;
  Outcome outcome;
  if (!world_.broken()) {
    world_.heal();
    if (!settle(healed + plan_.bound())) {
      world_.break_promise("one common epoch, or one end, in time after all faults: " + state());
    }
    outcome.converged_after = world_.now() - healed;
  }
  if (!world_.broken() && !is_over()) {
    world_.finish_all();
    const Instant limit = world_.now() + plan_.lease + seconds{5};
    while (!world_.broken() && !is_over() && world_.now() < limit && world_.next() != kNever)
      run_until(world_.next());
    if (!is_over())
      world_.break_promise("when all workers have succeeded, the job ends: " + state());
    const auto& ends = world_.promises().reached().ends;
    outcome.succeeded = ends.contains(membership::EndWhy::success);
    if (!outcome.succeeded) world_.break_promise("when all workers have succeeded, so has the job");
  }
  outcome.violation = world_.broken();
  outcome.reached = world_.promises().reached();
  outcome.trace = std::move(world_.lines());
  outcome.steps = world_.steps();
  return outcome;
}

}  // namespace

Outcome simulate(const Plan& plan, bool tracing) {
  return Simulation(plan, tracing).run();
}

ScaleFigures form_at_scale(int nodes) {
  const std::clock_t begun = std::clock();
  World world(plan_for_scale(nodes), false);
  world.count_bytes();
  for (int node = 0; node < nodes; ++node)
    world.start_later(node, Duration::zero());
  ScaleFigures figures;
  int formed = 0;
  const Instant limit = World::kStart + seconds{60};
  while (formed < nodes && world.next() <= limit && !world.broken()) {
    world.advance();
    while (formed < nodes && world.node(formed).workers_alive)
      ++formed;
  }
  figures.violation = world.broken();
  if (formed < nodes && !figures.violation) figures.violation = "a round forms within a minute";
  figures.formed_after = world.now() - World::kStart;
  figures.bytes_per_agent = static_cast<double>(world.bytes_sent()) / nodes;
  figures.cpu_seconds = static_cast<double>(std::clock() - begun) / CLOCKS_PER_SEC;
  figures.steps = world.steps();
  return figures;
}

}  // namespace muster::roundsim
