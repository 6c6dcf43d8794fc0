// Which nodes are here: joins, refusals, connections, leases, and the orders given to each node.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/base/planted.h"
#include "rendezvous/base/text.h"
#include "rendezvous/membership/membership.h"
#include "rendezvous/membership/membership_ranks.h"
#include "rendezvous/membership/membership_text.h"

namespace muster {

using namespace membership;  // NOLINT: the words of the protocol

namespace {

constexpr size_t kKnownMax = 65536;  // Nodes, and names of machines, kept for one job.
constexpr Duration kDefaultJoinTimeout = std::chrono::minutes{10};
// Minimum lease, so that no agent can keep the host busy with expiring leases.
constexpr Duration kLeastLease = std::chrono::milliseconds{30};
// Minimum time that a returned host waits for the agents of its earlier life.
constexpr Duration kLeastReturn = std::chrono::seconds{2};

std::string asked_nodes(const Join& join) {
  if (join.nodes_min == join.nodes_max) return nodes_text(join.nodes_max);
  return fmt::format("{}:{} nodes", join.nodes_min, join.nodes_max);
}

bool has_possible_nodes(const Join& join) {
  return join.nodes_min >= 1 && join.nodes_max >= join.nodes_min;
}

bool same_nodes(const Join& a, const Join& b) {
  return a.nodes_min == b.nodes_min && a.nodes_max == b.nodes_max;
}

Refused other_nodes(const Join& join, const Join& job) {
  return {RefusalKind::contradiction,
          fmt::format("{} was started for {}, the job was started for {} by {}; start all nodes "
                      "with the same --nnodes",
                      quiet_name(join.host_name), asked_nodes(join), asked_nodes(job),
                      quiet_name(job.host_name))};
}

Refused rank_taken(int rank, const Join& holder, const Join& other) {
  return {RefusalKind::rank_taken,
          fmt::format("node rank {} belongs to {} already; give {} another --node-rank, or end the "
                      "other one",
                      rank, quiet_name(holder.host_name), quiet_name(other.host_name))};
}

constexpr std::string_view kOwnId = "give one of them an --rdzv-id or an endpoint of its own";

// True for `sh -c TEXT`. Nodes of one job may run different texts until its first round has formed.
bool is_text(const Join& join) {
  return join.program.ends_with(" -c");
}

// Returns why a node can never be in this job, whatever the other nodes are.
std::optional<Refused> contradiction(const Join& join, const Join& job) {
  if (!same_nodes(join, job)) return other_nodes(join, job);
  if (join.role != job.role || join.program == job.program || join.program.empty() ||
      job.program.empty())
    return std::nullopt;
  return Refused{RefusalKind::contradiction,
                 fmt::format("{} runs {}, but the job with this id runs {} (on {}): {}",
                             quiet_name(join.host_name), quiet_name(join.program),
                             quiet_name(job.program), quiet_name(job.host_name), kOwnId)};
}

// A host's own address may be loopback; then the one at which the other node reached it is shown.
std::string name_with_address(const Join& join, const Join& other) {
  const bool is_local = join.is_host && (join.advertised.empty() || is_loopback(join.advertised));
  return fmt::format("{:.40} ({})", join.host_name, is_local ? other.dialled : join.advertised);
}

bool same_but_for_nodes(const Join& a, const Join& b) {
  return a.spares == b.spares && a.max_restarts == b.max_restarts &&
         a.max_membership_changes == b.max_membership_changes && a.last_call == b.last_call &&
         a.join_timeout == b.join_timeout && a.lease == b.lease;
}

}  // namespace

// ---- Joins.

std::optional<Refused> Membership::refusal(const Join& join) const {
  const bool stranger = join.last_epoch == 0 || join.last_epoch > epoch_;
  if (stage_ == Stage::ended && stranger && !has_untold(now_)) {
    return Refused{RefusalKind::closed,
                   fmt::format("the job of this id has ended ({}); restart all nodes, or give this "
                               "job an id of its own (--rdzv-id)",
                               end_->text)};
  }
  if (nodes_.size() >= kKnownMax)
    return Refused{RefusalKind::full,
                   fmt::format("this job has {} nodes already; start fewer", nodes_.size())};
  if (!has_possible_nodes(join)) {
    return Refused{RefusalKind::contradiction,
                   fmt::format("this node was started for {}; start it with --nnodes=MIN:MAX, "
                               "1 <= MIN <= MAX",
                               asked_nodes(join))};
  }
  if (job_) {
    if (std::optional<Refused> refused = contradiction(join, *job_)) return refused;
    if (formed_here_ && is_text(join) && join.role == job_->role &&
        !texts_.contains(join.arguments))
      return Refused{RefusalKind::contradiction,
                     fmt::format("{} runs another {} than the job with this id, which runs already "
                                 "(on {}): {}",
                                 quiet_name(join.host_name), quiet_name(join.program),
                                 quiet_name(job_->host_name), kOwnId)};
  }
  return rank_refusal(join);
}

std::optional<Refused> Membership::rank_refusal(const Join& join) const {
  if (!join.node_rank) return std::nullopt;
  if (*join.node_rank < 0 || *join.node_rank >= join.nodes_max) {
    return Refused{RefusalKind::contradiction,
                   fmt::format("{} was started with --node-rank={}, the job has {}; the highest "
                               "node rank is {}",
                               quiet_name(join.host_name), *join.node_rank, asked_nodes(join),
                               join.nodes_max - 1)};
  }
  const auto claims = claims_.find(*join.node_rank);
  if (claims == claims_.end()) return std::nullopt;
  for (const AgentId& agent : claims->second) {
    const Node& holder = nodes_.at(agent);
    if (may_be_gone(holder)) continue;
    return rank_taken(*join.node_rank, holder.join, join);
  }
  return std::nullopt;
}

// True if a node that claims the holder's rank may wait for it: a restarted node claims its rank
// before its old process is known to be dead, and stays when that process is declared lost.
bool Membership::may_be_gone(const Node& holder) const {
  return !holder.connection || holder.left || is_silent(holder, now_);
}

// True if a heartbeat is overdue.
bool Membership::is_silent(const Node& node, Instant now) const {
  return silence(node, now) > heartbeat() * 3 / 2;
}

Duration Membership::silence(const Node& node, Instant now) {
  return std::max(now - node.last_sign, Duration::zero());
}

// Refuses the nodes that contradict the host's own node, which may join late. Its settings win:
// every user can see which node it is, and if the host itself were refused, it would go on serving
// a job that no node with its settings could join.
void Membership::give_way_to_host(const Join& host) {
  if (!host.is_host || !job_ || stage_ != Stage::forming || seen_epoch_ > 0) return;
  if (!has_possible_nodes(host) || host.node_rank.value_or(0) >= host.nodes_max) return;
  std::vector<std::pair<AgentId, Refused>> strangers;
  for (const auto& [agent, node] : nodes_) {
    if (std::optional<Refused> refused = contradiction(node.join, host)) {
      strangers.emplace_back(agent, std::move(*refused));
    } else if (host.node_rank && node.join.node_rank == host.node_rank) {
      strangers.emplace_back(agent, rank_taken(*host.node_rank, host, node.join));
    }
  }
  for (auto& [agent, refused] : strangers) {
    Node& stranger = node_of(agent);
    note("refused an agent: " + refused.text);
    send(stranger, std::move(refused));
    drop(stranger, true);
  }
  if (nodes_.empty()) job_.reset();
}

void Membership::refuse(ConnectionId connection, Refused refused) {
  note("refused an agent: " + refused.text);
  out_->push_back(Send{connection, HostMessage{std::move(refused)}});
  out_->push_back(Hangup{connection});
}

void Membership::learn_job(const Join& original) {
  Join join = original;
  if (join.lease <= Duration::zero()) join.lease = options_.lease;
  join.lease = std::max(join.lease, kLeastLease);
  if (join.join_timeout <= Duration::zero()) join.join_timeout = kDefaultJoinTimeout;
  if (!job_) {
    job_ = join;
    if (stage_ == Stage::forming) begin_forming(false);
  } else if (!same_but_for_nodes(*job_, join)) {
    note(fmt::format("{} was started with settings that differ from those of {}, which are used",
                     quiet_name(join.host_name), quiet_name(job_->host_name)));
  }
  // Survivors of this host's earlier life may join even now: no epoch number is used twice.
  if (join.last_epoch > seen_epoch_) seen_nodes_ = 0;
  seen_epoch_ = std::max(seen_epoch_, join.last_epoch);
  if (formed_here_) return;  // From our first round on, the budgets are our own.
  // For the past's round the past's number of nodes counts: it leaves out the dead host.
  const bool is_known = join.last_epoch == options_.past.epoch && options_.past.nodes > 0;
  if (join.last_epoch == seen_epoch_ && !is_known)
    seen_nodes_ = std::max(seen_nodes_, join.last_nodes);
  restarts_ = std::min(std::max(restarts_, join.restarts), job_->max_restarts);
  changes_ =
      std::min(std::max(changes_, join.changes), job_->max_membership_changes.value_or(kCountMax));
  // Agents of a job that ran before come back within about a second: wait less than for a new job.
  if (seen_nodes_ > 0 && forming_.last_call != kNever) {
    forming_.last_call =
        std::min(forming_.last_call, instant_after(now_, std::max(job_->lease, kLeastReturn)));
  }
}

// Reports once per job that nodes differ in arguments or workers: legitimate, or a mistake.
void Membership::say_differences(const Join& join) {
  const bool same_workers = join.slots == job_->slots;
  if (differences_said_ || join.role != job_->role ||
      (same_workers && join.arguments == job_->arguments))
    return;
  differences_said_ = true;
  const std::string node = quiet_name(join.host_name);
  const std::string other = quiet_name(job_->host_name);
  say(same_workers ? fmt::format("{} runs the program with other arguments than {}", node, other)
                   : fmt::format("{} starts {}, {} {}", node, counted(join.slots, "worker"), other,
                                 job_->slots));
}

Membership::Node& Membership::admit(const Join& join) {
  Node& node = nodes_[join.agent];
  node.join = join;
  node.arrival = ++arrivals_;
  if (is_text(join)) texts_.insert(join.arguments);
  tell_apart(node);
  say_differences(node.join);
  // An earlier host's round is not ours, even if it has the same number.
  const bool knows_ours = formed_here_ && join.last_instance == options_.host_instance;
  if (knows_ours || !formed_here_) {
    node.rank = join.last_rank;
    node.rank_epoch = join.last_epoch;
  }
  // The host that formed the past's round may have died before this node got its Round.
  const std::vector<AgentId>& before = options_.past.members;
  const auto seat = std::ranges::find(before, join.agent);
  if (!formed_here_ && join.last_epoch < options_.past.epoch && seat != before.end()) {
    node.rank = static_cast<int>(seat - before.begin());
    node.rank_epoch = options_.past.epoch;
  }
  node.member = stage_ == Stage::stopping && knows_ours && join.last_epoch == epoch_;
  node.started = node.member;
  if (join.node_rank) {
    std::vector<AgentId>& claims = claims_[*join.node_rank];
    node.in_line = !claims.empty();
    claims.push_back(join.agent);
  }
  return node;
}

// Shows machines that share a name, as containers do, with their addresses. Agents of one machine
// are shown alike, even if they dialled from addresses of either family.
void Membership::tell_apart(Node& node) {
  Join& join = node.join;
  if (shown_names_.size() >= kKnownMax) shown_names_.clear();
  auto shown = shown_names_.find({join.host_name, join.machine});
  if (shown == shown_names_.end()) {
    const auto first = shown_names_.lower_bound({join.host_name, ""});
    const bool is_shared = first != shown_names_.end() && first->first.first == join.host_name;
    if (is_shared && first->second == join.host_name) rename(first->first, first->second, join);
    shown = shown_names_.emplace(std::pair{join.host_name, join.machine}, join.host_name).first;
    if (is_shared) shown->second = name_with_address(join, *job_);
  }
  join.host_name = shown->second;
}

// Renames the nodes of the one machine that had this name until `other` came.
void Membership::rename(const HostAndMachine& known, std::string& shown, const Join& other) {
  const auto is_known = [&known](const Join& join) {
    return HostAndMachine{join.host_name, join.machine} == known;
  };
  for (auto& [agent, node] : nodes_) {
    if (agent == other.agent || !is_known(node.join)) continue;
    if (shown == known.first) shown = name_with_address(node.join, other);
    node.join.host_name = shown;
  }
  if (is_known(*job_)) job_->host_name = shown;
}

void Membership::attach(Node& node, const Joined& event) {
  if (node.connection && *node.connection != event.connection) {
    by_connection_.erase(*node.connection);
    out_->push_back(Hangup{*node.connection});
  }
  node.connection = event.connection;
  node.detached.reset();
  by_connection_[event.connection] = node.join.agent;
  node.join.dialled = event.join.dialled;
  node.join.advertised = event.join.advertised;
  on_sign(node);
  recount(node);
  send(node, Welcome{.host_instance = options_.host_instance,
                     .lease = job_->lease,
                     .heartbeat = heartbeat()});
  if (node.order_sequence > 0) send_order(node);
}

// Starts the grace within which the agent may reconnect.
void Membership::detach(Node& node) {
  by_connection_.erase(*node.connection);
  node.connection.reset();
  node.detached = now_;
  see_network(node);
  renew(node);
  recount(node);
}

// Refuses the nodes that wait for this node's rank, since it is alive and keeps it.
void Membership::evict_from_line(const Node& holder) {
  if (!holder.join.node_rank || holder.in_line || holder.left) return;
  if (claims_.at(*holder.join.node_rank).size() == 1) return;
  const std::vector<AgentId> claims = claims_.at(*holder.join.node_rank);
  for (const AgentId& agent : claims) {
    Node& other = node_of(agent);
    if (!other.in_line) continue;
    send(other, rank_taken(*holder.join.node_rank, holder.join, other.join));
    note(fmt::format("{} is not needed: {} is back", name_of(other), name_of(holder)));
    drop(other, true);
  }
}

// ---- Connections and leases.

Membership::Node* Membership::node_of(ConnectionId connection) {
  const auto found = by_connection_.find(connection);
  return found == by_connection_.end() ? nullptr : &node_of(found->second);
}

Membership::Node& Membership::node_of(const AgentId& agent) {
  const auto found = nodes_.find(agent);
  CHECK(found != nodes_.end());
  return found->second;
}

void Membership::on_sign(Node& node) {
  if (std::exchange(node.silence_said, false))
    say(fmt::format("{} is back after {}", name_of(node), precise_seconds(silence(node, now_))));
  node.last_sign = now_;
  see_network(node);
  renew(node);
  evict_from_line(node);
}

// True once the node has reported on this epoch.
bool Membership::has_begun(const Node& node) const {
  return node.member && node.report.epoch >= epoch_;
}

// True if its return could save its round. If the job ends of a failure anyway, it does not wait
// for the node.
bool Membership::may_be_waited_for(const Node& node) const {
  const bool ends = failure_ && (failure_->failure.final || restarts_ >= job_->max_restarts);
  return has_begun(node) && !node.left && stage_ != Stage::ended && !ends;
}

Duration Membership::silence_limit(const Node& node) const {
  return may_be_waited_for(node) ? job_->lease : std::min(job_->lease, kSilenceMax);
}

Duration Membership::grace(const Node& node) const {
  // Its agent will dial again: to learn of the end, or since we stood still and it dropped us.
  const bool was_away = awake_since_ != Instant{} && now_ - awake_since_ < job_->lease;
  if (stage_ == Stage::ended || was_away) return silence_limit(node);
  const bool others_suffice = tally_.guests > 0 || tally_.stays > job_->nodes_min;
  const bool is_needed = !others_suffice && may_be_waited_for(node);
  // Planted: as if others could go on without it.
  if (PLANTED(MembershipBug::flap_is_a_loss)) return options_.reconnect_grace;
  return is_needed ? job_->lease : options_.reconnect_grace;
}

// Sets until when the node may be silent, as things are now.
void Membership::renew(Node& node) {
  if (keeps_places_ && !node.join.is_host) return;
  Duration limit = silence_limit(node);
  Instant lost_at = instant_after(std::max(node.last_sign, awake_since_), limit);
  if (node.detached && instant_after(*node.detached, grace(node)) < lost_at) {
    limit = grace(node);
    lost_at = instant_after(*node.detached, limit);
  }
  const Duration least = std::min(limit, options_.reconnect_grace);
  lost_at = std::max(lost_at, instant_after(now_, least));
  set_lease(node, node.last_sign == now_ ? lost_at : std::min(lost_at, node.lost_at), limit);
}

void Membership::set_lease(Node& node, Instant lost_at, Duration limit) {
  leases_.erase({node.expires, node.join.agent});
  node.lost_at = node.expires = lost_at;
  node.silence_limit = limit;
  const bool is_said =
      node.silence_said || keeps_places_ || stage_ != Stage::running || !has_begun(node);
  const Instant last_sign = std::max(node.last_sign, awake_since_);
  if (!is_said) node.expires = std::min(lost_at, instant_after(last_sign, kSilenceMax));
  leases_.insert({node.expires, node.join.agent});
}

// Reports the node's silence; its round goes on.
void Membership::say_silence(Node& node) {
  node.silence_said = true;
  say(fmt::format("no sign of {} for {}; waiting up to {}", name_of(node),
                  full_seconds(silence(node, now_)), whole_seconds(node.silence_limit)));
  set_lease(node, node.lost_at, node.silence_limit);
}

// True if this host, rather than the others, lost its network: all others fell silent at once, or
// our own links are down. A connection that is known to be broken shows that our links work.
bool Membership::is_cut_off() const {
  if (PLANTED(MembershipBug::no_self_doubt)) return false;
  int others = 0;
  for (const auto& [agent, node] : nodes_) {
    if (node.join.is_host) continue;
    if (!node.connection || !is_silent(node, now_)) return false;
    ++others;
  }
  return others > 1 || (options_.lost_network && options_.lost_network());
}

// Waits for the silent nodes until the join time-out: they may be well and wait for this host.
void Membership::keep_places() {
  keeps_places_ = true;
  say(
      fmt::format("this node lost its network: no sign of any other node for {}; their places are "
                  "kept for {}",
                  full_seconds(job_->lease), whole_seconds(job_->join_timeout)));
  for (auto& [agent, node] : nodes_) {
    if (!node.join.is_host)
      set_lease(node, instant_after(now_, job_->join_timeout), job_->join_timeout);
  }
}

// Returns false if none were kept.
bool Membership::release_places() {
  if (!std::exchange(keeps_places_, false)) return false;
  renew_all();
  return true;
}

void Membership::see_network(const Node& by) {
  if (!by.join.is_host && release_places()) say("this node's network is back");
}

// True while the host's own node is in the job; false if it only serves the others.
bool Membership::has_own_node() const {
  return std::ranges::any_of(
      nodes_, [](const auto& entry) { return entry.second.join.is_host && !entry.second.left; });
}

Duration Membership::heartbeat() const {
  return std::clamp(job_->lease / 3, Duration{1}, kHeartbeatMax);
}

// A pause below 2 x this is not noticed; even then a sixth of the lease is left for a heartbeat to
// arrive.
Duration Membership::watch_period() const {
  return std::max(std::min(job_->lease, kSilenceMax) / 4, Duration{1});
}

// Renews all leases if we stood still (suspended, SIGSTOP): heartbeats may wait in our sockets.
void Membership::notice_standstill() {
  if (nodes_.empty()) return;
  const Instant deadline = next_deadline();
  if (deadline == kNever || now_ <= deadline) return;
  if (now_ - deadline <= std::min(options_.jump, watch_period())) return;
  note(fmt::format("this host stalled for {}: all leases are renewed",
                   whole_seconds(now_ - deadline)));
  renew_all();
  forming_.join_by = std::max(forming_.join_by, instant_after(now_, job_->lease));
}

void Membership::renew_all() {
  awake_since_ = now_;
  for (auto& [agent, node] : nodes_) {
    const Duration limit = node.connection ? silence_limit(node) : grace(node);
    set_lease(node, instant_after(now_, limit), limit);
  }
}

void Membership::drop(Node& node, bool hang_up) {
  if (node.member) keep_testimony(node);
  if (node.connection) {
    by_connection_.erase(*node.connection);
    if (hang_up) out_->push_back(Hangup{*node.connection});
  }
  leases_.erase({node.expires, node.join.agent});
  if (node.join.node_rank) {
    std::vector<AgentId>& claims = claims_.at(*node.join.node_rank);
    std::erase(claims, node.join.agent);
    if (!claims.empty() && !node.in_line) {
      Node& next = node_of(claims.front());
      next.in_line = false;
      recount(next);
    }
    if (claims.empty()) claims_.erase(*node.join.node_rank);
  }
  node.connection.reset();
  node.member = false;
  node.left = true;
  node.has_reported = false;
  recount(node);
  const AgentId agent = node.join.agent;
  nodes_.erase(agent);
}

// Keeps a gone node's testimony. If the node came back and is gone again, its first loss counts.
void Membership::keep_testimony(Node& node) {
  give_testimony(gone_, node);
  gone_.at(node.join.agent).gone = true;
}

void Membership::lose(Node& node) {
  if (now_ < node.lost_at) return say_silence(node);
  // Its workers have exited with 0: it is kept, to learn of the end when it is back.
  if (stage_ == Stage::running && node.tally.done)
    return set_lease(node, instant_after(now_, job_->lease), job_->lease);
  const bool loses = stage_ != Stage::ended && (stage_ != Stage::forming || forming_.after_stop);
  const bool cut_off = loses && is_cut_off();
  const bool others_may_go_on =
      cut_off && job_->nodes_min > 1 && !is_fixed(*job_) && has_own_node();
  if (others_may_go_on && !keeps_places_ && !options_.may_be_followed) return keep_places();
  // Another host may have formed a round without us, or the others wait for us.
  if (others_may_go_on && options_.may_be_followed) awaits_enough_ = true;
  const std::string text = lost_text(node, cut_off);
  note(text);
  const bool was_member = node.member;
  const bool was_new = node.report.epoch == 0;
  if (was_member || !node.left) depart(node, StopWhy::lost, text);
  drop(node, true);
  if (!was_member) return;
  if (was_new && tally_.stays < job_->nodes_min) awaits_enough_ = true;
  if (stage_ == Stage::running && tally_.members > 0 && tally_.done == tally_.members)
    return say(text + "; all workers of the other nodes have exited with 0");
  if (stage_ == Stage::opening || stage_ == Stage::running) return begin_stop(StopWhy::lost, text);
  // After a failure the judge decides whether the loss is its cause.
  const bool failed = failure_.has_value();
  if (stage_ == Stage::stopping && !failed && is_short()) end_short_of_nodes();
}

// ---- The sums.

bool Membership::is_ready(const Node& node) const {
  if (!node.connection || !node.has_reported || node.in_line || node.left) return false;
  // Planted: a node may start again while its workers are being stopped.
  if (PLANTED(MembershipBug::double_start) && node.report.phase == Phase::stopping) return true;
  return node.report.phase == Phase::ready && node.report.reaped;
}

// True if nothing of this epoch is alive on a member and all is reported. A `ready` from before the
// Round proves nothing; one that acknowledges the Stop, or names this epoch, does.
bool Membership::is_over(const Node& node) const {
  const Report& report = node.report;
  if (report.phase == Phase::leaving) return report.reaped;
  if (PLANTED(MembershipBug::double_start) && report.phase == Phase::stopping) return true;
  const bool has_ended = report.phase == Phase::ready || report.phase == Phase::testified;
  if (!has_ended || !report.reaped) return false;
  if (!node.started || PLANTED(MembershipBug::skipped_epoch_check)) return true;
  return report.epoch >= epoch_ || (node.stop_order > 0 && report.order >= node.stop_order);
}

Membership::Tally Membership::tally_of(const Node& node) const {
  const bool ready = is_ready(node);
  const Report& report = node.report;
  Tally tally;
  tally.stays = !node.left;
  tally.ready = ready;
  tally.members = node.member;
  tally.pending = node.member && !is_over(node);
  tally.testified = node.member && !node.left && report.phase == Phase::testified;
  tally.done = node.member && report.phase == Phase::done && report.epoch == epoch_;
  tally.away = node.member && !node.left && !ready;
  tally.guests = !node.member && !node.left;
  return tally;
}

void Membership::recount(Node& node) {
  const Tally was = std::exchange(node.tally, tally_of(node));
  tally_.stays += node.tally.stays - was.stays;
  tally_.ready += node.tally.ready - was.ready;
  tally_.members += node.tally.members - was.members;
  tally_.pending += node.tally.pending - was.pending;
  tally_.testified += node.tally.testified - was.testified;
  tally_.done += node.tally.done - was.done;
  tally_.away += node.tally.away - was.away;
  tally_.guests += node.tally.guests - was.guests;
}

// ---- Orders.

void Membership::order(Node& node, Order::What what) {
  node.order_sequence = ++orders_;
  const Stop* const stop = std::get_if<Stop>(&what);
  if (stop && stop->epoch == epoch_ && node.member) node.stop_order = node.order_sequence;
  node.order = std::move(what);
  send_order(node);
}

void Membership::send_order(Node& node) {
  if (!node.connection) return;
  node.order_sent = now_;
  // All nodes get the same End, which may have a long detail: it is stored once, in end_.
  if (std::holds_alternative<End>(node.order)) return send(node, Order{node.order_sequence, *end_});
  send(node, Order{node.order_sequence, node.order});
}

void Membership::send(const Node& node, HostMessage message) {
  if (node.connection) out_->push_back(Send{*node.connection, std::move(message)});
}

}  // namespace muster
