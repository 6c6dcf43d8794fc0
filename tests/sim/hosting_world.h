// A simulated world in which any node may host its job: each has a real Hosting, a real Member and
// fake workers and, while it hosts, a real Membership. Several may believe themselves host at once;
// a simulated keeper decides, which can be away, loses answers and gets some requests late. Virtual
// time, one thread, one seed. The world knows the truth, of which the machines only receive
// reports; HostingPromises compares the two.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/backends/hosting.h"
#include "rendezvous/base/prng.h"
#include "rendezvous/base/time.h"
#include "rendezvous/membership/member.h"
#include "rendezvous/membership/membership.h"
#include "tests/sim/hosting_keeper.h"
#include "tests/sim/hosting_plan.h"
#include "tests/sim/hosting_promises.h"

namespace muster::hostsim {

// A connection of one process of an agent to one host.
struct Wire {
  uint64_t id = 0;
  int agent = 0;
  uint64_t agent_life = 0;
  int host = 0;
  uint64_t host_life = 0;
  uint64_t instance = 0;
  bool agent_end = true;  // True while it is open at the agent.
  bool host_end = true;
  bool black_hole = false;  // True if everything sent is lost.
  bool welcomed = false;    // True once the host has sent something.
  Instant last_up{};
  Instant last_down{};
};

struct Node {
  uint64_t life = 0;  // Number of the process; changes with every start and crash.
  bool up = false;
  bool machine_up = false;  // If true, its kernel refuses connections while nothing listens.
  membership::AgentId agent;
  std::unique_ptr<Member> member;
  std::unique_ptr<Hosting> hosting;
  Instant frozen_until{};
  Instant member_tick = kNever;
  Instant hosting_tick = kNever;
  bool leaving = false;
  int signal = 0;
  std::optional<membership::EndWhy> end;
  bool ending_asked = false;  // For the job that it hosts.
  bool ending_granted = false;
  std::map<uint64_t, membership::HostMessage> held;  // Messages about the end, by wire.
  bool retiring = false;
  bool retired = false;

  // The path to a host.
  bool wanting = false;  // True while the Member waits for a connection.
  uint64_t attempt = 0;
  membership::Join join;
  HostRecord called;  // Host of the last call.
  uint64_t wire = 0;  // 0: none.
  Claim claim;        // Grounds for a Take by this node.

  // As the host.
  std::optional<HostRecord> own;  // The instance as which it listens.
  std::unique_ptr<Membership> host;
  Instant host_tick = kNever;
  Instant disturbed_until{};  // Latest time at which it may have had trouble with the keeper.

  // Number of the newest request to the keeper; answers to others are too late.
  uint64_t errand = 0;

  bool workers_alive = false;
  bool workers_stopping = false;
  bool workers_done = false;  // True if all of the newest round have exited with 0.
  uint64_t workers_life = 0;
  membership::Round round;  // Newest round of this process.
};

class World {
 public:
  World(const Plan& plan, bool tracing);

  // After some uptime, so that no machine's clock is negative.
  static constexpr Instant kStart{std::chrono::seconds{2'000'000}};

  // ---- faults
  void start(int index);
  void crash(int index, bool notice);
  void freeze(int index, Duration length);
  void cut(int from, int to, Duration length);
  void cut_from_keeper(int index, Duration length);
  void keeper_outage(Duration length);
  // Makes `to` refuse connections from `from`, though its host may be alive.
  void refuse_falsely(int from, int to, Duration length);
  void reset_connection(int index);
  void black_hole(int index);
  void leave(int index, int signal);
  void fail_worker(int index);
  // Ends all faults; from now on no worker ends by itself.
  void heal();
  // Lets every running worker succeed.
  void finish_all();
  void later(Duration after, std::function<void()> act) {
    schedule(now_ + after, -1, std::move(act));
  }

