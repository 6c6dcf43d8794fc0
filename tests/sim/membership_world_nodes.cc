// The nodes of the simulated world: processes that start, crash and exit, their agents, and their
// fake workers.
#include <csignal>
#include <utility>

#include <fmt/format.h>

#include "tests/sim/membership_world.h"
#include "tests/transcripts/member_transcript.h"

namespace muster::roundsim {

using membership::Epoch;
using std::chrono::milliseconds;

// ---- Processes.

membership::Join World::join_of(int index) const {
  membership::Join join;
  const Node& node = nodes_[static_cast<size_t>(index)];
  join.agent = {static_cast<uint64_t>(index) + 1, node.life};
  join.host_name = fmt::format("node{}", index);
  if (plan_.explicit_ranks) join.node_rank = index;
  join.slots = 1 + index % plan_.slots_max;
  join.nodes_min = plan_.nodes_min;
  join.nodes_max = plan_.nodes_max;
  join.max_restarts = plan_.max_restarts;
  join.max_membership_changes = plan_.max_membership_changes;
  join.last_call = plan_.last_call;
  join.join_timeout = plan_.join_timeout;
  join.lease = plan_.lease;
  return join;
}

void World::start(int index) {
  Node& node = at(index);
  if (node.up || host_finished_) return;
  trace(fmt::format("node {} starts", index));
  node = Node{};
  node.up = true;
  node.life = next_life_++;
  if (index == 0) {
    host_machine_up_ = true;
    start_host();
  }
  Member::Options options;
  options.join = join_of(index);
  options.endpoint = "node0:29400";
  options.lease = plan_.lease;
  options.goodbye_patience = plan_.goodbye_patience;
  options.seed = prng_.next();
  node.member = std::make_unique<Member>(options);
  promises_.agent_started(index);
  step_agent(index, member::Begin{});
}

void World::crash(int index, bool notice) {
  Node& node = at(index);
  if (!node.up) return;
  trace(fmt::format("node {} {}", index, notice ? "is killed" : "loses its power"));
  close_wires(index, notice);
  const uint64_t life = next_life_++;
  node = Node{};
  node.life = life;  // Events meant for the old process are ignored.
  if (index != 0) return;
  for (int other = 1; other < nodes(); ++other)
    close_wires(other, notice);
  host_.reset();
  host_machine_up_ = notice;
  promises_.host_died();
}

// The kernel of a dead process sends a reset with `notice`, otherwise nothing.
void World::close_wires(int index, bool notice) {
  for (const uint64_t id : at(index).wires) {
    Wire* wire = network_.find(id);
    if (wire == nullptr) continue;
    if (notice) {
      network_.reset(now_, *wire, deliveries_);
    } else {
      wire->black_hole = true;
    }
  }
}

void World::freeze(int index, Duration length) {
  trace(fmt::format("node {} stands still for {} ms", index, length / milliseconds{1}));
  at(index).frozen_until = std::max(at(index).frozen_until, now_ + length);
  if (index == 0) promises_.host_frozen(at(0).frozen_until);
}

void World::cut(int index, bool up, bool down) {
  trace(fmt::format("node {} is cut off:{}{}", index, up ? " to the host" : "",
                    down ? " from the host" : ""));
  network_.cut(index, up, down);
}

void World::mend(int index) {
  trace(fmt::format("node {} is no longer cut off", index));
  network_.mend(now_, index, at(index).wires, deliveries_);
  dispatch();
}

void World::reset_connection(int index) {
  Wire* wire = network_.find(at(index).wire);
  if (wire == nullptr) return;
  trace(fmt::format("the connection of node {} is reset", index));
  network_.reset(now_, *wire, deliveries_);
  dispatch();
}

void World::black_hole(int index) {
  Wire* wire = network_.find(at(index).wire);
  if (wire == nullptr) return;
  trace(fmt::format("the connection of node {} swallows everything", index));
  wire->black_hole = true;
}

void World::leave(int index, int signal) {
  Node& node = at(index);
  if (!node.member || node.leaving || now_ < node.frozen_until) return;
  trace(fmt::format("node {} is told to leave", index));
  node.leaving = true;
  node.signal = signal;
  step_agent(index, member::Leaving{signal, false});
  dispatch();
}

void World::heal() {
  trace("faults cease");
  healed_ = true;
  healed_at_ = now_;
  network_.become_reliable();
  // A black hole stays one: the leases must detect it.
  for (int index = 0; index < nodes(); ++index)
    mend(index);
  if (host_ == nullptr) start_later(0, milliseconds{10});
}

void World::finish_all() {
  trace("all workers end well");
  for (int index = 0; index < nodes(); ++index) {
    const Node& node = at(index);
    if (!node.workers_alive) continue;
    schedule(now_ + up_to_ms(50), What::workers_succeed, index, node.workers_life, node.life);
  }
}

// ---- Agents.

void World::step_agent(int index, const Member::Event& event) {
  ++steps_;
  Node& node = at(index);
  const uint64_t life = node.life;
  if (tracing_) trace(fmt::format("{}: {}", index, member::to_text(event)));
  promises_.agent_hears(now_, index, event);
  std::vector<Member::Effect> effects;
  effects.swap(agent_effects_);
  effects.clear();
  node.member->step(clock_of(index, now_), event, effects);
  for (const Member::Effect& effect : effects) {
    if (tracing_) trace(fmt::format("  {}: {}", index, member::to_text(effect)));
    promises_.agent_asks(now_, index, effect);
    std::visit([this, index](const auto& e) { perform(index, e); }, effect);
  }
  effects.swap(agent_effects_);
  if (node.life != life) return;
  promises_.agent_stepped(now_, index);
  schedule_agent_tick(index);
  exit_if_over(index);
}

void World::schedule_agent_tick(int index) {
  Node& node = at(index);
  const Instant deadline = deadline_of(index);
  if (deadline == kNever || deadline >= node.tick_at) return;
  node.tick_at = deadline;
  schedule(std::max(now_, deadline) + up_to_ms(2), What::agent_tick, index, 0, node.life);
}

// The agent's deadline in the world's clock.
Instant World::deadline_of(int index) const {
  const Instant deadline = node(index).member->next_deadline();
  return deadline == kNever ? kNever : deadline - clocks_ahead_[static_cast<size_t>(index)];
}

void World::tick_agent(const Happening& h) {
  Node& node = at(h.node);
  if (!node.member || node.life != h.life) return;
  node.tick_at = kNever;
  const Instant deadline = deadline_of(h.node);
  if (deadline > now_) {
    std::vector<Member::Effect> effects;
    node.member->step(clock_of(h.node, now_), member::Tick{}, effects);
    if (!effects.empty() || deadline_of(h.node) != deadline) {
      break_promise("a Tick before the agent's deadline does nothing");
    }
    return schedule_agent_tick(h.node);
  }
  step_agent(h.node, member::Tick{});
}

void World::perform(int index, const member::JobEnded& effect) {
  at(index).end = effect.end;
  if (at(index).workers_alive) stop_workers(index);
}

void World::perform(int index, const member::GaveUp& effect) {
  at(index).gave_up = effect.error;
  if (at(index).workers_alive) stop_workers(index);
}

// An agent that is over exits; the host's process stays as long as it is needed.
void World::exit_if_over(int index) {
  Node& node = at(index);
  if (!node.member || !node.member->over() || node.workers_alive) return;
  trace(fmt::format("node {} is over", index));
  node.member.reset();
  if (index != 0) node.up = false;
}

// ---- Workers.

void World::perform(int index, const member::RoundFormed& effect) {
  Node& node = at(index);
  node.round = effect.round;
  node.workers_alive = true;
  node.workers_stopping = node.workers_done = false;
  node.workers_life = next_life_++;
  if (healed_) return;
  // Both quick and slow deaths are common.
  const Duration life = prng_.chance(1, 3) ? up_to_ms(20) : up_to_ms(8000);
  if (percent(plan_.failing_percent)) {
    schedule(now_ + life, What::workers_fail, index, node.workers_life, node.life);
  } else if (percent(plan_.done_percent)) {
    schedule(now_ + life, What::workers_succeed, index, node.workers_life, node.life);
  }
}

void World::stop_workers(int index) {
  Node& node = at(index);
  if (node.workers_alive && node.workers_stopping) return;
  node.workers_stopping = true;
  node.workers_done = false;
  Duration takes = up_to_ms(5);
  if (node.workers_alive) takes = percent(plan_.slow_stop_percent) ? up_to_ms(2000) : up_to_ms(30);
  node.workers_life = node.workers_alive ? node.workers_life : next_life_++;
  schedule(now_ + takes, What::workers_gone, index, node.workers_life, node.life);
}

void World::workers_gone(const Happening& h) {
  Node& node = at(h.node);
  if (node.life != h.life || node.workers_life != h.id || !node.workers_stopping) return;
  const bool were_alive = std::exchange(node.workers_alive, false);
  const bool is_going = !node.member || node.member->over() || node.leaving;
  if (were_alive && !is_going && percent(50)) {  // More has to end before the next round.
    schedule(now_ + up_to_ms(100), What::workers_gone, h.node, node.workers_life, node.life);
    return step_agent(h.node, member::Testified{node.round.epoch});
  }
  node.workers_stopping = false;
  if (!node.member) return;
  if (node.member->over()) return exit_if_over(h.node);
  if (node.leaving) return step_agent(h.node, member::Leaving{node.signal, true});
  step_agent(h.node, member::ReadyForRound{});
}

void World::workers_succeed(const Happening& h) {
  Node& node = at(h.node);
  if (node.life != h.life || node.workers_life != h.id || !node.member) return;
  if (!node.workers_alive || node.workers_stopping) return;
  node.workers_alive = false;
  node.workers_done = true;
  step_agent(h.node, member::WorkersDone{node.round.epoch});
}

membership::NodeFailure World::failure_of(int index) const {
  const Node& node = nodes_[static_cast<size_t>(index)];
  membership::NodeFailure failure;
  failure.rank = node.round.base_rank;
  failure.exit_code = 1 + index % 100;
  failure.sentence = fmt::format("exited with {}", failure.exit_code);
  failure.at = clock_of(index, now_);
  return failure;
}

void World::fail_worker(int index) {
  const Node& node = at(index);
  if (node.workers_alive) {
    schedule(now_, What::workers_fail, index, node.workers_life, node.life);
  }
}

// The agent stops the node's other workers by itself and learns the details a little later.
void World::workers_fail(const Happening& h) {
  Node& node = at(h.node);
  if (node.life != h.life || node.workers_life != h.id || !node.member || healed_) return;
  if (!node.workers_alive || node.workers_stopping) return;
  const Epoch epoch = node.round.epoch;
  promises_.worker_failed(now_, h.node, epoch);
  stop_workers(h.node);
  schedule(now_ + up_to_ms(40), What::detail_known, h.node, epoch, node.life);
  step_agent(h.node, member::WorkerFailed{epoch, failure_of(h.node)});
}

}  // namespace muster::roundsim
