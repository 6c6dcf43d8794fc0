#include "tests/sim/hosting_sim.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include <fmt/format.h>

#include "tests/sim/hosting_world.h"

namespace muster::hostsim {

using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

class Simulation final : public SimulationOf<Plan, World> {
 public:
  using SimulationOf::SimulationOf;

  Outcome run();

 private:
  void plan_starts();
  void fault();
  void process_fault();
  void crash_for_a_while(int index);
  void keeper_fault();
  void cut_off(int index, Duration length);
  void run_until(Instant when) override;
  void finish(Outcome& outcome);
  bool has_common_epoch() override;
  bool is_over() const override;

  // Mostly the node that believes itself host.
  int any_host() {
    const int any = any_node();
    for (int index = 0; index < plan_.nodes; ++index) {
      if (world_.node(index).host && world_.prng().chance(2, 3)) return index;
    }
    return any;
  }
  Duration a_while() { return up_to(std::min(left(), 5 * plan_.keeper_lease)); }
};

void Simulation::plan_starts() {
  for (int node = 0; node < plan_.nodes; ++node) {
    const bool late = world_.prng().chance(static_cast<uint64_t>(plan_.late_percent), 100);
    world_.later(up_to(late ? plan_.horizon : milliseconds{200}),
                 [this, node] { world_.start(node); });
  }
  for (int i = 0; i < plan_.faults; ++i)
    world_.later(up_to(plan_.horizon), [this] { fault(); });
}

// One draw per statement, so that a seed gives the same schedule with every compiler.
void Simulation::fault() {
  switch (world_.prng().below(16)) {
    case 0:
      return world_.reset_connection(any_node());
    case 1:
      return world_.black_hole(any_node());
    case 2: {
      const int from = any_node();
      const int to = any_host();
      const Duration length = a_while();
      if (world_.prng().chance(1, 2)) world_.cut(from, to, length);
      return world_.cut(to, from, length);
    }
    case 3: {
      const int node = any_host();
      return cut_off(node, a_while());
    }
    case 4: {
      const int from = any_node();
      const int to = any_host();
      world_.refuse_falsely(from, to, a_while());
      return world_.reset_connection(from);
    }
    case 5:
    case 6:
    case 7:
      return keeper_fault();
    case 8:
    case 9:
    case 10:
    case 11:
    case 12:
      return process_fault();
    case 13: {
      if (world_.prng().chance(1, 2)) return;
      const int node = any_node();
      return world_.leave(node, world_.prng().chance(1, 2) ? SIGTERM : SIGINT);
    }
    default:
      return world_.fail_worker(any_node());
  }
}

void Simulation::process_fault() {
  const uint64_t what = world_.prng().below(10);
  const int node = what % 2 == 0 ? any_host() : any_node();
  if (what < 3) return world_.freeze(node, a_while());
  if (what < 9) return crash_for_a_while(node);
  const bool notice = world_.prng().chance(1, 2);
  for (int index = 0; index < plan_.nodes; ++index) {
    world_.crash(index, notice);
    const Duration after = up_to(std::min<Duration>(left(), seconds{8}));
    world_.later(after, [this, index] { world_.start(index); });
  }
}

void Simulation::keeper_fault() {
  const uint64_t whom = world_.prng().below(6);
  const int node = whom % 2 == 0 ? any_host() : any_node();
  const Duration length = a_while();
  whom < 2 ? world_.keeper_outage(length) : world_.cut_from_keeper(node, length);
}

void Simulation::crash_for_a_while(int index) {
  const bool notice = world_.prng().chance(1, 2);
  world_.crash(index, notice);
  const Duration after = up_to(std::min<Duration>(left(), seconds{8}));
  if (world_.prng().chance(2, 3)) world_.later(after, [this, index] { world_.start(index); });
}

// Cuts a node off from the other nodes and, mostly, from the keeper.
void Simulation::cut_off(int index, Duration length) {
  for (int other = 0; other < plan_.nodes; ++other) {
    world_.cut(index, other, length);
    world_.cut(other, index, length);
  }
  if (world_.prng().chance(2, 3)) world_.cut_from_keeper(index, length);
}

void Simulation::run_until(Instant when) {
  while (!world_.broken() && world_.next() <= when)
    world_.advance();
}

// True if all live nodes run one epoch, except those for which it has no room.
bool Simulation::has_common_epoch() {
  membership::Epoch epoch = 0;
  int running = 0;
  int waiting = 0;
  int size = 0;
  for (int index = 0; index < world_.nodes(); ++index) {
    const Node& node = world_.node(index);
    if (!node.member) continue;
    if (node.workers_stopping || node.leaving || node.member->over()) return false;
    if (!node.workers_alive && !node.workers_done) {
      ++waiting;
      continue;
    }
    if (running++ > 0 && node.round.epoch != epoch) return false;
    epoch = node.round.epoch;
    size = node.round.nodes;
  }
  running += world_.done_and_gone(epoch);
  const bool no_room = running == plan_.nodes_max || plan_.max_membership_changes;
  return running >= plan_.nodes_min && running == size && (waiting == 0 || no_room);
}

bool Simulation::is_over() const {
  for (int index = 0; index < world_.nodes(); ++index) {
    if (world_.node(index).up) return false;
  }
  return true;
}

void Simulation::finish(Outcome& outcome) {
  std::vector<int> running;
  for (int index = 0; index < world_.nodes(); ++index) {
    const Node& node = world_.node(index);
    if (node.member && (node.workers_alive || node.workers_done)) running.push_back(index);
  }
  world_.finish_all();
  // A keeper that has forgotten the job lets nodes outside its last round begin it anew.
  const Instant begun = world_.now();
  const auto limit = [this, begun] {
    const bool is_forgotten = world_.keeper().generation() > 0;
    return begun + plan_.lease + seconds{5} + (is_forgotten ? plan_.bound() : Duration{});
  };
  while (!world_.broken() && !is_over() && world_.next() <= limit())
    world_.advance();
  if (!is_over()) {
    world_.promises().violate("when all workers have succeeded, the job ends: " + world_.state());
  }
  outcome.succeeded = std::ranges::all_of(
      running, [this](int index) { return world_.node(index).end == membership::EndWhy::success; });
  if (!outcome.succeeded)
    world_.promises().violate("when all workers have succeeded, so has the job");
}

Outcome Simulation::run() {
  plan_starts();
  run_until(World::kStart + plan_.horizon);
  const Instant healed = World::kStart + plan_.horizon;
  Outcome outcome;
  if (!world_.broken()) {
    world_.heal();
    if (!settle(healed + plan_.bound()) && !world_.broken()) {
      world_.promises().violate("one common epoch, or one end, in time after all faults: " +
                                world_.state());
    }
    outcome.converged_after = world_.now() - healed;
    // Only a job that ends may wait for the join time-out.
    const Duration steady = 2 * plan_.lease + seconds{1};
    if (!is_over() && outcome.converged_after > plan_.bound() - plan_.join_timeout + steady) {
      world_.promises().violate("nodes that can meet do not wait for time-outs: " + world_.state());
    }
  }
  if (!world_.broken() && !is_over()) finish(outcome);
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

}  // namespace muster::hostsim
