#include "rendezvous/membership/hosted_job.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "rendezvous/net/interfaces.h"

namespace muster {

using membership::AgentMessage;

namespace {

// Limited because an answer costs the host work in proportion to the number of nodes.
constexpr int kQueriesInSecond = 20;
constexpr size_t kClientRefusalsSaid = 100;

// Ignores the scope: that of a link-local address differs between machines.
bool is_same_end(const std::string& text, const SocketAddress& end) {
  const auto there = SocketAddress::parse(text);
  return there && there->port == end.port && there->ip.is_v6() == end.ip.is_v6() &&
         there->ip.bytes() == end.ip.bytes();
}

OwnerQuestions::Sight sight_of(const membership::Join& join, const HostedJob::Ends& ends) {
  if (!is_same_end(join.own_end, ends.agent) || !is_same_end(join.host_end, ends.host))
    return OwnerQuestions::Sight::translated;
  return join.knows_owners ? OwnerQuestions::Sight::clear : OwnerQuestions::Sight::blind;
}

}  // namespace

HostedJob::HostedJob(boost::asio::io_context& io, Options options, Handlers handlers)
    : options_(std::move(options)),
      handlers_(std::move(handlers)),
      store_(io, store_options()),
      machine_(options_.membership),
      drive_(io, machine_, [this](const Membership::Effect& effect) { perform(effect); }),
      questions_([this](membership::ConnectionId agent) { return machine_.is_member(agent); }),
      questions_drive_(io, questions_,
                       [this](const OwnerQuestions::Effect& effect) { perform(effect); }) {}

JobStore::Options HostedJob::store_options() {
  JobStore::Options store = options_.store;
  store.ask = [this](uint64_t client, const SocketAddress& from, const SocketAddress& to) {
    questions_drive_.post(OwnerQuestions::ClientCame{client, from, to});
  };
  if (!store.on_awaited) return store;
  store.on_awaited = [this](uint64_t epoch, std::vector<AwaitedKeys> waits) {
    note_nodes(waits);
    options_.store.on_awaited(epoch, std::move(waits));
  };
  return store;
}

// A client is on the only node at its address; all addresses of this machine count as one.
void HostedJob::note_nodes(std::vector<AwaitedKeys>& waits) const {
  const std::vector<IpAddress> own = read_own_addresses();
  const auto place = [&own](const IpAddress& address) {
    return is_own_address(address, own) ? IpAddress::loopback_v4() : address;
  };
  std::map<IpAddress, int> nodes;  // -1: several.
  const std::vector<membership::AgentId> members = machine_.formed().members;
  for (size_t node = 0; node < members.size(); ++node) {
    const auto seen = seen_.find(members[node]);
    if (seen == seen_.end()) continue;
    const auto [known, is_new] =
        nodes.try_emplace(place(seen->second.address), static_cast<int>(node));
    if (!is_new) known->second = -1;
  }
  for_each_client(waits, [&](KeyClient& client) {
    const auto node = nodes.find(place(client.address));
    if (node != nodes.end()) client.node_rank = node->second;
  });
}

void HostedJob::on_joined(membership::ConnectionId connection, membership::Join join,
                          const Ends& ends) {
  // Only this process knows which agent is its own; any agent can claim to be.
  join.is_host = join.agent == options_.own_agent;
  connections_.try_emplace(connection);
  if (!join.is_host) others_.insert(connection);
  const membership::AgentId id = join.agent;
  seen_[id] = {join.advertised, ends.agent.ip};
  OwnerQuestions::AgentCame agent{connection, ends.agent.ip, IpAddress::parse(join.advertised),
                                  sight_of(join, ends), join.host_name};
  if (!options_.hint.empty()) {
    if (!ends.agent.ip.is_loopback()) options_.hint.clear();
    tell_neighbours();
  }
  drive_.post(membership::Joined{connection, std::move(join)});
  // The join may have been refused.
  if (!connections_.contains(connection)) return static_cast<void>(seen_.erase(id));
  is_over_ = has_ended_;
  questions_drive_.post(std::move(agent));
}

void HostedJob::on_message(membership::ConnectionId connection, const AgentMessage& message) {
  if (const auto* report = std::get_if<membership::Report>(&message)) {
    drive_.post(membership::Reported{connection, *report});
  } else if (std::holds_alternative<membership::Goodbye>(message)) {
    drive_.post(membership::Parted{connection});
  } else if (const auto* query = std::get_if<membership::Query>(&message)) {
    answer(connection, *query);
  } else if (const auto* datagram = std::get_if<membership::Datagram>(&message)) {
    relay(connection, *datagram);
  } else if (const auto* answer = std::get_if<membership::Belongs>(&message)) {
    questions_drive_.post(OwnerQuestions::Answered{connection, *answer});
  }
}

void HostedJob::answer(membership::ConnectionId connection, const membership::Query& query) {
  if (!connections_.contains(connection)) return;
  std::vector<membership::NodeLine> lines;
  if (!is_too_curious(connection)) lines = nodes();
  for (membership::Nodes& part : membership::nodes_answer(query.id, std::move(lines)))
    handlers_.send(connection, std::move(part));
}

void HostedJob::relay(membership::ConnectionId connection, const membership::Datagram& datagram) {
  const auto sender = connections_.find(connection);
  const Instant now = steady_now();
  if (sender == connections_.end() || sender->second.is_spent(now)) return;
  const Membership::Route route = machine_.route(connection, datagram.epoch, datagram.to);
  sender->second.spend(now, datagram.payload.size(), route.receivers.size());
  if (route.receivers.empty()) return;
  const membership::HostMessage message = membership::Delivered{
      datagram.epoch, route.from, datagram.at, datagram.at_error, datagram.payload};
  for (const membership::ConnectionId receiver : route.receivers)
    handlers_.send(receiver, message);
}

bool HostedJob::is_too_curious(membership::ConnectionId connection) {
  const auto now = std::chrono::steady_clock::now();
  Curiosity& curiosity = curious_[connection];
  if (now - curiosity.since >= std::chrono::seconds(1)) curiosity = {now, 0};
  return ++curiosity.queries > kQueriesInSecond;
}

void HostedJob::on_disconnected(membership::ConnectionId connection) {
  if (forget(connection)) drive_.post(membership::Disconnected{connection});
}

// Returns false if the connection is unknown.
bool HostedJob::forget(membership::ConnectionId connection) {
  curious_.erase(connection);
  held_.erase(connection);
  questions_drive_.post(OwnerQuestions::AgentGone{connection});
  if (others_.erase(connection) != 0) others_until_ = std::chrono::steady_clock::now();
  return connections_.erase(connection) != 0;
}

bool HostedJob::has_others(std::chrono::steady_clock::time_point since) const {
  return !others_.empty() || others_until_ > since;
}

void HostedJob::on_neighbours(std::string text) {
  if (text == neighbours_) return;
  neighbours_ = std::move(text);
  tell_neighbours();
}

void HostedJob::perform(const Membership::Effect& effect) {
  struct Perform {
    HostedJob& self;
    void operator()(const membership::Send& e) const { self.send(e); }
    void operator()(const membership::Hangup& e) const {
      self.forget(e.connection);
      self.handlers_.hang_up(e.connection);
    }
    void operator()(const membership::OpenStore& e) const {
      if (!self.handlers_.round_wanted) return self.open_store(e);
      self.ungranted_ = e;
      self.handlers_.round_wanted(self.machine_.formed());
    }
    void operator()(const membership::CloseStore&) const {
      self.ungranted_.reset();
      self.store_.close();
    }
    void operator()(const membership::Finished& e) const {
      self.is_over_ = true;
      self.has_ended_ = e.has_ended;
      if (e.has_ended) self.options_.places.clear();  // It has no store any more.
      self.handlers_.finished();
    }
    void operator()(const membership::Say& e) const { self.store_.say(e.text); }
    void operator()(const membership::Note&) const {}
  };
  std::visit(Perform{*this}, effect);
}

void HostedJob::send(const membership::Send& effect) {
  const auto* const order = std::get_if<membership::Order>(&effect.message);
  if (order != nullptr && std::holds_alternative<membership::End>(order->what) &&
      !may_tell(std::get<membership::End>(order->what))) {
    held_[effect.connection] = effect.message;
    return;
  }
  leave_notice(effect.message);
  handlers_.send(effect.connection, effect.message);
}

// A host that was cut off takes the others for lost, while they may go on with another host.
bool HostedJob::may_tell(const membership::End& end) {
  if (!handlers_.ending_wanted) return true;
  if (!std::exchange(ending_asked_, true)) handlers_.ending_wanted(end);
  return ending_granted_ || machine_.all_were_there();
}

void HostedJob::on_ending_granted() {
  ending_granted_ = true;
  for (const auto& [connection, message] : std::exchange(held_, {})) {
    leave_notice(message);
    handlers_.send(connection, message);
  }
}

void HostedJob::perform(const OwnerQuestions::Effect& effect) {
  struct Perform {
    HostedJob& self;
    void operator()(const OwnerQuestions::Ask& e) const {
      self.handlers_.send(e.connection, e.question);
    }
    void operator()(const OwnerQuestions::Decided& e) const {
      const bool was_there = self.store_.decide(e.client, e.may_come);
      if (was_there && !e.may_come && self.refusals_said_.size() < kClientRefusalsSaid &&
          self.refusals_said_.insert(e.text).second)
        self.store_.say(e.text);
    }
    void operator()(const OwnerQuestions::Say& e) const { self.store_.say(e.text); }
  };
  std::visit(Perform{*this}, effect);
}

void HostedJob::on_granted(membership::Epoch epoch) {
  if (!ungranted_ || ungranted_->epoch != epoch) return;
  const membership::OpenStore request = *std::exchange(ungranted_, std::nullopt);
  open_store(request);
}

// Called before an Order is sent, so that workers can read the reason before any is stopped.
void HostedJob::leave_notice(const membership::HostMessage& message) {
  const auto* const order = std::get_if<membership::Order>(&message);
  if (order == nullptr) return;
  if (const auto* stop = std::get_if<membership::Stop>(&order->what)) {
    const bool is_failure =
        stop->why == membership::StopWhy::failure || stop->why == membership::StopWhy::lost;
    store_.leave_notice({stop->text, is_failure, machine_.failed_rank()});
  } else if (const auto* end = std::get_if<membership::End>(&order->what)) {
    if (end->why == membership::EndWhy::success) return;
    const bool is_failure =
        end->why == membership::EndWhy::failed || end->why == membership::EndWhy::lost;
    store_.leave_notice({end->text, is_failure, machine_.failed_rank()});
  }
}

void HostedJob::open_store(const membership::OpenStore& request) {
  const Result<int> port = store_.open(request.epoch, allowed(request.addresses));
  if (port) {
    drive_.post(membership::StoreOpened{request.epoch, *port});
  } else {
    drive_.post(membership::StoreFailed{request.epoch, port.error()});
  }
}

// The members' addresses as advertised and as seen; a member on this machine may use any of ours.
JobStore::Allowed HostedJob::allowed(const std::vector<std::string>& advertised) const {
  if (options_.store.clients.allow_any) return std::nullopt;
  std::set<IpAddress> members;
  for (const std::string& text : advertised) {
    if (const auto address = IpAddress::parse(text)) members.insert(*address);
  }
  const std::set<std::string> names(advertised.begin(), advertised.end());
  for (const auto& [agent, seen] : seen_) {
    if (names.contains(seen.advertised)) members.insert(seen.address);
  }
  const std::vector<IpAddress> own = read_own_addresses();
  const bool here = std::any_of(members.begin(), members.end(), [&](const IpAddress& address) {
    return is_own_address(address, own);
  });
  std::vector<Network> networks;
  if (here) {
    members.insert(own.begin(), own.end());
    networks.push_back(Network(IpAddress::loopback_v4(), 8));
    networks.push_back(Network(IpAddress::loopback_v6()));
  }
  for (const IpAddress& address : members) {
    if (!here || !address.is_loopback()) networks.push_back(Network(address));
  }
  const std::vector<Network>& more = options_.store.clients.allow;
  networks.insert(networks.end(), more.begin(), more.end());
  return networks;
}

}  // namespace muster
