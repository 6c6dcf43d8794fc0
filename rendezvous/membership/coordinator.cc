#include "rendezvous/membership/coordinator.h"

#include <fmt/format.h>
#include <unistd.h>

#include "rendezvous/membership/agent_session.h"
#include "rendezvous/membership/hosted_job.h"
#include "rendezvous/membership/membership_text.h"
#include "rendezvous/membership/store_probe.h"
#include "rendezvous/net/half_open.h"

namespace muster {

using membership::AgentMessage;
using membership::HostMessage;
using membership::RefusalKind;

namespace {

constexpr size_t kEndedJobsKept = 64;
constexpr size_t kRefusalsSaid = 64;
constexpr size_t kEarlyStoreClientsSaid = 8;
constexpr auto kForsakenAfter = std::chrono::seconds(3);
constexpr auto kSayStayingAfter = std::chrono::seconds(3);
constexpr auto kIdleLook = std::chrono::milliseconds(50);
constexpr auto kNeighbourLook = std::chrono::seconds(1);
constexpr size_t kNeighboursNamed = 3;
// Far below unsent_bytes_max, so that datagrams get no slow agent disconnected.
constexpr size_t kUnsentForDelivery = size_t{256} << 10;

}  // namespace

Coordinator::Coordinator(boost::asio::io_context& io, std::unique_ptr<Listener> listener,
                         Options options)
    : io_(io),
      listener_(std::move(listener)),
      options_(std::move(options)),
      handshake_timer_(io),
      idle_timer_(io),
      neighbour_timer_(io) {
  const auto is_loopback = [](const SocketAddress& endpoint) { return endpoint.ip.is_loopback(); };
  if (options_.multi_node && options_.token.empty() &&
      !std::ranges::all_of(listener_->local_endpoints(), is_loopback)) {
    say(
        fmt::format("no job token: anyone who can reach port {} of this machine can join the job, "
                    "and an attacker on the network path can change what its nodes send; "
                    "--rdzv-token-file or MUSTER_TOKEN sets one",
                    listener_->port()));
  }
  make_job(options_.job_id);
  start_listening();
}

Coordinator::~Coordinator() {
  listener_->close();
  for (const auto& [id, session] : sessions_)
    session->finish();
}

void Coordinator::start_listening() {
  ListenHandlers handlers;
  handlers.agent = [this](Arrival arrival) { on_agent(std::move(arrival)); };
  handlers.store = [this](Arrival arrival) { on_store_client(std::move(arrival)); };
  handlers.crowded_out = [this](membership::ConnectionId id) { hang_up(id); };
  handlers.stranger = [this](const Stranger& stranger) {
    say(
        fmt::format("{} connected to the rendezvous port {} from {} and was disconnected: is the "
                    "port meant for another service?",
                    stranger.description, listener_->port(), stranger.peer.ip.to_string()));
  };
  handlers.trouble = [this](const std::string& message) { say(message); };
  listener_->start(std::move(handlers));
}

// ---- agents

void Coordinator::on_agent(Arrival arrival) {
  const membership::ConnectionId id = arrival.id;
  const LocalUsers::Found user = local_->look(arrival.fd.get());
  const auto session = std::make_shared<AgentSession>(
      io_, std::move(arrival),
      AgentSession::Options{options_.token, options_.membership.host_instance, options_.secret,
                            options_.job_id, options_.only_own_job, foreign_user(user),
                            options_.unsent_bytes_max});
  sessions_[id] = session;
  handshakes_.emplace_back(std::chrono::steady_clock::now() + options_.handshake_limit, id);
  if (handshakes_.size() == 1) expire_handshakes();
  session->start(
      {[this, id, user](const membership::Join& join) { on_joined(id, join, user.uid); },
       [this, id](const AgentMessage& message) {
         if (HostedJob* job = find_job(sessions_.at(id)->job_id())) job->on_message(id, message);
       },
       [this, id](const std::string& why, bool refused) { on_closed(id, why, refused); }});
}

// Closes without an answer: an agent that was crowded out tries again.
void Coordinator::hang_up(membership::ConnectionId id) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  const Session session = found->second;
  sessions_.erase(found);
  session->finish();
}

