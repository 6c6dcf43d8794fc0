#include "tests/sim/membership_world.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include <fmt/format.h>

#include "tests/transcripts/agent_protocol_transcript.h"

namespace muster::roundsim {

using std::chrono::microseconds;
using std::chrono::milliseconds;

World::World(const Plan& plan, bool tracing)
    : plan_(plan),
      prng_(plan.seed ^ 0x0ddba11u),
      network_(plan_, prng_, plan.nodes),
      nodes_(static_cast<size_t>(plan.nodes)),
      promises_(plan_, *this),
      tracing_(tracing) {
  Prng clocks(plan.seed ^ 0xc10c45u);
  for (int node = 0; node < plan.nodes; ++node) {
    const Duration ahead = milliseconds{clocks.below(2'000'000'000)} - milliseconds{1'000'000'000};
    clocks_ahead_.push_back(node == 0 ? Duration{0} : ahead);
  }
}

std::string World::address_of(int node) {
  return fmt::format("10.{}.{}.{}", node / 65536, node / 256 % 256, node % 256);
}

// A connection attempt may hang for a lease, and the next one may follow 1.5 s later.
bool World::host_is_well(Instant now) const {
  return healed_ && host_ != nullptr &&
         now - healed_at_ > 2 * plan_.lease + std::chrono::seconds{2};
}

uint64_t World::host_life_of(int index) const {
  const Wire* wire = network_.find(node(index).wire);
  return wire == nullptr ? 0 : wire->host_life;
}

void World::trace(std::string line) {
  if (!tracing_) return;
  const double elapsed = std::chrono::duration<double>(now_ - kStart).count();
  lines_.push_back(fmt::format("{:10.4f} {}", elapsed, line));
}

// ---- The agenda.

void World::schedule(Instant when, What what, int node, uint64_t id, uint64_t life) {
  agenda_.push(
      {.when = when, .order = next_order_++, .what = what, .node = node, .id = id, .life = life});
}

void World::dispatch() {
  for (const Network::Delivery& delivery : deliveries_) {
    const bool up = delivery.direction == Direction::up;
    schedule(delivery.when, up ? What::to_host : What::to_agent, 0, delivery.wire, 0);
  }
  deliveries_.clear();
}

bool World::advance() {
  if (agenda_.empty()) return false;
  Happening happening = agenda_.top();
  agenda_.pop();
  now_ = std::max(now_, happening.when);
  if (!postponed(happening) && !queued(happening)) happen(happening);
  dispatch();
  return true;
}

// Messages wait for the host's processor in order of arrival.
bool World::queued(const Happening& happening) {
  if (happening.what != What::to_host || happening.queued || plan_.host_cost <= Duration::zero()) {
    return false;
  }
  host_busy_until_ = std::max(now_, host_busy_until_) + plan_.host_cost;
  Happening later = happening;
  later.queued = true;
  later.when = host_busy_until_;
  agenda_.push(later);
  return true;
}

// A frozen process handles everything later, in order of arrival; its timers and its sockets in
// either order.
bool World::postponed(const Happening& happening) {
  int node = happening.node;
  switch (happening.what) {
    case What::start_node:
    case What::mend_node:
    case What::fault:
      return false;
    case What::to_host:
    case What::host_tick:
    case What::store_opened:
      node = 0;
      break;
    case What::to_agent: {
      const Wire* wire = network_.find(happening.id);
      if (wire == nullptr) return true;
      node = wire->node;
      break;
    }
    default:
      break;
  }
  const Instant free = at(node).frozen_until;
  if (now_ >= free) return false;
  Happening later = happening;
  later.when = free;
  if (happening.what == What::host_tick || happening.what == What::agent_tick) {
    if (prng_.chance(1, 2)) later.order = next_order_++;
  }
  agenda_.push(later);
  return true;
}

void World::happen(const Happening& h) {
  switch (h.what) {
    case What::to_host:
      return deliver_to_host(h);
    case What::to_agent:
      return deliver_to_agent(h);
    case What::host_tick:
      return tick_host(h);
    case What::agent_tick:
      return tick_agent(h);
    case What::connected:
      return connect_done(h);
    case What::workers_succeed:
      return workers_succeed(h);
    case What::workers_fail:
      return workers_fail(h);
    case What::workers_gone:
      return workers_gone(h);
    case What::detail_known:
      if (at(h.node).life != h.life || !at(h.node).member) return;
      return step_agent(
          h.node, member::EvidenceFound{h.id, {clock_of(h.node, now_), {}, "ValueError: boom"}});
    case What::store_opened:
      if (host_ == nullptr || h.life != host_life_) return;
      if (!healed_ && percent(plan_.store_fails_percent)) {
        return step_host(
            membership::StoreFailed{h.id, {ExitCode::environment, "no port is free for it"}});
      }
      return step_host(membership::StoreOpened{h.id, 29400});
    case What::start_node:
      return start(h.node);
    case What::mend_node:
      return mend(h.node);
    case What::fault:
      fault_due_ = true;
  }
}

bool World::take_fault() {
  return std::exchange(fault_due_, false);
}

void World::fault_later(Instant when) {
  schedule(when, What::fault, 0, 0, 0);
}
void World::start_later(int node, Duration after) {
  schedule(now_ + after, What::start_node, node, 0, 0);
}
void World::mend_later(int node, Duration after) {
  schedule(now_ + after, What::mend_node, node, 0, 0);
}

// ---- Deliveries.

void World::deliver_to_host(const Happening& h) {
  Wire* wire = network_.find(h.id);
  if (wire == nullptr || wire->up.empty()) return;
  if (network_.is_cut(wire->node, Direction::up)) {
    ++wire->parked_up;
    return;
  }
  const Upward item = std::move(wire->up.front());
  wire->up.pop_front();
  if (host_ == nullptr || wire->host_life != host_life_ || !wire->host_end) return;
  if (std::holds_alternative<Close>(item)) {
    wire->host_end = false;
    return step_host(membership::Disconnected{h.id});
  }
  const auto& message = std::get<membership::AgentMessage>(item);
  if (const auto* join = std::get_if<membership::Join>(&message)) {
    step_host(membership::Joined{h.id, *join});
  } else if (const auto* report = std::get_if<membership::Report>(&message)) {
    step_host(membership::Reported{h.id, *report});
  } else {
    step_host(membership::Parted{h.id});
  }
}

void World::deliver_to_agent(const Happening& h) {
  Wire* wire = network_.find(h.id);
  if (wire == nullptr || wire->down.empty()) return;
  if (network_.is_cut(wire->node, Direction::down)) {
    ++wire->parked_down;
    return;
  }
  const Downward item = std::move(wire->down.front());
  wire->down.pop_front();
  const int index = wire->node;
  Node& node = at(index);
  if (!node.member || wire->agent_life != node.life || node.wire != h.id) return;
  if (std::holds_alternative<Close>(item)) {
    wire->agent_end = false;
    node.wire = 0;
    return step_agent(index,
                      member::ConnectionFailed{{ExitCode::rendezvous, "connection reset by peer"}});
  }
  step_agent(index, member::Received{std::get<membership::HostMessage>(item)});
}

// ---- The host.

void World::start_host() {
  host_instance_ = prng_.next();
  host_busy_until_ = {};
  make_host();
}

void World::make_host() {
  Membership::Options options;
  options.lease = plan_.lease;
  options.may_be_followed = plan_.may_be_followed;
  options.host_instance = host_instance_;
  options.judge = [this](const std::vector<membership::Testimony>& testimonies) {
    return promises_.judge(testimonies);
  };
  host_ = std::make_unique<Membership>(options);
  host_life_ = next_life_++;
  host_tick_at_ = kNever;
  promises_.host_started(host_life_);
}

void World::step_host(const Membership::Event& event) {
  ++steps_;
  promises_.host_hears(now_, event);
  host_effects_.clear();
  host_->step(now_, event, host_effects_);
  if (tracing_) trace("host: " + host_->status(now_));
  std::vector<Membership::Effect> effects;
  effects.swap(host_effects_);
  for (const Membership::Effect& effect : effects) {
    promises_.host_asks(now_, effect);
    std::visit([this](const auto& e) { perform(e); }, effect);
  }
  promises_.host_stepped(now_);
  effects.swap(host_effects_);
  if (host_dropped_) replace_host();
  schedule_host_tick();
}

void World::schedule_host_tick() {
  if (host_ == nullptr) return;
  const Instant deadline = host_->next_deadline();
  if (deadline == kNever || deadline >= host_tick_at_) return;
  host_tick_at_ = deadline;
  schedule(std::max(now_, deadline) + up_to_ms(2), What::host_tick, 0, 0, host_life_);
}

// A timer set for a deadline that has since moved does nothing; this is checked.
void World::tick_host(const Happening& h) {
  if (host_ == nullptr || h.life != host_life_) return;
  host_tick_at_ = kNever;
  const Instant deadline = host_->next_deadline();
  if (deadline > now_) {
    host_effects_.clear();
    host_->step(now_, membership::Tick{}, host_effects_);
    if (!host_effects_.empty() || host_->next_deadline() != deadline) {
      break_promise("a Tick before the host's deadline does nothing");
    }
    return schedule_host_tick();
  }
  step_host(membership::Tick{});
}

void World::perform(const membership::Send& effect) {
  if (tracing_) {
    const Wire* wire = network_.find(effect.connection);
    trace(fmt::format("  host -> {} by {}: {}", wire == nullptr ? -1 : wire->node,
                      effect.connection, membership::to_text(effect.message)));
  }
  Wire* wire = network_.find(effect.connection);
  if (wire == nullptr || !wire->host_end) return;
  if (counting_bytes_) {
    std::string bytes;
    membership::encode(effect.message, bytes);
    bytes_sent_ += bytes.size();
  }
  network_.send(now_, *wire, effect.message, deliveries_);
}

void World::perform(const membership::Hangup& effect) {
  trace(fmt::format("  host hangs up {}", effect.connection));
  Wire* wire = network_.find(effect.connection);
  if (wire != nullptr) network_.close_from_host(now_, *wire, deliveries_);
}

void World::perform(const membership::OpenStore& effect) {
  trace(fmt::format("  host opens the store of {} for {}", effect.epoch,
                    fmt::join(effect.addresses, ", ")));
  schedule(now_ + up_to_ms(3), What::store_opened, 0, effect.epoch, host_life_);
}

void World::perform(const membership::Finished&) {
  trace("  host has finished");
  host_finished_ = promises_.has_ended();
  host_dropped_ = !host_finished_ && prng_.chance(1, 2);
}

// All agents left before the job began; the next one finds the same host with a new machine.
void World::replace_host() {
  host_dropped_ = false;
  const uint64_t before = host_life_;
  make_host();
  for (const Node& node : nodes_) {
    for (const uint64_t id : node.wires) {
      Wire* wire = network_.find(id);
      if (wire != nullptr && wire->host_life == before) wire->host_life = host_life_;
    }
  }
}

// ---- Connections of the agents.

void World::perform(int index, const member::Connect& effect) {
  Node& node = at(index);
  node.connecting = true;
  ++node.attempt;
  node.join = effect.join;
  node.connect_by = now_ + std::min(plan_.lease, Duration{std::chrono::seconds{5}});
  schedule(now_ + 2 * network_.latency(), What::connected, index, node.attempt, node.life);
}

void World::connect_done(const Happening& h) {
  Node& node = at(h.node);
  if (!node.member || node.life != h.life || !node.connecting || node.attempt != h.id) return;
  const bool unreachable = network_.is_cut(h.node, Direction::up) ||
                           network_.is_cut(h.node, Direction::down) || !host_machine_up_;
  if (unreachable || now_ < at(0).frozen_until) {
    // The attempt fails only at the handshake's limit, and succeeds if the path is mended before.
    if (now_ < node.connect_by) {
      return schedule(now_ + plan_.lease / 4, What::connected, h.node, h.id, h.life);
    }
    node.connecting = false;
    return step_agent(h.node, member::ConnectionFailed{
                                  {ExitCode::rendezvous, "connect: timed out"}, false, false});
  }
  node.connecting = false;
  if (host_ == nullptr) {
    return step_agent(
        h.node, member::ConnectionFailed{{ExitCode::rendezvous, "connect: refused"}, true, false});
  }
  Wire& wire = network_.open(h.node, node.life, host_life_);
  node.wire = wire.id;
  node.wires.push_back(wire.id);
  std::erase_if(node.wires, [this](uint64_t id) {
    const Wire* old = network_.find(id);
    const bool over =
        old == nullptr || old->host_life != host_life_ || (!old->agent_end && !old->host_end);
    if (over) network_.forget(id);
    return over;
  });
  membership::Join join = node.join;
  join.dialled = address_of(0);
  join.advertised = address_of(h.node);
  join.is_host = h.node == 0;
  if (counting_bytes_) {
    std::string bytes;
    membership::encode(membership::AgentMessage{join}, bytes);
    bytes_sent_ += bytes.size();
  }
  network_.send(now_, wire, membership::AgentMessage{join}, deliveries_);
  step_agent(h.node, member::ConnectionUp{join.dialled, join.advertised});
}

void World::perform(int index, const member::Disconnect&) {
  Node& node = at(index);
  node.connecting = false;
  Wire* wire = network_.find(node.wire);
  node.wire = 0;
  if (wire != nullptr) network_.close_from_agent(now_, *wire, deliveries_);
}

void World::perform(int index, const member::Send& effect) {
  Wire* wire = network_.find(at(index).wire);
  if (wire == nullptr) return break_promise("an agent speaks only where it is connected");
  if (counting_bytes_) {
    std::string bytes;
    membership::encode(effect.message, bytes);
    bytes_sent_ += bytes.size();
  }
  network_.send(now_, *wire, effect.message, deliveries_);
}

}  // namespace muster::roundsim
