#include "tests/sim/hosting_world.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace muster::hostsim {

using std::chrono::microseconds;
using std::chrono::milliseconds;

World::World(const Plan& plan, bool tracing)
    : plan_(plan),
      prng_(plan.seed ^ 0x0ddba11u),
      keeper_(plan_, prng_, kStart),
      nodes_(static_cast<size_t>(plan.nodes)),
      promises_(plan_, *this),
      ways_(static_cast<size_t>(plan.nodes * plan.nodes)),
      keeper_cuts_(static_cast<size_t>(plan.nodes)),
      tracing_(tracing) {
  Prng clocks(plan.seed ^ 0xc10c45u);
  for (int node = 0; node < plan.nodes; ++node)
    clocks_ahead_.push_back(milliseconds{clocks.below(2'000'000'000)} -
                            milliseconds{1'000'000'000});
}

void World::trace(std::string line) {
  if (!tracing_) return;
  const double elapsed = std::chrono::duration<double>(now_ - kStart).count();
  lines_.push_back(fmt::format("{:10.4f} {}", elapsed, line));
}

Duration World::latency() {
  if (percent(plan_.slow_percent)) return milliseconds{prng_.below(200)};
  return microseconds{50 + prng_.below(2000)};
}

Duration World::latency(int from, int to) {
  return from == to ? microseconds{50} : latency();
}

// ---- The agenda.

void World::push(Happening happening) {
  agenda_.push_back(std::move(happening));
  std::push_heap(agenda_.begin(), agenda_.end());
}

void World::schedule(Instant when, int index, std::function<void()> act, int from, bool is_tick) {
  const uint64_t life = index < 0 ? 0 : at(index).life;
  push({when, next_order_++, index, from, life, is_tick, std::move(act)});
}

bool World::advance() {
  if (agenda_.empty()) return false;
  std::pop_heap(agenda_.begin(), agenda_.end());
  Happening happening = std::move(agenda_.back());
  agenda_.pop_back();
  now_ = std::max(now_, happening.when);
  if (happening.node >= 0 && at(happening.node).life != happening.life) return true;
  if (!postponed(happening)) happening.act();
  return true;
}

// After a cut TCP retransmits what was held back. A frozen process handles everything later, in
// order of arrival; its timers and its sockets in either order.
bool World::postponed(Happening& happening) {
  if (happening.node < 0) return false;
  Instant until = at(happening.node).frozen_until;
  const bool is_frozen = until > now_;
  if (happening.from >= 0) until = std::max(until, way(happening.from, happening.node).cut);
  if (until <= now_) return false;
  happening.when = until;
  if (is_frozen && happening.is_tick && prng_.chance(1, 2)) happening.order = next_order_++;
  push(std::move(happening));
  return true;
}

void World::schedule_tick(int index, Instant deadline, TickAt tick_at, Handler tick) {
  const Instant due = from_clock(index, deadline);
  if (due == kNever || due >= at(index).*tick_at) return;
  at(index).*tick_at = due;
  const auto act = [this, index, due, tick_at, tick] {
    if (at(index).*tick_at != due) return;  // An earlier tick replaced it.
    at(index).*tick_at = kNever;
    (this->*tick)(index);
  };
  schedule(std::max(now_, due) + up_to_ms(2), index, act, -1, true);
}

// ---- Faults.

void World::freeze(int index, Duration length) {
  trace(fmt::format("node {} stands still for {} ms", index, length / milliseconds{1}));
  at(index).frozen_until = std::max(at(index).frozen_until, now_ + length);
  at(index).disturbed_until = std::max(at(index).disturbed_until, at(index).frozen_until);
}

void World::cut(int from, int to, Duration length) {
  if (from == to) return;
  trace(fmt::format("no way from {} to {} for {} ms", from, to, length / milliseconds{1}));
  way(from, to).cut = std::max(way(from, to).cut, now_ + length);
}

void World::refuse_falsely(int from, int to, Duration length) {
  if (from == to) return;
  trace(fmt::format("{} is refused at {} for {} ms", from, to, length / milliseconds{1}));
  way(from, to).refused = std::max(way(from, to).refused, now_ + length);
}

void World::cut_from_keeper(int index, Duration length) {
  trace(fmt::format("no way from {} to the keeper for {} ms", index, length / milliseconds{1}));
  keeper_cuts_[static_cast<size_t>(index)] = now_ + length;
  at(index).disturbed_until = std::max(at(index).disturbed_until, now_ + length);
}

void World::keeper_outage(Duration length) {
  trace(fmt::format("the keeper is away for {} ms", length / milliseconds{1}));
  keeper_.pass(now_);
  keeper_out_ = std::max(keeper_out_, now_ + length);
  keeper_.be_out_until(keeper_out_);
  for (Node& node : nodes_)
    node.disturbed_until = std::max(node.disturbed_until, keeper_out_);
}

void World::reset_connection(int index) {
  Wire* const wire = find(at(index).wire);
  if (wire == nullptr || wire->agent == wire->host) return;
  trace(fmt::format("the connection of node {} is reset", index));
  reset(*wire);
}

void World::black_hole(int index) {
  Wire* const wire = find(at(index).wire);
  if (wire == nullptr || wire->agent == wire->host) return;
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
}

// By now the plan has ended every cut, pause and outage.
void World::heal() {
  trace("faults cease");
  healed_ = true;
  const bool anyone = std::ranges::any_of(nodes_, &Node::up);
  for (int index = 0; index < nodes() && !anyone; ++index)
    start(index);
}

std::string World::state() const {
  std::string text =
      fmt::format("keeper: {}, epoch {}", keeper_.host() ? keeper_.host()->host_name : "no host",
                  keeper_.job().epoch);
  for (int index = 0; index < nodes(); ++index) {
    const Node& here = node(index);
    if (here.member) {
      text += fmt::format(" | {}: {}", index, here.member->status(clock_of(index, now_)));
    }
    if (here.host) {
      text += fmt::format(" | host {}: {}", index, here.host->status(clock_of(index, now_)));
    }
  }
  return text;
}

}  // namespace muster::hostsim
