// A simulated world around the real machines of the rendezvous: one Membership in the process of
// node 0, one Member in that of each node, fake workers, and a network between them. Processes
// crash, return, freeze and leave; virtual time, one thread, one seed. The world knows the truth,
// of which the machines only receive reports; MembershipPromises compares the two after every step.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <vector>

#include "rendezvous/base/prng.h"
#include "rendezvous/base/time.h"
#include "rendezvous/membership/member.h"
#include "rendezvous/membership/membership.h"
#include "tests/sim/membership_network.h"
#include "tests/sim/membership_plan.h"
#include "tests/sim/membership_promises.h"

namespace muster::roundsim {

class World {
 public:
  explicit World(const Plan& plan, bool tracing);

  // ---- faults
  void start(int node);
  // With `notice` the other ends see it at once; without, it is like a power failure.
  void crash(int node, bool notice);
  void freeze(int node, Duration length);
  void cut(int node, bool up, bool down);
  void mend(int node);
  void reset_connection(int node);
  void black_hole(int node);
  void leave(int node, int signal);
  void fail_worker(int node);
  void start_later(int node, Duration after);
  void mend_later(int node, Duration after);
  void fault_later(Instant when);

  // Ends and repairs all faults; from now on no worker ends by itself.
  void heal();
  // Lets every running worker succeed.
  void finish_all();

  // Performs the next event. Returns false if none is left.
  bool advance();
  Instant next() const { return agenda_.empty() ? kNever : agenda_.top().when; }
  // After some uptime, so that no machine's clock is negative.
  static constexpr Instant kStart{std::chrono::seconds{1'000'000}};
  Instant now() const { return now_; }
  // True if a fault became due since the last call; the simulation chooses which.
  bool take_fault();

  // ---- the truth
  struct Node {
    uint64_t life = 0;  // Number of the process; changes with every start and crash.
    bool up = false;
    std::unique_ptr<Member> member;
    uint64_t wire = 0;     // The agent's connection; 0: none.
    uint64_t attempt = 0;  // Number of the connection attempt.
    bool connecting = false;
    Instant connect_by{};
    membership::Join join;
    std::vector<uint64_t> wires;  // Connections that may still carry messages.
    Instant frozen_until{};
    Instant tick_at = kNever;
    bool leaving = false;
    int signal = 0;
    std::optional<membership::End> end;
    std::optional<Error> gave_up;

    bool workers_alive = false;
    bool workers_stopping = false;
    bool workers_done = false;  // True if all of the newest round have exited with 0.
    uint64_t workers_life = 0;
    membership::Round round;  // Newest round of this process.
  };
  const Node& node(int index) const { return nodes_[static_cast<size_t>(index)]; }
  int nodes() const { return static_cast<int>(nodes_.size()); }
  bool is_cut(int node) const {
    return network_.is_cut(node, Direction::up) && network_.is_cut(node, Direction::down);
  }
  bool host_up() const { return host_ != nullptr; }
  // True if it has been up and reachable for long enough for every agent to find it.
  bool host_is_well(Instant now) const;
  bool host_finished() const { return host_finished_; }
  const Membership* host() const { return host_.get(); }
  // Life of the host to which the agent is connected; 0: not connected.
  uint64_t host_life_of(int index) const;
  static std::string address_of(int node);
  // The steady clock of that node's machine; that of node 0 is the world's.
  Instant clock_of(int node, Instant when) const {
    return when + clocks_ahead_[static_cast<size_t>(node)];
  }
  membership::Join join_of(int node) const;

  const std::optional<std::string>& broken() const { return promises_.broken(); }
  void break_promise(std::string promise) { promises_.violate(std::move(promise)); }
  MembershipPromises& promises() { return promises_; }
  std::vector<std::string>& lines() { return lines_; }
  uint64_t steps() const { return steps_; }
  uint64_t bytes_sent() const { return bytes_sent_; }
  void count_bytes() { counting_bytes_ = true; }
  Prng& prng() { return prng_; }
  void trace(std::string line);

