// The nodes of the simulated world: processes that start, crash and exit, their agents, and their
// fake workers.
#include <utility>

#include <fmt/format.h>

#include "tests/sim/hosting_world.h"
#include "tests/transcripts/member_transcript.h"

namespace muster::hostsim {

namespace {

// Time that a process waits for its keeper at the end.
constexpr Duration kRetirePatience = std::chrono::milliseconds{500};

}  // namespace

// ---- Processes.

membership::Join World::join_of(int index) const {
  membership::Join join;
  join.agent = node(index).agent;
  join.host_name = fmt::format("node{}", index);
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
  if (node.up || job_ended_) return;
  trace(fmt::format("node {} starts", index));
  node = Node{};
  node.up = node.machine_up = true;
  node.life = next_life_++;
  node.attempt = node.life << 32;  // Distinct from the attempts of every earlier process.
  node.agent = {static_cast<uint64_t>(index) + 1, node.life};
  Hosting::Options hosting;
  hosting.keeper_ends_leases = plan_.keeper_ends_leases;
  hosting.place = "the keeper";
  hosting.agent = node.agent;
  hosting.machine = fmt::format("machine{}", index);
  hosting.lease = plan_.keeper_lease;
  hosting.beat_every = plan_.beat_every;
  node.hosting = std::make_unique<Hosting>(hosting);
  Member::Options member;
  member.join = join_of(index);
  member.endpoint = "the keeper";
  member.lease = plan_.lease;
  member.seed = prng_.next();
  node.member = std::make_unique<Member>(member);
  step_agent(index, member::Begin{});
}

// With `notice` its kernel stays up and closes its connections.
void World::crash(int index, bool notice) {
  Node& node = at(index);
  if (!node.up) return;
  trace(fmt::format("node {} {}", index, notice ? "is killed" : "loses its power"));
  for (auto& [id, wire] : wires_) {
    if ((wire.host != index || wire.host_life != node.life) &&
        (wire.agent != index || wire.agent_life != node.life)) {
      continue;
    }
    if (!notice) {
      wire.black_hole = true;
    } else if (wire.host == index && wire.host_end) {
      close_from_host(wire);
    } else if (wire.agent == index && wire.agent_end) {
      close_from_agent(wire);
    }
  }
  const membership::AgentId agent = node.agent;
  node = Node{};
  node.life = next_life_++;  // Events meant for the old process are ignored.
  node.agent = agent;
  node.machine_up = notice;
}

// ---- Agents.

void World::step_agent(int index, const Member::Event& event) {
  Node& node = at(index);
  if (!node.member) return;
  ++steps_;
  const uint64_t life = node.life;
  if (tracing_) trace(fmt::format("{}: {}", index, member::to_text(event)));
  std::vector<Member::Effect> effects;
  node.member->step(clock_of(index, now_), event, effects);
  for (const Member::Effect& effect : effects) {
    if (tracing_) trace(fmt::format("  {}: {}", index, member::to_text(effect)));
    std::visit([this, index](const auto& e) { perform(index, e); }, effect);
    if (node.life != life || !node.member) return;
  }
  schedule_tick(index, node.member->next_deadline(), &Node::member_tick, &World::tick_agent);
  exit_if_over(index);
}

void World::tick_agent(int index) {
  const Node& node = at(index);
  if (!node.member) return;
  if (from_clock(index, node.member->next_deadline()) <= now_) {
    return step_agent(index, member::Tick{});
  }
  schedule_tick(index, node.member->next_deadline(), &Node::member_tick, &World::tick_agent);
}

void World::perform(int index, const member::Connect& effect) {
  Node& node = at(index);
  node.join = effect.join;
  node.wanting = true;
  ++node.attempt;
  step_hosting(index, hosting::Dropped{});
  step_hosting(index, hosting::Wanted{node.member->is_reaped()});
}

void World::perform(int index, const member::Disconnect&) {
  Node& node = at(index);
  node.wanting = false;
  ++node.attempt;
  Wire* const wire = find(std::exchange(node.wire, 0));
  if (wire != nullptr) close_from_agent(*wire);
}

void World::perform(int index, const member::Send& effect) {
  Wire* const wire = find(at(index).wire);
  if (wire == nullptr) return promises_.violate("an agent speaks only where it is connected");
  to_host(*wire, effect.message);
}

void World::perform(int index, const member::JobEnded& effect) {
  at(index).end = effect.end.why;
  job_ended_ = true;
  if (at(index).workers_alive) stop_workers(index);
}

void World::perform(int index, const member::GaveUp&) {
  if (at(index).workers_alive) stop_workers(index);
}

// A process stays as long as other nodes need its host.
void World::exit_if_over(int index) {
  Node& node = at(index);
  if (!node.up || node.workers_alive || (node.member && !node.member->over())) return;
  node.member.reset();
  if (!node.retired) {
    if (node.retiring) return;
    if (node.host && !node.host->nodes(clock_of(index, now_)).empty()) return;
    node.retiring = true;
    schedule(now_ + kRetirePatience, index, [this, index] {
      at(index).retired = true;
      exit_if_over(index);
    });
    return step_hosting(index, hosting::Retired{});
  }
  trace(fmt::format("node {} is over", index));
  end_host(index);
  node.up = node.wanting = false;
  node.life = next_life_++;
  node.hosting.reset();
}

// ---- Workers.

void World::perform(int index, const member::RoundFormed& effect) {
  Node& node = at(index);
  promises_.round_formed(index, find(node.wire)->instance, effect.round);
  node.round = effect.round;
  node.workers_alive = true;
  node.workers_stopping = node.workers_done = false;
  const uint64_t workers = node.workers_life = next_life_++;
  if (finishing_) {
    return schedule(now_, index, [this, index, workers] { workers_succeed(index, workers); });
  }
  if (healed_) return;
  // Both quick and slow deaths are common.
  const Duration life = prng_.chance(1, 3) ? up_to_ms(20) : up_to_ms(8000);
  if (percent(plan_.failing_percent)) {
    schedule(now_ + life, index, [this, index, workers] { workers_fail(index, workers); });
  } else if (percent(plan_.done_percent)) {
    schedule(now_ + life, index, [this, index, workers] { workers_succeed(index, workers); });
  }
}

void World::stop_workers(int index) {
  Node& node = at(index);
  if (node.workers_alive && node.workers_stopping) return;
  node.workers_stopping = true;
  node.workers_done = false;
  Duration takes = up_to_ms(5);
  if (node.workers_alive) takes = percent(plan_.slow_stop_percent) ? up_to_ms(2000) : up_to_ms(30);
  if (!node.workers_alive) node.workers_life = next_life_++;
  const uint64_t workers = node.workers_life;
  schedule(now_ + takes, index, [this, index, workers] { workers_gone(index, workers); });
}

void World::workers_gone(int index, uint64_t workers) {
  Node& node = at(index);
  if (node.workers_life != workers || !node.workers_stopping) return;
  node.workers_alive = node.workers_stopping = false;
  if (!node.member || node.member->over()) return exit_if_over(index);
  if (node.leaving) return step_agent(index, member::Leaving{node.signal, true});
  step_agent(index, member::ReadyForRound{});
}

void World::workers_succeed(int index, uint64_t workers) {
  Node& node = at(index);
  if (node.workers_life != workers || !node.workers_alive || node.workers_stopping) return;
  node.workers_alive = false;
  node.workers_done = true;
  done_.emplace(node.round.epoch, node.agent);
  step_agent(index, member::WorkersDone{node.round.epoch});
}

void World::finish_all() {
  trace("all workers end well");
  finishing_ = true;
  for (int index = 0; index < nodes(); ++index) {
    const uint64_t workers = node(index).workers_life;
    if (!node(index).workers_alive) continue;
    schedule(now_ + up_to_ms(50), index,
             [this, index, workers] { workers_succeed(index, workers); });
  }
}

void World::fail_worker(int index) {
  const uint64_t workers = node(index).workers_life;
  if (node(index).workers_alive) {
    schedule(now_, index, [this, index, workers] { workers_fail(index, workers); });
  }
}

// The agent stops the node's other workers by itself.
void World::workers_fail(int index, uint64_t workers) {
  Node& node = at(index);
  if (healed_ || node.workers_life != workers) return;
  if (!node.workers_alive || node.workers_stopping) return;
  stop_workers(index);
  membership::NodeFailure failure;
  failure.rank = node.round.base_rank;
  failure.sentence = "exited with 1";
  failure.at = clock_of(index, now_);
  step_agent(index, member::WorkerFailed{node.round.epoch, failure});
}

}  // namespace muster::hostsim
