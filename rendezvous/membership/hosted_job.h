// One job at its host: the Membership machine with its clock, and the job's store. Knows
// connections by number only; the Coordinator owns them. One thread: the loop's.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "rendezvous/base/steady_now.h"
#include "rendezvous/membership/agent_protocol.h"
#include "rendezvous/membership/datagram_budget.h"
#include "rendezvous/membership/job_store.h"
#include "rendezvous/membership/membership.h"
#include "rendezvous/membership/owner_questions.h"
#include "rendezvous/net/address.h"
#include "rendezvous/net/drive.h"

namespace muster {

class HostedJob {
 public:
  struct Options {
    std::string id;
    membership::AgentId own_agent;
    Membership::Options membership;
    JobStore::Options store;
    std::vector<Place> places;  // Room for the store's own descriptors.
    // Why others may not find this host ("; node1 is 127.0.1.1 here, ..."): shown to waiting nodes
    // until a node of another machine has joined.
    std::string hint;
  };
  // Both ends of an agent's connection, as seen here.
  struct Ends {
    SocketAddress agent;
    SocketAddress host;
  };
  struct Handlers {
    std::function<void(membership::ConnectionId, const membership::HostMessage&)> send;
    std::function<void(membership::ConnectionId)> hang_up;
    std::function<void()> finished;
    // A round wants to begin; it waits for on_granted(). Null: it begins at once.
    std::function<void(const membership::Formed&)> round_wanted;
    // The job wants to end; it waits for on_ending_granted(). Called once; null: it ends at once.
    std::function<void(const membership::End&)> ending_wanted;
  };

  HostedJob(boost::asio::io_context& io, Options options, Handlers handlers);

  void on_joined(membership::ConnectionId connection, membership::Join join, const Ends& ends);
  void on_message(membership::ConnectionId connection, const membership::AgentMessage& message);
  void on_disconnected(membership::ConnectionId connection);

  // See Membership.
  bool waits_for_nodes() const { return machine_.waits_for_nodes(steady_now()); }
  bool has_untold() const { return machine_.has_untold(steady_now()); }
  void on_neighbours(std::string text);
  void on_granted(membership::Epoch epoch);
  void on_ending_granted();

  JobStore& store() { return store_; }
  bool is_over() const { return is_over_; }
  // True if agents of other processes are connected, or were after `since`.
  bool has_others(std::chrono::steady_clock::time_point since) const;
  size_t connections() const { return connections_.size(); }
  std::string status() const { return machine_.status(steady_now()); }
  std::vector<membership::NodeLine> nodes() const { return machine_.nodes(steady_now()); }

 private:
  struct Seen {
    std::string advertised;
    IpAddress address;  // The agent's end as seen here: NAT may have changed it.
  };

  // Queries of one connection within one second.
  struct Curiosity {
    std::chrono::steady_clock::time_point since;
    int queries = 0;
  };

  JobStore::Options store_options();
  void perform(const Membership::Effect& effect);
  void perform(const OwnerQuestions::Effect& effect);
  void send(const membership::Send& effect);
  bool may_tell(const membership::End& end);
  bool forget(membership::ConnectionId connection);
  void answer(membership::ConnectionId connection, const membership::Query& query);
  void relay(membership::ConnectionId connection, const membership::Datagram& datagram);
  bool is_too_curious(membership::ConnectionId connection);
  void tell_neighbours() { drive_.post(membership::Neighbours{options_.hint + neighbours_}); }
  void leave_notice(const membership::HostMessage& message);
  void open_store(const membership::OpenStore& request);
  void note_nodes(std::vector<AwaitedKeys>& waits) const;
  JobStore::Allowed allowed(const std::vector<std::string>& advertised) const;

  Options options_;
  Handlers handlers_;
  JobStore store_;
  Membership machine_;
  Drive<Membership, membership::Tick> drive_;
  OwnerQuestions questions_;  // Which store clients may come.
  Drive<OwnerQuestions, OwnerQuestions::Tick> questions_drive_;
  std::set<std::string> refusals_said_;
  std::map<membership::AgentId, Seen> seen_;
  std::map<membership::ConnectionId, DatagramBudget> connections_;
  std::set<membership::ConnectionId> others_;  // Those of other processes' agents.
  std::map<membership::ConnectionId, Curiosity> curious_;
  std::chrono::steady_clock::time_point others_until_{};
  std::string neighbours_;  // The last text sent.
  std::optional<membership::OpenStore> ungranted_;
  bool ending_asked_ = false;
  bool ending_granted_ = false;
  std::map<membership::ConnectionId, membership::HostMessage> held_;  // Ends not granted yet.
  bool is_over_ = false;
  bool has_ended_ = false;
};

}  // namespace muster
