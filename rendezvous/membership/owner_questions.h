// Whose the store's clients at other machines' addresses are. The agents of the round's nodes there
// are asked, and one that says yes suffices: what a node admits to the store it could do itself.
// Pure.
//
//   a client comes ─┬─ an agent there cannot tell ──────▶ it may, as its address may; said once
//                   └─ all agents there are asked ─┬─ one says yes ────▶ it may
//                      (one that comes back, too)  ├─ all say no ──────▶ refused
//                                                  └─ no answer comes ─▶ refused
//
// An agent answers in milliseconds, but its process may stand still as it starts workers, and its
// connection may have broken just before. Waiting for it costs a job's own client time, and a
// stranger's nothing that it would have otherwise.
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
  // Whether an agent can tell whose a connection from its machine is.
  enum class Sight {
    clear,
    translated,  // No: addresses are translated between it and the host.
    blind,       // No: its kernel does not tell.
  };

  // ---- events

  struct ClientCame {
    uint64_t client = 0;  // Greater than that of every earlier one.
    SocketAddress from;
    SocketAddress store;
  };
  struct AgentCame {
    membership::ConnectionId connection = 0;
    IpAddress seen = {};  // The other end of its connection.
    std::optional<IpAddress> advertised = {};
    Sight sight = Sight::clear;
    std::string host = {};  // Its name for itself: may contain anything.
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

  static constexpr Duration kAnswerLimit = std::chrono::seconds(10);  // For those who are asked.
  static constexpr Duration kReturnLimit =
      std::chrono::seconds(1);              // Where there is nobody to ask.
  static constexpr size_t kOpenMax = 4096;  // Clients at one address that wait for an answer.

  // `is_member`: whether the agent of this connection is one of the round's.
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
    std::set<membership::ConnectionId> asked;  // And have not answered.
    bool was_denied = false;
    bool has_lost_one = false;  // Of those that were asked: it may come back.
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
  std::multimap<IpAddress, membership::ConnectionId> at_;  // Where they are seen, and advertised.
  Questions open_;                                         // By client.
  std::set<std::pair<Instant, uint64_t>> limits_;          // Theirs.
  std::map<IpAddress, size_t> waiting_;                    // How many of them are at each address.
  std::set<Sight> said_;
  std::vector<Effect>* out_ = nullptr;  // Only within step().
};

}  // namespace muster
