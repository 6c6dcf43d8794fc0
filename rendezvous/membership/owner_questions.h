// Decides which store clients at other machines' addresses may come. Asks the agents of the round's
// nodes there; one yes suffices, since a node could do itself what it lets a client do. Pure.
//
//   a client comes ─┬─ an agent there cannot tell ──────▶ it may, as its address may; said once
//                   └─ all agents there are asked ─┬─ one says yes ────▶ it may
//                      (one that comes back, too)  ├─ all say no ──────▶ refused
//                                                  └─ no answer comes ─▶ refused
//
// An agent answers in milliseconds, but may stand still as it starts workers, or its connection may
// just have broken. Waiting costs the job's own clients time, and gives others nothing.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rendezvous/base/time.h"
#include "rendezvous/membership/agent_protocol.h"
#include "rendezvous/membership/membership.h"
#include "rendezvous/net/address.h"

namespace muster {

class OwnerQuestions {
 public:
  // An agent's ability to say who owns a connection from its machine.
  enum class Sight {
    clear,
    translated,  // None: addresses are translated between it and the host.
    blind,       // None: its kernel does not show owners.
  };

  // ---- events

  struct ClientCame {
    uint64_t client = 0;  // Greater than that of every earlier one.
    SocketAddress from;
    SocketAddress store;
  };
  struct AgentCame {
    membership::ConnectionId connection = 0;
    IpAddress seen = {};  // The agent's end of its connection, as seen here.
    std::optional<IpAddress> advertised = {};
    Sight sight = Sight::clear;
    std::string host = {};  // The node's own name: may contain anything.
  };
  struct AgentGone {
    membership::ConnectionId connection = 0;
  };
  struct Answered {
    membership::ConnectionId connection = 0;
    membership::Belongs answer;
  };
  struct Tick {};

  // ---- effects

  struct Ask {
    membership::ConnectionId connection = 0;
    membership::WhoseIs question;
    friend bool operator==(const Ask&, const Ask&) = default;
  };
  struct Decided {
    uint64_t client = 0;
    bool may_come = false;
    std::string text;  // A line about a refusal.
    friend bool operator==(const Decided&, const Decided&) = default;
  };
  struct Say {
    std::string text;
    friend bool operator==(const Say&, const Say&) = default;
  };

  using Event = std::variant<ClientCame, AgentCame, AgentGone, Answered, Tick>;
  using Effect = std::variant<Ask, Decided, Say>;

  static constexpr Duration kAnswerLimit = std::chrono::seconds(10);  // Limit for asked agents.
  static constexpr Duration kReturnLimit = std::chrono::seconds(1);   // Limit without any to ask.
  static constexpr size_t kOpenMax = 4096;  // Clients at one address that wait for an answer.

  // `is_member`: true if this connection's agent is one of the round's.
  explicit OwnerQuestions(std::function<bool(membership::ConnectionId)> is_member)
      : is_member_(std::move(is_member)) {}

  void step(Instant now, const Event& event, std::vector<Effect>& out);
  Instant next_deadline() const { return limits_.empty() ? kNever : limits_.begin()->first; }

 private:
  struct Open {
    Instant since{};
    Instant until{};
    SocketAddress from;
    SocketAddress store;
    std::set<membership::ConnectionId> asked;  // Agents that have not answered.
    bool was_denied = false;
    bool has_lost_one = false;  // An asked agent is gone; it may come back.
  };
  using Questions = std::map<uint64_t, Open>;
  using Agents = std::vector<const AgentCame*>;

  void on(Instant now, const ClientCame& event);
  void on(Instant now, const AgentCame& event);
  void on(Instant now, const AgentGone& event);
  void on(Instant now, const Answered& event);
  void on(Instant now, const Tick& event);

  Agents agents_at(const IpAddress& address) const;
  void ask(Questions::iterator question, const AgentCame& agent);
  void wait_until(Questions::iterator question, Instant until);
  void decide(Questions::iterator question, bool may_come, std::string text = {});
  void refuse(Questions::iterator question);
  void say_unchecked(const AgentCame& agent);

  const std::function<bool(membership::ConnectionId)> is_member_;
  std::map<membership::ConnectionId, AgentCame> agents_;
  std::multimap<IpAddress, membership::ConnectionId> at_;  // Keyed by address: seen, advertised.
  Questions open_;                                         // Keyed by client.
  std::set<std::pair<Instant, uint64_t>> limits_;          // Deadlines of open_.
  std::map<IpAddress, size_t> waiting_;                    // Open questions per client address.
  std::set<Sight> said_;
  std::vector<Effect>* out_ = nullptr;  // Only within step().
};

}  // namespace muster