  // Performs the next event. Returns false if none is left.
  bool advance();
  Instant next() const { return agenda_.empty() ? kNever : agenda_.front().when; }
  Instant now() const { return now_; }

  // ---- the truth
  const Node& node(int index) const { return nodes_[static_cast<size_t>(index)]; }
  int nodes() const { return static_cast<int>(nodes_.size()); }
  // Number of nodes of that round whose workers have exited with 0 and which are gone.
  int done_and_gone(membership::Epoch epoch) const {
    return static_cast<int>(std::ranges::count_if(done_, [&](const auto& done) {
      const Node& there = node(index_of(done.second));
      const bool is_of_it = done.first == epoch && keeper_.job().has(done.second);
      return is_of_it && (there.agent != done.second || !there.member);
    }));
  }
  const SimKeeper& keeper() const { return keeper_; }
  // The node of this agent's process, running or not.
  static int index_of(const membership::AgentId& agent) { return static_cast<int>(agent.high) - 1; }
  bool is_host_process_alive(const HostRecord& record) const;
  bool is_connected(const membership::AgentId& agent, uint64_t instance) const;
  // True once some node knows how the job has ended.
  bool job_ended() const { return job_ended_; }

  HostingPromises& promises() { return promises_; }
  const std::optional<std::string>& broken() const { return promises_.broken(); }
  std::vector<std::string>& lines() { return lines_; }
  uint64_t steps() const { return steps_; }
  Prng& prng() { return prng_; }
  std::string state() const;

 private:
  struct Happening {
    Instant when;
    uint64_t order;
    int node;       // Node whose process handles it; -1: none.
    int from;       // Machine that sent it; -1: no message.
    uint64_t life;  // Life of that process.
    bool is_tick;
    std::function<void()> act;
    bool operator<(const Happening& other) const {
      return when != other.when ? when > other.when : order > other.order;
    }
  };
  struct Until {
    Instant cut{};
    Instant refused{};
  };
  using Ask = std::function<Hosting::Event()>;
  using TickAt = Instant Node::*;
  using Handler = void (World::*)(int);

  void schedule(Instant when, int index, std::function<void()> act, int from = -1,
                bool is_tick = false);
  void push(Happening happening);
  bool postponed(Happening& happening);
  void trace(std::string line);
  Instant clock_of(int index, Instant when) const {
    return when + clocks_ahead_[static_cast<size_t>(index)];
  }
  Instant from_clock(int index, Instant there) const {
    return there == kNever ? kNever : there - clocks_ahead_[static_cast<size_t>(index)];
  }
  void schedule_tick(int index, Instant deadline, TickAt tick_at, Handler tick);

  // hosting_world_keeper.cc: Hosting, and its path to the keeper.
  void step_hosting(int index, const Hosting::Event& event);
  void tick_hosting(int index);
  void ask(int index, const Ask& at_keeper, const Hosting::Event& failed);
  void arrive(int index, uint64_t life, uint64_t errand, const Ask& at_keeper);
  void answer(int index, uint64_t errand, const Hosting::Event& event, bool has_failed);
  void keeper_changed();
  Instant keeper_away_until(int index) const;
  void perform(int index, const hosting::Look& effect);
  void perform(int index, const hosting::Await& effect);
  void perform(int index, const hosting::Call& effect);
  void perform(int index, const hosting::Take& effect);
  void perform(int index, const hosting::Found& effect);
  void perform(int index, const hosting::NotFound& effect);
  void perform(int index, const hosting::Host& effect);
  void perform(int index, const hosting::Beat& effect);
  void perform(int index, const hosting::Write& effect);
  void perform(int index, const hosting::RoundGranted& effect);
  void perform(int index, const hosting::EndingGranted& effect);
  void perform(int index, const hosting::StepDown& effect);
  void perform(int index, const hosting::Leave& effect);
  void perform(int index, const hosting::Retire& effect);
  void perform(int, const hosting::Say&) {}

