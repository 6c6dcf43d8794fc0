// The hosts of the simulated world, and the connections to them.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "tests/sim/hosting_world.h"
#include "tests/transcripts/agent_protocol_transcript.h"

namespace muster::hostsim {

// ---- The path to a host.

void World::call_done(int index, uint64_t attempt, Instant call_by) {
  Node& node = at(index);
  if (!node.wanting || node.attempt != attempt) return;
  using How = hosting::Called::How;
  const int there = index_of(node.called.agent);
  const Node& host = at(there);
  const bool is_cut = way(index, there).cut > now_ || way(there, index).cut > now_;
  node.claim.refused_by = 0;
  if (is_cut || !host.machine_up) {
    if (now_ < call_by) {
      return schedule(now_ + plan_.lease / 4, index,
                      [this, index, attempt, call_by] { call_done(index, attempt, call_by); });
    }
    return step_hosting(index,
                        hosting::Called{How::silent, {ExitCode::rendezvous, "connect: timed out"}});
  }
  const bool listens =
      host.own && (plan_.fixed_ports || host.own->instance == node.called.instance);
  if (listens && way(index, there).refused <= now_)
    return step_hosting(index, hosting::Called{How::answered, {}});
  node.claim.refused_by = node.called.instance;
  step_hosting(index, hosting::Called{How::refused, {ExitCode::rendezvous, "connect: refused"}});
}

// Simulates the handshake, in which both ends authenticate and the host names its instance.
void World::greet(int index) {
  const Node& node = at(index);
  if (!node.wanting) return;
  const int there = index_of(node.called.agent);
  const uint64_t attempt = node.attempt;
  const uint64_t instance = node.called.instance;
  const auto hello = [this, index, there, attempt, instance] {
    const Node& host = at(there);
    const bool is_same = host.own && host.own->instance == instance;
    const bool is_up = is_same && host.host;
    const bool is_another = host.own && !is_same;
    const auto reply = [this, index, attempt, is_up, is_another] {
      greeted(index, attempt, is_up, is_another);
    };
    schedule(now_ + latency(index, there), index, reply, there);
  };
  schedule(now_ + latency(index, there), there, hello, index);
  schedule(now_ + plan_.lease, index,
           [this, index, attempt] { greeted(index, attempt, false, false); });
}

void World::greeted(int index, uint64_t attempt, bool is_same, bool is_another) {
  Node& node = at(index);
  if (!node.wanting || node.attempt != attempt) return;
  const int there = index_of(node.called.agent);
  if (!is_same) {
    if (is_another) node.claim.refused_by = node.called.instance;
    step_hosting(index, hosting::Doubted{is_another});
    return fail_connection(
        index, {{ExitCode::rendezvous, is_another ? "another host" : "no answer"}, false, false});
  }
  Wire& wire = wires_[next_wire_];
  wire.id = next_wire_++;
  wire.agent = index;
  wire.agent_life = node.life;
  wire.host = there;
  wire.host_life = at(there).life;
  wire.instance = node.called.instance;
  node.wire = wire.id;
  node.wanting = false;
  membership::Join join = node.join;
  join.dialled = fmt::format("10.0.0.{}", there);
  join.advertised = fmt::format("10.0.0.{}", index);
  join.is_host = there == index;
  to_host(wire, join);
  step_agent(index, member::ConnectionUp{join.dialled, join.advertised});
}

void World::fail_connection(int index, const member::ConnectionFailed& failure) {
  Node& node = at(index);
  node.wanting = false;
  ++node.attempt;
  step_agent(index, failure);
}

bool World::is_host_process_alive(const HostRecord& record) const {
  const Node& there = node(index_of(record.agent));
  return there.up && there.agent == record.agent && there.own &&
         there.own->instance == record.instance;
}

bool World::is_connected(const membership::AgentId& agent, uint64_t instance) const {
  const Node& there = node(index_of(agent));
  const auto wire = wires_.find(there.wire);
  return there.up && there.agent == agent && wire != wires_.end() &&
         wire->second.instance == instance && wire->second.host_end && !wire->second.black_hole;
}

// ---- Connections.

void World::to_host(Wire& wire, membership::AgentMessage message) {
  if (wire.black_hole) return;
  wire.last_up = std::max(wire.last_up, now_ + latency(wire.agent, wire.host));
  const auto deliver = [this, id = wire.id, message = std::move(message)] {
    host_hears(id, message);
  };
  schedule(wire.last_up, wire.host, deliver, wire.agent);
}

void World::to_agent(Wire& wire, membership::HostMessage message) {
  if (wire.black_hole) return;
  wire.last_down = std::max(wire.last_down, now_ + latency(wire.agent, wire.host));
  const auto deliver = [this, id = wire.id, message = std::move(message)] {
    agent_hears(id, message);
  };
  schedule(wire.last_down, wire.agent, deliver, wire.host);
}

void World::host_hears(uint64_t id, const membership::AgentMessage& message) {
  const Wire* const wire = find(id);
  Node& node = at(wire->host);
  if (wire->black_hole || !wire->host_end) return;
  if (!node.host || node.life != wire->host_life || node.own->instance != wire->instance) return;
  if (const auto* join = std::get_if<membership::Join>(&message)) {
    step_host(wire->host, membership::Joined{id, *join});
  } else if (const auto* report = std::get_if<membership::Report>(&message)) {
    step_host(wire->host, membership::Reported{id, *report});
  } else {
    step_host(wire->host, membership::Parted{id});
  }
}

void World::agent_hears(uint64_t id, const membership::HostMessage& message) {
  Wire* const wire = find(id);
  const Node& node = at(wire->agent);
  if (wire->black_hole || node.wire != id) return;
  wire->welcomed = true;
  step_agent(wire->agent, member::Received{message});
}

void World::close_from_agent(Wire& wire) {
  wire.agent_end = false;
  if (wire.black_hole) return;
  wire.last_up = std::max(wire.last_up, now_ + latency(wire.agent, wire.host));
  const auto close = [this, id = wire.id] {
    Wire& here = *find(id);
    const Node& node = at(here.host);
    if (!std::exchange(here.host_end, false) || !node.host) return;
    if (node.own->instance == here.instance) step_host(here.host, membership::Disconnected{id});
  };
  schedule(wire.last_up, wire.host, close, wire.agent);
}

void World::close_from_host(Wire& wire) {
  wire.host_end = false;
  if (wire.black_hole) return;
  wire.last_down = std::max(wire.last_down, now_ + latency(wire.agent, wire.host));
  const auto close = [this, id = wire.id] {
    Wire& here = *find(id);
    here.agent_end = false;
    Node& node = at(here.agent);
    if (node.wire != id) return;
    node.wire = 0;
    if (!here.welcomed) step_hosting(here.agent, hosting::Doubted{false});
    fail_connection(here.agent, {{ExitCode::rendezvous, "connection reset by peer"}, false, false});
  };
  schedule(wire.last_down, wire.agent, close, wire.host);
}

// Notifies both ends and loses what was in flight.
void World::reset(Wire& wire) {
  const bool host_end = wire.host_end;
  if (wire.agent_end && at(wire.host).life == wire.host_life) close_from_agent(wire);
  if (wire.host_end) close_from_host(wire);
  wire.host_end = host_end;  // Open until the host is notified.
  wire.black_hole = true;
}

// ---- The host.

void World::step_host(int index, const Membership::Event& event) {
  ++steps_;
  Node& node = at(index);
  const uint64_t instance = node.own->instance;
  std::vector<Membership::Effect> effects;
  node.host->step(clock_of(index, now_), event, effects);
  if (tracing_) {
    trace(fmt::format("host {}: {}", index, node.host->status(clock_of(index, now_))));
  }
  for (const Membership::Effect& effect : effects) {
    if (!node.host || node.own->instance != instance) return;
    std::visit([this, index](const auto& e) { perform_host(index, e); }, effect);
  }
  if (!node.host || node.own->instance != instance) return;
  schedule_tick(index, node.host->next_deadline(), &Node::host_tick, &World::tick_host);
  if (!node.member) schedule(now_, index, [this, index] { exit_if_over(index); });
}

void World::tick_host(int index) {
  const Node& node = at(index);
  if (!node.host) return;
  if (from_clock(index, node.host->next_deadline()) <= now_) {
    return step_host(index, membership::Tick{});
  }
  schedule_tick(index, node.host->next_deadline(), &Node::host_tick, &World::tick_host);
}

// The kernel closes all connections of the host.
void World::end_host(int index) {
  Node& node = at(index);
  for (auto& [id, wire] : wires_) {
    const bool is_its = node.own && wire.host == index && wire.instance == node.own->instance;
    if (is_its && wire.host_end) close_from_host(wire);
  }
  node.host.reset();
  node.own.reset();
  node.host_tick = kNever;
  node.ending_asked = node.ending_granted = false;
  node.held.clear();
}

// Holds back the job's end until it is granted, as HostedJob does.
void World::perform_host(int index, const membership::Send& effect) {
  Node& node = at(index);
  const auto* const order = std::get_if<membership::Order>(&effect.message);
  if (order != nullptr && std::holds_alternative<membership::End>(order->what)) {
    const auto& end = std::get<membership::End>(order->what);
    if (!std::exchange(node.ending_asked, true)) {
      step_hosting(index, hosting::Ended{{.why = end.why,
                                          .exit_code = end.exit_code,
                                          .signal = end.signal,
                                          .host_name = end.host_name,
                                          .text = end.text}});
    }
    if (!node.ending_granted && !node.host->all_were_there()) {
      node.held[effect.connection] = effect.message;
      return;
    }
  }
  Wire* const wire = find(effect.connection);
  if (tracing_) {
    trace(fmt::format("  host {} -> {}: {}", index, wire == nullptr ? -1 : wire->agent,
                      membership::to_text(effect.message)));
  }
  if (wire != nullptr && wire->host_end) to_agent(*wire, effect.message);
}

void World::perform_host(int, const membership::Hangup& effect) {
  Wire* const wire = find(effect.connection);
  if (wire != nullptr && wire->host_end) close_from_host(*wire);
}

void World::perform_host(int index, const membership::OpenStore&) {
  const Node& node = at(index);
  const membership::Formed formed = node.host->formed();
  JobRecord record;
  record.epoch = formed.epoch;
  record.instance = node.own->instance;
  record.restarts = formed.restarts;
  record.changes = formed.changes;
  record.members = formed.members;
  step_hosting(index, hosting::RoundWanted{std::move(record)});
}

void World::perform_host(int index, const membership::Note& effect) {
  trace(fmt::format("  host {}: {}", index, effect.text));
}

}  // namespace muster::hostsim