// Returns the peer's user if it must not join, as by accident at the default port; empty: it may.
std::string Coordinator::foreign_user(const LocalUsers::Found& found) const {
  if (!options_.token.empty() || !found.is_local || found.uid == ::geteuid()) return {};
  return user_text(found.uid);
}

void Coordinator::on_joined(membership::ConnectionId id, const membership::Join& join,
                            std::optional<uid_t> user) {
  listener_->proved(id);
  const Session session = sessions_.at(id);
  HostedJob* job = find_job(session->job_id());
  if (job == nullptr && may_make_job()) job = make_job(session->job_id());
  if (job == nullptr || sessions_.size() > options_.agents_max) {
    return session->refuse(
        RefusalKind::full,
        fmt::format("the host serves {} jobs and {} agents already: use another endpoint",
                    jobs_.size(), sessions_.size() - 1));
  }
  ++counters_.joined;
  if (user) job->store().admit(*user);
  job->on_joined(id, join, {session->agent_end(), session->host_end()});
  look_at_neighbours();
}

void Coordinator::on_closed(membership::ConnectionId id, const std::string& why, bool refused) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  const Session session = found->second;
  sessions_.erase(found);
  ++(refused ? counters_.refused : counters_.broken);
  if (refused) say_refusal(*session, why);
  if (!refused && session->is_seal_broken()) say_meddling(*session, why);
  if (HostedJob* job = find_job(session->job_id())) job->on_disconnected(id);
  look_if_idle();
}

// The refused node says this itself, but a user who waits for that node looks at this screen.
void Coordinator::say_refusal(const AgentSession& session, const std::string& told) {
  if (is_new_trouble(session, told))
    say(fmt::format("refused a node at {}; reason sent: {}", session.peer().to_string(), told));
}

void Coordinator::say_meddling(const AgentSession& session, const std::string& what) {
  if (is_new_trouble(session, what)) {
    say(
        fmt::format("the connection of the node at {} was closed, and may be opened anew: {}; with "
                    "a job token this would cost only the connection",
                    session.peer().to_string(), what));
  }
}

// True if no line about this from that machine was printed yet.
bool Coordinator::is_new_trouble(const AgentSession& session, const std::string& what) {
  return refusals_said_.size() < kRefusalsSaid &&
         refusals_said_.insert(machine_of(session.peer()).to_string() + what).second;
}

// ---- the store's clients on the agents' port

void Coordinator::on_store_client(Arrival arrival) {
  // An agent that waits for our answer probes whether this is a TCPStore server.
  if (arrival.bytes == store_question()) return;
  JobStore& store = find_job(options_.job_id)->store();
  const bool too_early = !store.is_shared() || !store.was_ever_open();
  if (too_early && early_store_clients_.size() < kEarlyStoreClientsSaid &&
      early_store_clients_.insert(machine_of(arrival.peer.ip)).second) {
    say(
        fmt::format("a PyTorch TCPStore client from {} connected to the rendezvous port {}: is a "
                    "torchrun agent started with the same endpoint? All nodes must run muster",
                    arrival.peer.ip.to_string(), listener_->port()));
  }
  if (store.is_shared()) store.adopt(std::move(arrival));
}

// ---- jobs

HostedJob* Coordinator::find_job(const std::string& id) {
  const auto found = jobs_.find(id);
  return found == jobs_.end() ? nullptr : found->second.get();
}

// True if there is room for another job: its store has descriptors and a port of its own.
bool Coordinator::may_make_job() const {
  Places& places = *listener_->places();
  return jobs_.size() < options_.jobs_max && (!places.is_full() || places.make_room());
}