 private:
  enum class What : uint8_t {
    to_host,
    to_agent,
    host_tick,
    agent_tick,
    connected,
    workers_succeed,
    workers_fail,
    workers_gone,
    detail_known,
    store_opened,
    start_node,
    mend_node,
    fault,
  };
  struct Happening {
    Instant when;
    uint64_t order;
    What what;
    int node;
    uint64_t id;          // A wire, a connection attempt, a life of workers, or an epoch.
    uint64_t life;        // Life of the process that it concerns.
    bool queued = false;  // True once it has waited for the host's CPU.
    bool operator<(const Happening& other) const {
      return when != other.when ? when > other.when : order > other.order;
    }
  };

  void schedule(Instant when, What what, int node, uint64_t id, uint64_t life);
  bool postponed(const Happening& happening);
  bool queued(const Happening& happening);
  void happen(const Happening& happening);
  void deliver_to_host(const Happening& happening);
  void deliver_to_agent(const Happening& happening);
  void dispatch();

  void start_host();
  void make_host();
  void replace_host();
  void step_host(const Membership::Event& event);
  void tick_host(const Happening& happening);
  void schedule_host_tick();
  void perform(const membership::Send& effect);
  void perform(const membership::Hangup& effect);
  void perform(const membership::OpenStore& effect);
  void perform(const membership::CloseStore&) {}
  void perform(const membership::Finished&);
  void perform(const membership::Say&) {}
  void perform(const membership::Note&) {}

  void step_agent(int index, const Member::Event& event);
  void tick_agent(const Happening& happening);
  void schedule_agent_tick(int index);
  void connect_done(const Happening& happening);
  void perform(int index, const member::Connect& effect);
  void perform(int index, const member::Disconnect&);
  void perform(int index, const member::Send& effect);
  void perform(int index, const member::RoundFormed& effect);
  void perform(int index, const member::StopWorkers&) { stop_workers(index); }
  void perform(int index, const member::LeaveAnnounced&) { stop_workers(index); }
  void perform(int index, const member::JobEnded& effect);
  void perform(int index, const member::GaveUp& effect);
  void perform(int, const member::Say&) {}

  void stop_workers(int index);
  void workers_succeed(const Happening& happening);
  void workers_fail(const Happening& happening);
  void workers_gone(const Happening& happening);
  void exit_if_over(int index);
  void close_wires(int index, bool notice);
  membership::NodeFailure failure_of(int index) const;
  Instant deadline_of(int index) const;

  Node& at(int index) { return nodes_[static_cast<size_t>(index)]; }
  bool percent(int chance) { return prng_.chance(static_cast<uint64_t>(chance), 100); }
  Duration up_to_ms(uint64_t most) {
    return std::chrono::microseconds{prng_.below(1000 * most + 1)};
  }

  const Plan plan_;
  Prng prng_;
  Network network_;
  std::priority_queue<Happening> agenda_;
  std::vector<Node> nodes_;
  std::vector<Duration> clocks_ahead_;  // By machine.
  MembershipPromises promises_;
  std::vector<Network::Delivery> deliveries_;  // Still to be scheduled.
  std::vector<Membership::Effect> host_effects_;
  std::vector<Member::Effect> agent_effects_;

  Instant now_ = kStart;
  uint64_t next_order_ = 0;
  uint64_t next_life_ = 1;
  bool healed_ = false;
  Instant healed_at_{};
  bool fault_due_ = false;
  bool tracing_ = false;
  bool counting_bytes_ = false;

  std::unique_ptr<Membership> host_;
  uint64_t host_life_ = 0;
  bool host_machine_up_ = false;  // If true, its kernel refuses connections while no host runs.
  bool host_finished_ = false;
  bool host_dropped_ = false;
  uint64_t host_instance_ = 0;
  Instant host_tick_at_ = kNever;
  Instant host_busy_until_{};

  uint64_t steps_ = 0;
  uint64_t bytes_sent_ = 0;
  std::vector<std::string> lines_;
};

}  // namespace muster::roundsim
