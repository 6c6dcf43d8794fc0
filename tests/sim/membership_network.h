// The simulated network between agents and the host. Connections delay, break with and without
// notice and stall while a path is cut; if the plan says so, single messages are dropped,
// duplicated and reordered (which TCP never does, but the protocol must survive). It holds the
// messages in flight; the world supplies the time and performs the deliveries.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>
#include <variant>
#include <vector>

#include "rendezvous/base/prng.h"
#include "rendezvous/base/time.h"
#include "rendezvous/membership/agent_protocol.h"
#include "tests/sim/membership_plan.h"

namespace muster::roundsim {

struct Close {};  // The other end has closed the connection.
using Upward = std::variant<membership::AgentMessage, Close>;
using Downward = std::variant<membership::HostMessage, Close>;

enum class Direction : uint8_t { up, down };  // Up: to the host. Down: to the agent.

struct Wire {
  uint64_t id = 0;
  int node = 0;
  uint64_t agent_life = 0;
  uint64_t host_life = 0;
  bool agent_end = true;  // True while it is open at the agent.
  bool host_end = true;
  bool black_hole = false;  // True if everything sent is dropped silently.
  std::deque<Upward> up;
  std::deque<Downward> down;
  Instant last_up{};
  Instant last_down{};
  int parked_up = 0;  // Deliveries held back while the path is cut.
  int parked_down = 0;
};

class Network {
 public:
  Network(const Plan& plan, Prng& prng, int nodes)
      : plan_(plan), prng_(prng), cuts_(static_cast<size_t>(nodes)) {}

  struct Delivery {
    Instant when;
    uint64_t wire;
    Direction direction;
  };

  Wire& open(int node, uint64_t agent_life, uint64_t host_life);
  Wire* find(uint64_t id);
  const Wire* find(uint64_t id) const;

  // These append the deliveries to make to `out`.
  void send(Instant now, Wire& wire, membership::AgentMessage message, std::vector<Delivery>& out);
  void send(Instant now, Wire& wire, membership::HostMessage message, std::vector<Delivery>& out);
  void close_from_agent(Instant now, Wire& wire, std::vector<Delivery>& out);
  void close_from_host(Instant now, Wire& wire, std::vector<Delivery>& out);
  // Notifies both ends; part of what was in flight is lost.
  void reset(Instant now, Wire& wire, std::vector<Delivery>& out);

  void cut(int node, bool up, bool down);
  void mend(Instant now, int node, const std::vector<uint64_t>& wires, std::vector<Delivery>& out);
  bool is_cut(int node, Direction direction) const;

  Duration latency();
  void forget(uint64_t id) { wires_.erase(id); }
  // From now on no message is dropped, duplicated or reordered.
  void become_reliable() { reliable_ = true; }

 private:
  struct Cut {
    bool up = false;
    bool down = false;
  };

  bool whim() {
    return !reliable_ && plan_.unreliable_percent > 0 &&
           prng_.chance(static_cast<uint64_t>(plan_.unreliable_percent), 100);
  }
  template <typename Item>
  void push(Instant now, Wire& wire, Direction direction, std::deque<Item>& queue, Instant& last,
            Item item, bool fixed, std::vector<Delivery>& out);

  const Plan& plan_;
  Prng& prng_;
  std::unordered_map<uint64_t, Wire> wires_;  // Never iterated.
  std::vector<Cut> cuts_;                     // By node.
  uint64_t next_wire_ = 1;
  bool reliable_ = false;
};

}  // namespace muster::roundsim
