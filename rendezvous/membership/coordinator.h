// The host's shell: takes the agents' connections of one listening port, has them prove the job's
// token, and performs what each job's Membership machine decides. One per host process; job ids
// separate the jobs. The host's own job has its store behind the same port; other jobs get a store
// port of their own for each round. One thread: the loop's.
//
// A bad agent's cost to the others is bounded: handshakes have a deadline and a place that others
// may need (Listener), frames and unsent bytes have limits, and a peer that exceeds one is
// disconnected. An ended job is kept (a few hundred bytes and its machine) to inform latecomers.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/base/time.h"
#include "rendezvous/membership/agent_protocol.h"
#include "rendezvous/membership/client_check.h"
#include "rendezvous/membership/membership.h"
#include "rendezvous/net/address.h"
#include "rendezvous/net/listener.h"
#include "rendezvous/net/local_users.h"

namespace muster {

class AgentSession;
class HostedJob;

class Coordinator {
 public:
  struct Options {
    std::string job_id;             // The job whose store shares the port.
    membership::AgentId own_agent;  // This process's: node rank 0 unless another node has it.
    std::string secret;             // Random; see AgentSession.
    std::string token;              // Empty: none is required.
    std::string hint;               // job_id's; see HostedJob.
    // A round of job_id wants to begin; it waits for grant(). Null: it begins at once.
    std::function<void(const membership::Formed&)> round_wanted;
    // job_id wants to end; it waits for grant_ending(). Null: it ends at once.
    std::function<void(const membership::End&)> ending_wanted;
    Membership::Options membership;  // `past` is job_id's.
    bool only_own_job = false;       // Agents of other jobs are turned away.
    std::optional<int> worker_port;  // job_id's store listens there instead (0: a free one).
    size_t store_bytes_max = size_t{1} << 30;
    ClientCheck::Options clients;  // See RendezvousOptions.
    bool multi_node = true;        // A missing token is worth a warning.
    Duration handshake_limit = std::chrono::seconds(10);
    size_t unsent_bytes_max = size_t{4} << 20;
    size_t jobs_max = 1024;
    size_t agents_max = 65536;
    std::function<void(const std::string&)> say;            // Prints a line for the user.
    std::function<void(const std::string&)> on_store_full;  // job_id's; see JobStore.
    std::function<void(uint64_t epoch, std::vector<AwaitedKeys>)> on_keys_awaited;  // The same.
  };

  struct Counters {
    uint64_t joined = 0, refused = 0, broken = 0, timed_out = 0;
    size_t sessions = 0, jobs = 0;  // Current.
    friend bool operator==(const Counters&, const Counters&) = default;
  };

  // Starts serving at once.
  Coordinator(boost::asio::io_context& io, std::unique_ptr<Listener> listener, Options options);
  Coordinator(Coordinator&&) = delete;
  ~Coordinator();

  void grant(membership::Epoch epoch);
  void grant_ending();

  uint16_t port() const { return listener_->port(); }
  Counters counters() const;

  // Calls `idle` once no agent needs this host: every job is over, or has had no agent of another
  // process for a few seconds. Says so if that takes longer than 3 s.
  void wait_until_idle(std::function<void()> idle);

  // One line for each job.
  std::string status() const;
  // All nodes of the host's own job.
  std::vector<membership::NodeLine> nodes() const;

 private:
  using SteadyTime = std::chrono::steady_clock::time_point;
  using Session = std::shared_ptr<AgentSession>;

  void start_listening();
  std::string foreign_user(const LocalUsers::Found& found) const;
  void on_agent(Arrival arrival);
  void hang_up(membership::ConnectionId id);
  void on_joined(membership::ConnectionId id, const membership::Join& join,
                 std::optional<uid_t> user);
  void on_closed(membership::ConnectionId id, const std::string& why, bool refused);
  void say_refusal(const AgentSession& session, const std::string& told);
  void say_meddling(const AgentSession& session, const std::string& what);
  bool is_new_trouble(const AgentSession& session, const std::string& what);
  void on_store_client(Arrival arrival);
  HostedJob* find_job(const std::string& id);
  bool may_make_job() const;
  HostedJob* make_job(const std::string& id);
  void on_finished(const std::string& id);
  void look_at_neighbours();
  void call_alive(boost::asio::steady_timer& timer, std::function<void()> then);
  std::string neighbours_of(const std::string& id) const;
  void expire_handshakes();
  void look_if_idle();
  std::string who_needs_us(SteadyTime now) const;
  void say(const std::string& text) const;

  boost::asio::io_context& io_;
  std::unique_ptr<Listener> listener_;
  Options options_;
  const std::shared_ptr<LocalUsers> local_ = std::make_shared<LocalUsers>();
  Counters counters_;
  std::map<membership::ConnectionId, Session> sessions_;
  std::map<std::string, std::unique_ptr<HostedJob>> jobs_;
  std::deque<std::string> ended_;  // Job ids, oldest first.
  // Sessions in the handshake, by deadline: the time-out is the same for all.
  std::deque<std::pair<SteadyTime, membership::ConnectionId>> handshakes_;
  boost::asio::steady_timer handshake_timer_;
  boost::asio::steady_timer idle_timer_;
  boost::asio::steady_timer neighbour_timer_;
  bool looking_at_neighbours_ = false;
  std::function<void()> idle_;
  SteadyTime closing_since_{};
  bool said_staying_ = false;
  std::set<std::string> refusals_said_;
  std::set<IpAddress> early_store_clients_;
  const std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // See call_alive().
};

}  // namespace muster
