// The promises of the rendezvous, checked against the truth of the simulated world after every step
// of a machine. The host's promises hold for one life of its process; a restarted host must also
// respect what the agents that join it already know.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "rendezvous/base/time.h"
#include "rendezvous/membership/member.h"
#include "rendezvous/membership/membership.h"
#include "tests/sim/membership_plan.h"

namespace muster::roundsim {

class World;

class MembershipPromises {
 public:
  MembershipPromises(const Plan& plan, const World& world) : plan_(plan), world_(world) {}

  void host_started(uint64_t life);
  void host_died();
  void host_frozen(Instant until);
  void host_hears(Instant now, const Membership::Event& event);
  void host_asks(Instant now, const Membership::Effect& effect);
  void host_stepped(Instant now);

  void agent_started(int node);
  void agent_hears(Instant now, int node, const Member::Event& event);
  void agent_asks(Instant now, int node, const Member::Effect& effect);
  void agent_stepped(Instant now, int node);
  void worker_failed(Instant now, int node, membership::Epoch epoch);
  // Names the failure that is first by the times that the nodes reported.
  membership::Judgement judge(const std::vector<membership::Testimony>& testimonies);

  void violate(std::string promise) {
    if (!broken_) broken_ = std::move(promise);
  }
  const std::optional<std::string>& broken() const { return broken_; }

  // True once the host's job has ended, even if no agent was connected.
  bool has_ended() const { return has_ended_; }

  // Nodes of the newest round whose workers have exited with 0 and which are gone.
  std::set<int> done_and_gone() const;

  // Totals of a run, which show what its seed reached.
  struct Reached {
    int rounds = 0;
    int restarts = 0;
    int losses = 0;
    int host_returns = 0;
    int agents_ended = 0;
    int agents_gave_up = 0;
    std::set<membership::EndWhy> ends;
    std::set<membership::StopWhy> stops;
  };
  const Reached& reached() const { return reached_; }

 private:
  using ConnectionId = membership::ConnectionId;
  using Epoch = membership::Epoch;

  static constexpr Duration kGrace = std::chrono::milliseconds{250};  // As in Membership::Options.
  static constexpr Duration kSlack = std::chrono::milliseconds{50};   // Maximal delay of a step.

  struct Agent {
    int node = 0;
    membership::Join join;
    ConnectionId connection = 0;  // 0: none.
    Instant heard{};
    Instant hung_up{};
    Instant gone{};  // Time of the loss of its connection, if it has none.
    bool welcomed = false;
    bool parted = false;
    bool lost = false;         // Lost to the newest round, though it may come back.
    bool interrupted = false;  // True if it has reconnected since it received its round.
    uint64_t orders = 0;       // Newest sequence number.
    membership::Order order;
    uint64_t reports = 0;
    Instant joined{};  // Time since which the host must know it.
    Epoch epoch = 0;   // From its newest report.
    membership::Phase phase = membership::Phase::ready;
  };
  // One round of this life of the host.
  struct Formed {
    std::set<int> nodes;                                      // All of its nodes.
    std::map<membership::AgentId, membership::Round> rounds;  // Rounds as sent to its nodes.
    bool disturbed = false;  // True if it may have ended for a reason other than a failure.
    bool failed = false;     // True once a worker has failed in it.
    bool lost_checked = false;
    bool stopped = false;  // True once a Stop or an End was sent, or its store was closed.
    int restarts = 0;
  };

  void check(bool holds, const std::string& promise) {
    if (!holds) violate(promise);
  }
  void heard(Instant now, const membership::Joined& event);
  void heard(Instant now, const membership::Reported& event);
  void heard(Instant now, const membership::Parted& event);
  void heard(Instant now, const membership::Disconnected& event);
  void heard(Instant, const membership::StoreOpened&) {}
  void heard(Instant, const membership::StoreFailed&) {}
  void heard(Instant, const membership::Neighbours&) {}
  void heard(Instant, const membership::Tick&) {}

  void asked(Instant now, const membership::Send& effect);
  void asked(Instant now, const membership::Hangup& effect);
  void asked(Instant now, const membership::OpenStore& effect);
  void asked(Instant now, const membership::CloseStore& effect);
  void asked(Instant now, const membership::Finished& effect);
  void asked(Instant now, const membership::Say& effect);
  void asked(Instant now, const membership::Note& effect);

  void ordered(Instant now, Agent& agent, const membership::Order& order);
  void ordered(Instant now, const Agent& agent, const membership::Round& round);
  void ordered(Instant now, const Agent& agent, const membership::Stop& stop);
  void ordered(Instant now, const Agent& agent, const membership::End& end);
  void ordered(Instant, const Agent&, const membership::Wait&) {}

  Agent* agent_on(ConnectionId connection);
  bool may_be_waited_for(const Agent& agent, bool before_it_is_told = false) const;
  bool is_needed(Instant now, const Agent& agent, Duration known = {}) const;
  bool may_be_lost(Instant now, const Agent& agent) const;
  bool is_silent(Instant now, const Agent& agent) const;
  Duration longest_grace(const Agent& agent) const;
  bool shows_network(Instant now, const Agent& agent) const;
  bool is_host_cut_off(Instant now) const;
  void check_ranks(const Formed& formed);
  void check_budget(Epoch epoch, const membership::Round& round);
  void job_ended();
  void check_success();
  void check_time(const Agent& agent, const membership::Report& report);
  void check_prompt(Instant now, const Formed& formed);
  void disturb(int node);

  const Plan& plan_;
  const World& world_;
  std::optional<std::string> broken_;
  Reached reached_;

  // State of this life of the host.
  uint64_t host_life_ = 0;
  std::map<membership::AgentId, Agent> agents_;
  std::map<ConnectionId, membership::AgentId> connections_;  // Open at the host.
  std::set<ConnectionId> refused_;
  std::map<Epoch, Formed> formed_;
  Epoch open_store_ = 0;  // 0: none.
  Epoch newest_ = 0;
  bool newest_checked_ = true;
  bool failure_heard_ = false;          // True if this step reported a failure of the newest round.
  Instant awake_since_{};               // End of the last pause that the host must have noticed.
  Instant last_pause_{};                // End of the last pause of any length.
  std::optional<membership::End> end_;  // As it was sent.
  bool has_ended_ = false;
  std::optional<int> undone_;  // A connected node whose workers had not succeeded at the end.
  bool finished_ = false;
  bool doubts_itself_ = false;

  // State of the whole run.
  std::map<uint64_t, membership::End> ends_;            // By the host's life.
  std::set<std::pair<uint64_t, Epoch>> failed_rounds_;  // Rounds in which a worker failed.
  std::map<std::tuple<uint64_t, Epoch, int>, Instant> failed_at_;  // By host life, epoch and node.
  std::set<std::pair<membership::AgentId, Epoch>> done_;  // Agents whose workers all succeeded.
  std::map<int, Epoch> agent_epochs_;                     // By node: newest epoch of its process.
  std::map<int, uint64_t> agent_hosts_;  // By node: life of the host that it joined.
  std::set<int> agents_over_;
  struct Contact {
    Instant heard{};            // Time of the last message from its host.
    uint64_t instance = 0;      // Host instance of the last Welcome.
    uint64_t of_the_round = 0;  // Host instance of the newest round.
  };
  std::map<int, Contact> contacts_;  // By node.
};

}  // namespace muster::roundsim