HostedJob* Coordinator::make_job(const std::string& id) {
  HostedJob::Options job;
  job.id = id;
  job.own_agent = options_.own_agent;
  job.membership = options_.membership;
  if (id == options_.job_id) {
    job.hint = options_.hint;
  } else {
    job.membership.past = {};
  }
  job.store.addresses = listener_->local_endpoints();
  job.store.places = listener_->places();
  job.store.say = [this](const std::string& text) { say(text); };
  job.store.on_full = id == options_.job_id ? options_.on_store_full : job.store.say;
  if (id == options_.job_id) job.store.on_awaited = options_.on_keys_awaited;
  job.store.bytes_max = options_.store_bytes_max;
  job.store.clients = options_.clients;
  job.store.clients.local = local_;
  if (id == options_.job_id && options_.worker_port) {
    job.store.port = *options_.worker_port;
  } else if (id == options_.job_id) {
    job.store.shared_port = listener_->port();
  } else {
    job.places.push_back(listener_->places()->take());
    job.places.push_back(listener_->places()->take());
  }
  HostedJob::Handlers handlers;
  handlers.send = [this](membership::ConnectionId connection, const HostMessage& message) {
    const auto found = sessions_.find(connection);
    if (found == sessions_.end()) return;
    if (std::holds_alternative<membership::Delivered>(message) &&
        found->second->unsent() > kUnsentForDelivery)
      return;
    if (const auto* refused = std::get_if<membership::Refused>(&message))
      say_refusal(*found->second, refused->text);
    found->second->send(message);
  };
  handlers.hang_up = [this](membership::ConnectionId connection) { hang_up(connection); };
  handlers.finished = [this, id] { on_finished(id); };
  if (id == options_.job_id) {
    handlers.round_wanted = options_.round_wanted;
    handlers.ending_wanted = options_.ending_wanted;
  }
  auto made = std::make_unique<HostedJob>(io_, std::move(job), std::move(handlers));
  return (jobs_[id] = std::move(made)).get();
}

void Coordinator::grant(membership::Epoch epoch) {
  find_job(options_.job_id)->on_granted(epoch);
}

void Coordinator::grant_ending() {
  find_job(options_.job_id)->on_ending_granted();
}

// Keeps the machine, so that a latecomer learns how the job ended; drops only the oldest ones.
void Coordinator::on_finished(const std::string& id) {
  std::erase(ended_, id);  // All nodes of a job that has not begun may leave more than once.
  ended_.push_back(id);
  for (size_t i = ended_.size(); i > kEndedJobsKept; --i) {
    const std::string oldest = ended_.front();
    ended_.pop_front();
    const HostedJob* job = find_job(oldest);
    if (oldest == options_.job_id || oldest == id || job->connections() != 0 || !job->is_over()) {
      ended_.push_back(oldest);
    } else {
      jobs_.erase(oldest);
    }
  }
  if (idle_) look_if_idle();
}

// Tells waiting nodes of other waiting jobs: several jobs may share an endpoint, but nodes of one
// job that were given different ids look the same, and would wait without a hint.
void Coordinator::look_at_neighbours() {
  if (jobs_.size() < 2 || std::exchange(looking_at_neighbours_, true)) return;
  neighbour_timer_.expires_after(kNeighbourLook);
  call_alive(neighbour_timer_, [this] {
    looking_at_neighbours_ = false;
    bool any = false;
    for (const auto& [id, job] : jobs_) {
      any = any || job->waits_for_nodes() || job->connections() > 0;
      if (job->waits_for_nodes()) job->on_neighbours(neighbours_of(id));
    }
    if (any) look_at_neighbours();
  });
}

// "; job 'b' (on node1) waits here as well, ...", or "".
std::string Coordinator::neighbours_of(const std::string& id) const {
  std::string others;
  size_t count = 0;
  for (const auto& [other, job] : jobs_) {
    if (other == id || !job->waits_for_nodes() || ++count > kNeighboursNamed) continue;
    const std::vector<membership::NodeLine> nodes = job->nodes();
    const std::string host = nodes.empty() ? "" : membership::quiet_name(nodes.front().host);
    others +=
        fmt::format("{}'{}' (on {}{})", others.empty() ? "" : ", ", membership::quiet_name(other),
                    host, nodes.size() > 1 ? fmt::format(" and {} more", nodes.size() - 1) : "");
  }
  if (count == 0) return "";
  if (count > kNeighboursNamed) others += fmt::format(" and {} more", count - kNeighboursNamed);
  return fmt::format(
      "; {} {} here as well, and this is job '{}': nodes of one job need the same "
      "--rdzv-id",
      count == 1 ? "job " + others : "jobs " + others, count == 1 ? "waits" : "wait",
      membership::quiet_name(id));
}

