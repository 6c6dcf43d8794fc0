#include "tests/sim/membership_network.h"

#include <algorithm>
#include <utility>

namespace muster::roundsim {

using std::chrono::microseconds;
using std::chrono::milliseconds;

Wire& Network::open(int node, uint64_t agent_life, uint64_t host_life) {
  Wire& wire = wires_[next_wire_];
  wire.id = next_wire_++;
  wire.node = node;
  wire.agent_life = agent_life;
  wire.host_life = host_life;
  return wire;
}

Wire* Network::find(uint64_t id) {
  const auto found = wires_.find(id);
  return found == wires_.end() ? nullptr : &found->second;
}

const Wire* Network::find(uint64_t id) const {
  const auto found = wires_.find(id);
  return found == wires_.end() ? nullptr : &found->second;
}

Duration Network::latency() {
  if (plan_.slow_percent > 0 && prng_.chance(static_cast<uint64_t>(plan_.slow_percent), 100)) {
    return milliseconds{prng_.below(200)};
  }
  return microseconds{50 + prng_.below(2000)};
}

// Each queued item gets one delivery, which delivers the item then in front.
template <typename Item>
void Network::push(Instant now, Wire& wire, Direction direction, std::deque<Item>& queue,
                   Instant& last, Item item, bool fixed, std::vector<Delivery>& out) {
  if (wire.black_hole) return;
  const bool doubled = !fixed && whim();
  if (!fixed && whim()) return;
  const bool overtakes = !fixed && whim() && queue.size() > 1;
  for (int copies = doubled ? 2 : 1; copies > 0; --copies) {
    last = std::max(last, now + latency());
    queue.push_back(item);
    out.push_back({last, wire.id, direction});
  }
  // The handshake keeps the first message of a connection, its Join or Welcome, in place.
  if (overtakes) std::swap(queue.back(), queue[1 + prng_.below(queue.size() - 1)]);
}

void Network::send(Instant now, Wire& wire, membership::AgentMessage message,
                   std::vector<Delivery>& out) {
  const bool fixed = std::holds_alternative<membership::Join>(message) ||
                     std::holds_alternative<membership::Goodbye>(message);
  push<Upward>(now, wire, Direction::up, wire.up, wire.last_up, std::move(message), fixed, out);
}

void Network::send(Instant now, Wire& wire, membership::HostMessage message,
                   std::vector<Delivery>& out) {
  const bool fixed = std::holds_alternative<membership::Welcome>(message) ||
                     std::holds_alternative<membership::Refused>(message);
  push<Downward>(now, wire, Direction::down, wire.down, wire.last_down, std::move(message), fixed,
                 out);
}

void Network::close_from_agent(Instant now, Wire& wire, std::vector<Delivery>& out) {
  if (!wire.agent_end) return;
  wire.agent_end = false;
  push<Upward>(now, wire, Direction::up, wire.up, wire.last_up, Close{}, true, out);
}

void Network::close_from_host(Instant now, Wire& wire, std::vector<Delivery>& out) {
  if (!wire.host_end) return;
  wire.host_end = false;
  push<Downward>(now, wire, Direction::down, wire.down, wire.last_down, Close{}, true, out);
}

// Deliveries scheduled for the dropped items find nothing and do nothing.
void Network::reset(Instant now, Wire& wire, std::vector<Delivery>& out) {
  wire.up.resize(prng_.below(wire.up.size() + 1), Close{});
  wire.down.resize(prng_.below(wire.down.size() + 1), Close{});
  push<Upward>(now, wire, Direction::up, wire.up, wire.last_up, Close{}, true, out);
  push<Downward>(now, wire, Direction::down, wire.down, wire.last_down, Close{}, true, out);
  wire.black_hole = true;
}

void Network::cut(int node, bool up, bool down) {
  cuts_[static_cast<size_t>(node)] = {up, down};
}

bool Network::is_cut(int node, Direction direction) const {
  const Cut& cut = cuts_[static_cast<size_t>(node)];
  return direction == Direction::up ? cut.up : cut.down;
}

// TCP retransmits what was held back.
void Network::mend(Instant now, int node, const std::vector<uint64_t>& wires,
                   std::vector<Delivery>& out) {
  cuts_[static_cast<size_t>(node)] = {};
  for (const uint64_t id : wires) {
    Wire* wire = find(id);
    if (wire == nullptr) continue;
    for (; wire->parked_up > 0; --wire->parked_up) {
      wire->last_up = std::max(wire->last_up, now + latency());
      out.push_back({wire->last_up, id, Direction::up});
    }
    for (; wire->parked_down > 0; --wire->parked_down) {
      wire->last_down = std::max(wire->last_down, now + latency());
      out.push_back({wire->last_down, id, Direction::down});
    }
  }
}

}  // namespace muster::roundsim