  // hosting_world_wires.cc: the host's Membership, and the connections to it.
  void call_done(int index, uint64_t attempt, Instant call_by);
  void greet(int index);
  void greeted(int index, uint64_t attempt, bool is_same, bool is_another);
  void fail_connection(int index, const member::ConnectionFailed& failure);
  void to_host(Wire& wire, membership::AgentMessage message);
  void to_agent(Wire& wire, membership::HostMessage message);
  void host_hears(uint64_t wire, const membership::AgentMessage& message);
  void agent_hears(uint64_t wire, const membership::HostMessage& message);
  void close_from_agent(Wire& wire);
  void close_from_host(Wire& wire);
  void reset(Wire& wire);
  void step_host(int index, const Membership::Event& event);
  void tick_host(int index);
  void end_host(int index);
  void perform_host(int index, const membership::Send& effect);
  void perform_host(int index, const membership::Hangup& effect);
  void perform_host(int index, const membership::OpenStore& effect);
  void perform_host(int, const membership::CloseStore&) {}
  void perform_host(int, const membership::Finished&) {}
  void perform_host(int, const membership::Say&) {}
  void perform_host(int index, const membership::Note& effect);

  // hosting_world_nodes.cc: processes, their agents and workers.
  membership::Join join_of(int index) const;
  void step_agent(int index, const Member::Event& event);
  void tick_agent(int index);
  void perform(int index, const member::Connect& effect);
  void perform(int index, const member::Disconnect& effect);
  void perform(int index, const member::Send& effect);
  void perform(int index, const member::RoundFormed& effect);
  void perform(int index, const member::StopWorkers&) { stop_workers(index); }
  void perform(int index, const member::LeaveAnnounced&) { stop_workers(index); }
  void perform(int index, const member::JobEnded& effect);
  void perform(int index, const member::GaveUp& effect);
  void perform(int, const member::Say&) {}
  void stop_workers(int index);
  void workers_gone(int index, uint64_t workers);
  void workers_succeed(int index, uint64_t workers);
  void workers_fail(int index, uint64_t workers);
  void exit_if_over(int index);

  Node& at(int index) { return nodes_[static_cast<size_t>(index)]; }
  Until& way(int from, int to) { return ways_[static_cast<size_t>(from * plan_.nodes + to)]; }
  Wire* find(uint64_t id) {
    const auto found = wires_.find(id);
    return found == wires_.end() ? nullptr : &found->second;
  }
  bool percent(int chance) { return prng_.chance(static_cast<uint64_t>(chance), 100); }
  Duration up_to_ms(uint64_t most) {
    return std::chrono::microseconds{prng_.below(1000 * most + 1)};
  }
  Duration latency();
  Duration latency(int from, int to);

  const Plan plan_;
  Prng prng_;
  SimKeeper keeper_;
  std::vector<Node> nodes_;
  std::vector<Duration> clocks_ahead_;  // By machine.
  HostingPromises promises_;
  std::vector<Happening> agenda_;  // A heap.
  std::map<uint64_t, Wire> wires_;
  std::vector<Until> ways_;           // From each machine to each.
  std::vector<Instant> keeper_cuts_;  // End of each machine's cut from the keeper.
  Instant keeper_out_{};              // End of the keeper's outage.
  Instant keeper_tick_ = kNever;
  struct Watch {
    std::string version;
    int node = 0;
    uint64_t life = 0;
    uint64_t errand = 0;
  };
  std::vector<Watch> watches_;

  Instant now_ = kStart;
  uint64_t next_order_ = 0;
  uint64_t next_life_ = 1;
  uint64_t next_wire_ = 1;
  bool healed_ = false;
  bool job_ended_ = false;
  bool finishing_ = false;
  bool tracing_ = false;
  uint64_t steps_ = 0;
  std::set<std::pair<membership::Epoch, membership::AgentId>> done_;
  std::vector<std::string> lines_;
};

}  // namespace muster::hostsim
