#include "tests/sim/membership_promises.h"

#include <algorithm>

#include <fmt/format.h>

#include "tests/sim/membership_world.h"

namespace muster::roundsim {

using membership::AgentId;
using membership::End;
using membership::EndWhy;
using membership::Epoch;
using membership::Phase;
using membership::StopWhy;

namespace {

constexpr Duration kJump = std::chrono::seconds{1};  // As in Membership::Options.

int node_of(const AgentId& agent) {
  return static_cast<int>(agent.high) - 1;
}

}  // namespace

// ---- The host's life.

void MembershipPromises::host_started(uint64_t life) {
  if (host_life_ != 0) ++reached_.host_returns;
  host_died();
  host_life_ = life;
}

void MembershipPromises::host_died() {
  agents_.clear();
  connections_.clear();
  refused_.clear();
  formed_.clear();
  open_store_ = newest_ = 0;
  newest_checked_ = true;
  failure_heard_ = false;
  awake_since_ = last_pause_ = {};
  end_.reset();
  undone_.reset();
  has_ended_ = finished_ = doubts_itself_ = false;
}

// The host must notice a pause by itself only if it is longer than any deadline can hide.
void MembershipPromises::host_frozen(Instant until) {
  last_pause_ = until;
  if (until - world_.now() > kJump + plan_.lease) awake_since_ = until;
}

// ---- Events of the host.

void MembershipPromises::host_hears(Instant now, const Membership::Event& event) {
  std::visit([&](const auto& e) { heard(now, e); }, event);
}

MembershipPromises::Agent* MembershipPromises::agent_on(ConnectionId connection) {
  const auto found = connections_.find(connection);
  if (found == connections_.end()) return nullptr;
  Agent& agent = agents_.at(found->second);
  return agent.connection == connection ? &agent : nullptr;
}

void MembershipPromises::heard(Instant now, const membership::Joined& event) {
  disturb(node_of(event.join.agent));
  Agent& agent = agents_[event.join.agent];
  // To the host, an agent that was refused or lost, or may have been, is a new one.
  const bool may_be_new = agent.hung_up == agent.gone || now - agent.gone >= kGrace;
  if (agent.connection == 0 && may_be_new) agent.joined = now;
  agent.node = node_of(event.join.agent);
  agent.join = event.join;
  agent.connection = event.connection;
  agent.heard = now;
  agent.parted = false;
  agent.interrupted = true;
  connections_[event.connection] = event.join.agent;
}

void MembershipPromises::heard(Instant now, const membership::Reported& event) {
  Agent* agent = agent_on(event.connection);
  if (agent == nullptr) return;
  agent->heard = now;
  const auto newest = formed_.find(newest_);
  if (event.report.failure && event.report.epoch == newest_ && newest != formed_.end() &&
      event.report.sequence > agent->reports && newest->second.rounds.contains(agent->join.agent)) {
    failure_heard_ = true;
  }
  check_time(*agent, event.report);
  if (event.report.sequence > agent->reports) {
    agent->epoch = event.report.epoch;
    agent->phase = event.report.phase;
  }
  agent->reports = std::max(agent->reports, event.report.sequence);
  if (event.report.phase == Phase::leaving) {
    agent->parted = true;
    disturb(agent->node);
  }
}

// Must hold for any difference of clocks and any message delay.
void MembershipPromises::check_time(const Agent& agent, const membership::Report& report) {
  if (!report.failure) return;
  const auto truth = failed_at_.find({host_life_, report.epoch, agent.node});
  if (truth == failed_at_.end()) return;
  const Duration wrong = std::chrono::abs(report.failure->at - truth->second);
  check(
      wrong <= report.failure->at_error,
      fmt::format("the time of a failure is right within its stated error (node {})", agent.node));
}

void MembershipPromises::heard(Instant, const membership::Parted& event) {
  Agent* agent = agent_on(event.connection);
  if (agent == nullptr) return;
  agent->parted = true;
  disturb(agent->node);
}

void MembershipPromises::heard(Instant now, const membership::Disconnected& event) {
  if (Agent* agent = agent_on(event.connection)) {
    agent->connection = 0;
    agent->gone = now;
    disturb(agent->node);
  }
  connections_.erase(event.connection);
}

// From now on its newest round may end or go on for reasons other than a worker's failure.
void MembershipPromises::disturb(int node) {
  const auto newest = formed_.find(newest_);
  if (newest != formed_.end() && newest->second.nodes.contains(node)) {
    newest->second.disturbed = true;
  }
}

// ---- Effects of the host.

void MembershipPromises::host_asks(Instant now, const Membership::Effect& effect) {
  std::visit([&](const auto& e) { asked(now, e); }, effect);
}

void MembershipPromises::asked(Instant now, const membership::Send& effect) {
  const auto found = connections_.find(effect.connection);
  if (found == connections_.end()) return violate("the host speaks only to connections it has");
  Agent& agent = agents_.at(found->second);
  if (std::holds_alternative<membership::Refused>(effect.message)) {
    refused_.insert(effect.connection);
  } else if (std::holds_alternative<membership::Welcome>(effect.message)) {
    agent.welcomed = true;
  } else if (const auto* order = std::get_if<membership::Order>(&effect.message)) {
    check(agent.connection == effect.connection, "an order goes to an agent's newest connection");
    ordered(now, agent, *order);
  } else if (const auto* alive = std::get_if<membership::Alive>(&effect.message)) {
    check(alive->report <= agent.reports, "only reports that came are acknowledged");
  }
}

void MembershipPromises::asked(Instant now, const membership::Hangup& effect) {
  const auto found = connections_.find(effect.connection);
  if (found == connections_.end()) return violate("the host hangs up only what it has");
  Agent& agent = agents_.at(found->second);
  const bool current = agent.connection == effect.connection;
  const bool allowed = !current || refused_.contains(effect.connection) || agent.parted || end_ ||
                       may_be_lost(now, agent);
  check(allowed, fmt::format("no agent is lost that beats in time (node {})", agent.node));
  if (current) {
    agent.connection = 0;
    agent.lost = true;
    agent.hung_up = agent.gone = now;
    disturb(agent.node);
  }
  connections_.erase(found);
}

// True if it has begun the newest round, which no failure has ended for good.
bool MembershipPromises::may_be_waited_for(const Agent& agent, bool before_it_is_told) const {
  const auto newest = formed_.find(newest_);
  if (newest == formed_.end() || (newest->second.failed && !before_it_is_told)) return false;
  return !end_ && !agent.lost && agent.epoch >= newest_ &&
         newest->second.rounds.contains(agent.join.agent);
}

// True if the round cannot go on without it, and no spare agent has been known for that long.
bool MembershipPromises::is_needed(Instant now, const Agent& agent, Duration known) const {
  if (!may_be_waited_for(agent, known > Duration{})) return false;
  const Formed& newest = formed_.at(newest_);
  if (std::ssize(newest.nodes) > plan_.nodes_min) return false;
  return std::ranges::none_of(agents_, [&](const auto& entry) {
    const auto& [id, other] = entry;
    const bool was_here = known == Duration{} && now - other.gone < plan_.lease;
    const bool is_here = other.connection != 0 || was_here;
    return !newest.rounds.contains(id) && !other.parted && is_here && now - other.joined >= known;
  });
}

std::set<int> MembershipPromises::done_and_gone() const {
  std::set<int> nodes;
  for (const auto& [id, agent] : agents_) {
    const World::Node& node = world_.node(agent.node);
    const bool gone = node.member == nullptr || world_.join_of(agent.node).agent != id;
    if (gone && agent.phase == Phase::done && agent.epoch == newest_) nodes.insert(agent.node);
  }
  return nodes;
}

// True if a heartbeat is overdue.
bool MembershipPromises::is_silent(Instant now, const Agent& agent) const {
  return now - agent.heard > std::min(plan_.lease / 3, membership::kHeartbeatMax) * 3 / 2;
}

// The longest break of its connection: a lease after a pause of the host, which the agent may have
// given up.
Duration MembershipPromises::longest_grace(const Agent& agent) const {
  return agent.gone - last_pause_ < plan_.lease ? plan_.lease : kGrace;
}

// True if the agent's messages arrive or its connection has just broken: the host has a network.
bool MembershipPromises::shows_network(Instant now, const Agent& agent) const {
  if (agent.node == 0 || agent.parted) return false;
  if (agent.connection != 0) return !is_silent(now, agent);
  return agent.hung_up != agent.gone && now - agent.gone < longest_grace(agent) + kSlack;
}

// True if all others fell silent at once, one counts as lost, and the rest could have gone on.
bool MembershipPromises::is_host_cut_off(Instant now) const {
  const auto newest = formed_.find(newest_);
  if (newest == formed_.end() || plan_.is_fixed() || plan_.nodes_min == 1) return false;
  int others = 0;
  bool has_own_node = false;  // False: this host only serves the other nodes.
  Instant first_loss = kNever;
  for (const auto& [id, round] : newest->second.rounds) {
    const Agent& agent = agents_.at(id);
    if (agent.node == 0) {
      has_own_node = !may_be_lost(now, agent);
    } else if (agent.connection == 0) {
      first_loss = std::min(first_loss, agent.hung_up);
    }
  }
  if (!has_own_node || first_loss == kNever || now - first_loss > membership::kHeartbeatMax)
    return false;
  for (const auto& [id, round] : newest->second.rounds) {
    const Agent& agent = agents_.at(id);
    if (agent.node == 0) continue;
    const bool fell_silent = is_silent(first_loss, agent);
    if (!fell_silent || agent.parted || !world_.is_cut(agent.node) || !world_.node(agent.node).up)
      return false;
    ++others;
  }
  for (const auto& [id, agent] : agents_) {
    if (!newest->second.rounds.contains(id) && shows_network(first_loss, agent)) return false;
  }
  const membership::Round& round = newest->second.rounds.begin()->second;
  // A host that others may follow keeps no places: if no change is left, no round can go on.
  const bool is_spent = plan_.may_be_followed && plan_.max_membership_changes &&
                        round.changes >= *plan_.max_membership_changes;
  return others > 1 && others + 1 == round.nodes && !is_spent && !newest->second.failed &&
         now - awake_since_ > plan_.lease;
}

bool MembershipPromises::may_be_lost(Instant now, const Agent& agent) const {
  if (agent.parted) return true;
  const Duration limit =
      may_be_waited_for(agent) ? plan_.lease : std::min(plan_.lease, membership::kSilenceMax);
  if (agent.connection == 0 && now - agent.gone >= kGrace && !is_needed(now, agent)) return true;
  return now - agent.heard >= limit && (agent.connection == 0 || now - awake_since_ >= limit);
}

void MembershipPromises::asked(Instant, const membership::OpenStore& effect) {
  check(open_store_ == 0, "one store at a time");
  check(!end_, "no round after the end");
  check(effect.epoch > newest_, "epochs only grow");
  for (const auto& [id, agent] : agents_) {
    // An agent that was only ever refused takes no part and reports nothing.
    check(!agent.welcomed || effect.epoch > agent.join.last_epoch,
          "a new epoch is above all that agents have known");
  }
  check(std::ranges::is_sorted(effect.addresses), "addresses are sorted");
  Formed& formed = formed_[effect.epoch];
  for (int node = 0; node < world_.nodes(); ++node) {
    if (!std::ranges::binary_search(effect.addresses, World::address_of(node))) continue;
    formed.nodes.insert(node);
    check(!world_.node(node).workers_alive,
          fmt::format("no old worker is alive where the store of a new epoch is open (node {})",
                      node));
  }
  open_store_ = effect.epoch;
  newest_ = effect.epoch;
  newest_checked_ = false;
  ++reached_.rounds;
}

void MembershipPromises::asked(Instant, const membership::CloseStore& effect) {
  check(open_store_ == effect.epoch, "only the open store is closed");
  open_store_ = 0;
  // There may have been no agent to notify.
  formed_[effect.epoch].stopped = true;
}

void MembershipPromises::asked(Instant, const membership::Finished&) {
  check(!finished_, "an ended job finishes once");
  check(std::ranges::none_of(agents_, [](const auto& a) { return a.second.connection != 0; }),
        "a job finishes when no agent is connected");
  finished_ = has_ended_;
}

void MembershipPromises::asked(Instant now, const membership::Say& effect) {
  if (effect.text.starts_with("this node lost its network")) doubts_itself_ = true;
  if (effect.text == "this node's network is back") {
    doubts_itself_ = false;
    last_pause_ = now;
  }
  check(effect.text.find('\n') == std::string::npos, "a message to the user is one line");
}

void MembershipPromises::asked(Instant, const membership::Note& effect) {
  if (effect.text.starts_with("the job has ended: ")) job_ended();
  check(effect.text.find('\n') == std::string::npos, "a note is one line");
}

// ---- Orders.

void MembershipPromises::ordered(Instant now, Agent& agent, const membership::Order& order) {
  check(order.sequence >= agent.orders, "orders are numbered upwards");
  if (order.sequence == agent.orders) {
    check(order == agent.order, "an order that is sent again is the same");
    return;
  }
  agent.orders = order.sequence;
  if (std::holds_alternative<membership::Round>(order.what)) agent.interrupted = agent.lost = false;
  agent.order = order;
  std::visit([&](const auto& what) { ordered(now, agent, what); }, order.what);
}

void MembershipPromises::ordered(Instant, const Agent& agent, const membership::Round& round) {
  check(!end_, "no round after the end");
  check(round.epoch == open_store_, "a round is sent when its store is open");
  Formed& formed = formed_[round.epoch];
  const auto [seen, fresh] = formed.rounds.emplace(agent.join.agent, round);
  check(fresh || seen->second == round, "a node's part of a round never changes");
  if (fresh) newest_checked_ = false;
  if (agent.join.node_rank && *agent.join.node_rank < round.nodes) {
    check(round.node_rank == *agent.join.node_rank, "a rank that was asked for is given");
  }
}

void MembershipPromises::ordered(Instant now, const Agent& agent, const membership::Stop& stop) {
  reached_.stops.insert(stop.why);
  const auto found = formed_.find(stop.epoch);
  if (found == formed_.end()) return;
  Formed& formed = found->second;
  // The stop may be for another host's round with that number.
  if (!formed.rounds.contains(agent.join.agent)) return;
  formed.stopped = true;
  if (stop.why == StopWhy::failure) {
    check(formed.failed, "a round is stopped for a failure only if there was one");
    return;
  }
  if (stop.why == StopWhy::lost && formed.lost_checked) return;
  formed.disturbed = true;
  if (stop.why != StopWhy::lost) return;
  formed.lost_checked = true;
  ++reached_.losses;
  // A node that returns without its workers has lost the round, too.
  const bool lost = std::ranges::any_of(agents_, [&](const auto& entry) {
    const Agent& other = entry.second;
    return formed.nodes.contains(other.node) && (other.interrupted || may_be_lost(now, other));
  });
  check(lost, "a round is stopped for a loss only if a node is lost");
}

void MembershipPromises::ordered(Instant now, const Agent&, const membership::End& end) {
  if (end_) return check(*end_ == end, "a host sends the same end to all");
  const bool lost = std::ranges::any_of(agents_, [&](const auto& entry) {
    return entry.second.interrupted || may_be_lost(now, entry.second);
  });
  check(lost || end.text.find(" was lost: ") == std::string::npos,
        "a job ends for a loss only if a node is lost");
  check(!is_host_cut_off(now) || end.text.find(" was lost: ") == std::string::npos,
        "a host that is cut off ends nothing that can go on");
  end_ = end;
  ends_[host_life_] = end;
  reached_.ends.insert(end.why);
  formed_[newest_].stopped = true;
  check(end.restarts <= plan_.max_restarts, "restarts stay within the budget");
  if (end.why == EndWhy::success) check_success();
  if (end.why == EndWhy::failed) {
    check(formed_[newest_].failed, "a job fails only when a worker has failed");
    check(end.exit_code != 0 && end.verdict.has_value(), "a failed job names its culprit");
  }
}

// Lost nodes may return before any agent learns of the end.
void MembershipPromises::job_ended() {
  has_ended_ = true;
  const auto formed = formed_.find(newest_);
  if (formed == formed_.end()) return;
  for (const auto& [id, round] : formed->second.rounds) {
    if (!done_.contains({id, newest_}) && agents_.at(id).connection != 0) undone_ = node_of(id);
  }
}

void MembershipPromises::check_success() {
  check(newest_ != 0, "success needs a round");
  check(has_ended_, "a job's end is noted before it is sent");
  check(!undone_, fmt::format("a job succeeds only when all workers of the nodes that are left "
                              "have (node {})",
                              undone_.value_or(-1)));
}

}  // namespace muster::roundsim