// Calls `then` once `timer` expires, unless this object is destroyed before the handler's turn.
void Coordinator::call_alive(boost::asio::steady_timer& timer, std::function<void()> then) {
  timer.async_wait(
      [alive = std::weak_ptr(alive_), then = std::move(then)](boost::system::error_code error) {
        if (!error && !alive.expired()) then();
      });
}

// ---- handshakes

// Closes sessions whose handshake is late, and waits for the next deadline.
void Coordinator::expire_handshakes() {
  const SteadyTime now = std::chrono::steady_clock::now();
  while (!handshakes_.empty() && handshakes_.front().first <= now) {
    const auto found = sessions_.find(handshakes_.front().second);
    handshakes_.pop_front();
    if (found == sessions_.end() || found->second->is_joined()) continue;
    const Session session = found->second;
    sessions_.erase(found);
    ++counters_.timed_out;
    session->finish();
  }
  if (handshakes_.empty()) return;
  handshake_timer_.expires_at(handshakes_.front().first);
  call_alive(handshake_timer_, [this] { expire_handshakes(); });
}

// ---- the end

void Coordinator::wait_until_idle(std::function<void()> idle) {
  idle_ = std::move(idle);
  closing_since_ = std::chrono::steady_clock::now();
  look_if_idle();
}

void Coordinator::look_if_idle() {
  if (!idle_) return;
  const SteadyTime now = std::chrono::steady_clock::now();
  const std::string who = who_needs_us(now);
  if (!who.empty() && !said_staying_ && now - closing_since_ >= kSayStayingAfter) {
    said_staying_ = true;
    say(fmt::format(
        "this node is the host of the rendezvous: it stays until {} (a signal ends it at once)",
        who));
  }
  // Posted to the loop, so that `idle` may destroy this object.
  idle_timer_.expires_after(who.empty() ? Duration::zero() : Duration(kIdleLook));
  // After a second wait_until_idle() both handlers may run: hence the check of idle_.
  call_alive(idle_timer_, [this, leave = who.empty()] {
    if (!idle_) return;
    if (!leave) return look_if_idle();
    const std::function<void()> idle = std::exchange(idle_, nullptr);
    idle();
  });
}

// Returns "the 3 agents of job 'a' have gone", or "".
std::string Coordinator::who_needs_us(SteadyTime now) const {
  size_t jobs = 0;
  size_t agents = 0;
  std::string name;
  for (const auto& [id, job] : jobs_) {
    if (job->has_untold()) return "the other nodes know that the job cannot start";
    if (job->is_over() || !job->has_others(now - kForsakenAfter)) continue;
    ++jobs;
    agents += job->connections();
    name = id;
  }
  if (jobs == 0) return {};
  const std::string who = agents == 1 ? "the agent" : fmt::format("the {} agents", agents);
  const std::string gone = agents == 1 ? "has gone" : "have gone";
  if (jobs == 1) return fmt::format("{} of job '{}' {}", who, name, gone);
  return fmt::format("{} of {} jobs {}", who, jobs, gone);
}

Coordinator::Counters Coordinator::counters() const {
  Counters counters = counters_;
  counters.sessions = sessions_.size();
  counters.jobs = jobs_.size();
  return counters;
}

std::string Coordinator::status() const {
  std::string text;
  for (const auto& [id, job] : jobs_)
    text += fmt::format("{}job '{}': {}", text.empty() ? "" : "; ", id, job->status());
  return text;
}

std::vector<membership::NodeLine> Coordinator::nodes() const {
  return jobs_.at(options_.job_id)->nodes();
}

void Coordinator::say(const std::string& text) const {
  if (options_.say) options_.say(text);
}

}  // namespace muster
