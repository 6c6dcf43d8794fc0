// How rounds begin, stop and end, how the job ends, and what the nodes' reports mean.
#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/base/planted.h"
#include "rendezvous/base/signal_name.h"
#include "rendezvous/membership/membership.h"
#include "rendezvous/membership/membership_ranks.h"
#include "rendezvous/membership/membership_text.h"

namespace muster {

using namespace membership;  // NOLINT: the words of the protocol

// ---- Forming.

void Membership::begin_forming(bool after_stop) {
  stage_ = Stage::forming;
  awaits_enough_ = false;
  failure_.reset();
  departure_.reset();
  forget_evidence();
  forming_ = {};
  forming_.after_stop = after_stop;
  forming_.status_every = options_.first_status;
  forming_.status_at = instant_after(now_, forming_.status_every);
}

void Membership::start_forming_clocks() {
  forming_.since = now_;
  forming_.join_by = instant_after(now_, job_->join_timeout);
  if (job_->nodes_min < job_->nodes_max)
    forming_.last_call =
        instant_after(now_, std::clamp(job_->last_call, Duration::zero(), job_->join_timeout));
}

void Membership::try_form() {
  if (nodes_.empty()) return;
  // Members that have testified will be ready soon, and take precedence over spares.
  if (tally_.testified > 0) return;
  if (forming_.since == kNever) start_forming_clocks();
  if (forming_.last_call <= now_) {
    forming_.last_call = kNever;
    forming_.last_call_over = true;
  }
  const bool enough = tally_.ready >= job_->nodes_min;
  const bool survivors_are_ready = forming_.after_stop && tally_.away == 0;
  const bool all_of_before = !formed_here_ && seen_nodes_ > 0 && tally_.ready >= seen_nodes_;
  if (enough && (awaits_sign() || others_may_leave_until_ > now_)) return;
  if (tally_.ready >= job_->nodes_max) return form();
  if (enough && (survivors_are_ready || all_of_before || forming_.last_call_over)) return form();
  if (forming_.after_stop && is_short()) return end_short_of_nodes();
  if (forming_.join_by > now_) return;
  end(EndWhy::timeout, ExitCode::rendezvous,
      fmt::format("the nodes did not meet within {}: {}; check why the missing ones did not join, "
                  "or raise --start-timeout",
                  whole_seconds(job_->join_timeout), who_text() + forming_.unfit + neighbours_));
}

// True if a ready node is overdue and may be dead: it is heard soon, or lost.
bool Membership::awaits_sign() const {
  return std::ranges::any_of(nodes_, [this](const auto& entry) {
    return is_ready(entry.second) && is_silent(entry.second, now_);
  });
}

// Returns the candidates by preference: the last round's members, our own agent, then by arrival.
std::vector<Membership::Node*> Membership::choose() {
  std::vector<Node*> ready;
  for (auto& [agent, node] : nodes_) {
    if (is_ready(node)) ready.push_back(&node);
  }
  std::ranges::sort(ready, {}, [](const Node* node) {
    return std::tuple(!node->member, !node->join.is_host, node->arrival);
  });
  return ready;
}

void Membership::form() {
  if (!formed_here_ && seen_epoch_ > 0) {  // The host's return counts as a change.
    departure_.reset();
    if (!change_allowed()) return end_short_of_nodes();
    ++changes_;
  }
  std::vector<Node*> chosen = choose();
  const size_t count = std::min(chosen.size(), static_cast<size_t>(job_->nodes_max));
  const std::vector<Node*> spares(chosen.begin() + static_cast<std::ptrdiff_t>(count),
                                  chosen.end());
  chosen.resize(count);
  awaits_enough_ = false;
  seat(chosen);
  for (Node* const spare : spares)
    consider_newcomer(*spare);
  std::vector<std::string> addresses;
  for (const Node* const node : chosen) {
    if (!node->join.advertised.empty()) addresses.push_back(node->join.advertised);
  }
  std::ranges::sort(addresses);
  addresses.erase(std::ranges::unique(addresses).begin(), addresses.end());
  store_ = epoch_;
  note(fmt::format("epoch {} is formed by {}", epoch_, nodes_text(static_cast<int>(count))));
  out_->push_back(OpenStore{epoch_, std::move(addresses)});
}

// Starts a new epoch and assigns the ranks of its nodes.
void Membership::seat(const std::vector<Node*>& chosen) {
  const Epoch before = formed_here_ ? epoch_ : seen_epoch_;
  std::vector<RankClaim> claims;
  for (const Node* const node : chosen) {
    const Join& join = node->join;
    const int last_rank = before > 0 && node->rank_epoch == before ? node->rank : -1;
    claims.push_back({join.agent, join.host_name, join.node_rank, last_rank, join.is_host,
                      join.slots, join.role, join.dialled});
  }
  epoch_ = seen_epoch_ = std::max(epoch_, seen_epoch_) + 1;
  formed_here_ = true;
  stage_ = Stage::opening;
  failure_.reset();
  departure_.reset();
  judgement_.reset();
  forget_evidence();
  for (auto& [agent, node] : nodes_) {
    node.member = node.started = false;
    node.stop_order = 0;
  }
  std::vector<Round> rounds = lay_out(claims);
  seats_.resize(chosen.size());
  for (size_t i = 0; i < chosen.size(); ++i) {
    chosen[i]->member = true;
    chosen[i]->rank = rounds[i].node_rank;
    chosen[i]->rank_epoch = epoch_;
    seats_.at(static_cast<size_t>(rounds[i].node_rank)) = chosen[i]->join.agent;
    chosen[i]->round = std::move(rounds[i]);
  }
  for (auto& [agent, node] : nodes_)
    recount(node);
}

void Membership::start_round(int port) {
  stage_ = Stage::running;
  for (auto& [agent, node] : nodes_) {
    if (!node.member) continue;
    node.started = true;
    Round round = node.round;
    round.epoch = epoch_;
    round.master_port = port;
    round.restarts = restarts_;
    round.changes = changes_;
    round.before = before_;
    order(node, std::move(round));
    recount(node);
  }
}

// Returns the current connection of the epoch's node with this rank, if it is connected.
std::optional<ConnectionId> Membership::connection_at(int rank) const {
  if (rank < 0 || static_cast<size_t>(rank) >= seats_.size()) return std::nullopt;
  const auto found = nodes_.find(seats_[static_cast<size_t>(rank)]);
  return found != nodes_.end() && found->second.member ? found->second.connection : std::nullopt;
}

Membership::Route Membership::route(ConnectionId sender, Epoch epoch, int to) const {
  const bool is_on = stage_ == Stage::running || stage_ == Stage::stopping;
  const auto agent = by_connection_.find(sender);
  if (!is_on || epoch != epoch_ || agent == by_connection_.end()) return {};
  // A spare or a returning agent may have a rank that is another node's in this epoch.
  Route route{nodes_.at(agent->second).rank, {}};
  if (connection_at(route.from) != sender) return {};
  const int nodes = static_cast<int>(seats_.size());
  for (int rank = std::max(to, 0); rank < (to < 0 ? nodes : to + 1); ++rank) {
    const std::optional<ConnectionId> connection = connection_at(rank);
    if (connection && *connection != sender) route.receivers.push_back(*connection);
  }
  return route;
}

bool Membership::is_member(ConnectionId connection) const {
  const auto agent = by_connection_.find(connection);
  return agent != by_connection_.end() && nodes_.at(agent->second).member;
}

// Sends each waiting node what it waits for. A node that may have live workers gets its Stop first.
void Membership::tell_waiting() {
  const std::string text = forming_text(now_);
  note(text);
  for (auto& [agent, node] : nodes_) {
    if (node.has_reported && node.report.phase == Phase::ready && !node.left)
      order(node, Wait{false, text});
  }
  forming_.status_every =
      std::min(forming_.status_every * 2, std::max(options_.status_cap, options_.first_status));
  forming_.status_at = instant_after(now_, forming_.status_every);
}

// ---- Stopping.

void Membership::depart(const Node& node, StopWhy why, std::string text) {
  if (departure_ || (!node.member && stage_ != Stage::forming)) return;
  const int signal = why == StopWhy::left ? node.report.signal : 0;
  departure_ = {why, node.join.host_name, node.member ? node.rank : -1, signal, std::move(text)};
}

void Membership::begin_stop(StopWhy why, std::string text) {
  stage_ = Stage::stopping;
  if (why == StopWhy::lost && is_short()) return end_short_of_nodes();
  text += what_next_text(why);
  note(fmt::format("epoch {} is stopped: {}", epoch_, text));
  for (auto& [agent, node] : nodes_) {
    // A node without its Round has nothing to stop; a leaving one waits for an answer.
    if (node.member && (node.started || node.left)) order(node, Stop{epoch_, why, text});
    recount(node);
    if (node.member) renew(node);
  }
}

// Concludes the epoch, of which nothing is alive any more except perhaps on lost nodes.
void Membership::conclude() {
  close_store();
  before_.reset();
  if (!failure_) return change_membership();
  judgement_ = judge_epoch();
  if (failure_->failure.final) return end_of_failure();
  if (departure_ && judgement_->by_departure) return change_membership();
  if (restarts_ >= job_->max_restarts) return end_of_failure();
  if (tally_.stays < job_->nodes_min) return end_short_after_failure();
  ++restarts_;
  before_ = judgement_->verdict;
  before_->detail = judgement_->brief;
  begin_forming(true);
}

// Moves the evidence out of the node: with hundreds of nodes it is large.
Testimony Membership::take_testimony(Node& node) const {
  Testimony testimony;
  testimony.host_name = node.join.host_name;
  testimony.node_rank = node.rank;
  testimony.base_rank = node.round.base_rank;
  testimony.workers = node.join.slots;
  testimony.failure = node.failure;
  testimony.evidence = std::exchange(node.evidence, std::nullopt);
  testimony.gone = node.left;
  testimony.last_heard = node.left_at.value_or(node.last_sign);
  testimony.gone_by = node.left_at.value_or(node.detached.value_or(now_));
  return testimony;
}

// Adds a node's testimony. If it was lost and came back, both the loss and its new report count.
void Membership::give_testimony(std::map<AgentId, Testimony>& all, Node& node) const {
  Testimony told = take_testimony(node);
  const auto [known, first] = all.try_emplace(node.join.agent, std::move(told));
  if (first) return;
  if (told.failure) known->second.failure = std::move(told.failure);
  if (told.evidence) known->second.evidence = std::move(told.evidence);
}

void Membership::forget_evidence() {
  gone_.clear();
  for (auto& [agent, node] : nodes_) {
    node.failure.reset();
    node.evidence.reset();
  }
}

// Called once per epoch.
Judgement Membership::judge_epoch() {
  std::map<AgentId, Testimony> all = std::exchange(gone_, {});
  for (auto& [agent, node] : nodes_) {
    if (node.member) give_testimony(all, node);
  }
  std::vector<Testimony> testimonies;
  for (auto& [agent, testimony] : all)
    testimonies.push_back(std::move(testimony));
  std::ranges::sort(testimonies, {}, &Testimony::node_rank);
  if (options_.judge) return options_.judge(testimonies);
  const NodeFailure& first = failure_->failure;
  Verdict verdict{first.rank,      first.local_rank, failure_->node_rank, failure_->host_name,
                  first.exit_code, first.signal,     first.sentence,      ""};
  return {std::move(verdict), "", departure_.has_value()};
}

bool Membership::is_short() const {
  return tally_.stays < job_->nodes_min && !awaits_enough_;
}

bool Membership::change_allowed() const {
  return !job_->max_membership_changes || changes_ < *job_->max_membership_changes;
}

void Membership::change_membership() {
  if (is_short() || !change_allowed()) return end_short_of_nodes();
  ++changes_;
  begin_forming(!awaits_enough_);
}

// ---- The end.

void Membership::end_of_failure() {
  if (!judgement_) judgement_ = judge_epoch();
  End last;
  last.why = EndWhy::failed;
  last.verdict = judgement_->verdict;
  Verdict& verdict = *last.verdict;
  if (verdict.exit_code < 1 || verdict.exit_code > 255) verdict.exit_code = 1;
  last.exit_code = verdict.exit_code;
  last.node_rank = verdict.node_rank;
  last.host_name = verdict.host_name;
  last.text = failure_text();
  end(std::move(last));
}

// Ends a job that has restarts but too few nodes left after the failure. A node that left on a
// signal is meant to stop the job; a loss does not change why the job failed.
void Membership::end_short_after_failure() {
  if (departure_ && departure_->signal > 0) return end_short_of_nodes();
  end_of_failure();
}

// Names the node only: nothing has run yet, so it has no rank.
void Membership::end_for_unfit(const Node& node, const NodeFailure& failure) {
  End verdict;
  verdict.why = EndWhy::failed;
  verdict.exit_code = failure.exit_code;
  if (verdict.exit_code < 1 || verdict.exit_code > 255) verdict.exit_code = 1;
  verdict.node_rank = node.join.node_rank.value_or(-1);
  verdict.host_name = node.join.host_name;
  verdict.text = fmt::format("{}: {}", name_of(node), quiet_line(failure.sentence));
  tell_until_ = instant_after(now_, options_.tell_linger);
  end(std::move(verdict));
}

// Ends the job because a node was lost or has left, and the remaining nodes may not go on.
void Membership::end_short_of_nodes() {
  if (failure_ && failure_->failure.final) return end_of_failure();
  End verdict;
  verdict.why = EndWhy::lost;
  verdict.exit_code = static_cast<int>(ExitCode::rendezvous);
  verdict.text = "the host of the job was restarted";
  if (departure_) {
    verdict.text = departure_->text;
    verdict.node_rank = departure_->node_rank;
    verdict.host_name = departure_->host_name;
    if (departure_->why == StopWhy::left && departure_->signal > 0) {
      verdict.why = EndWhy::stopped;
      verdict.signal = departure_->signal;
      verdict.exit_code = std::min(128 + departure_->signal, 255);
      if (judgement_) verdict.verdict = judgement_->verdict;
    }
  }
  if (tally_.stays < job_->nodes_min) {
    verdict.text +=
        fmt::format("; {} left, the job needs {}", nodes_text(tally_.stays), job_->nodes_min);
  } else {
    verdict.text += "; " + budget_text();
  }
  if (failure_) verdict.text += "; before that, " + failure_text();
  end(std::move(verdict));
}

void Membership::end(EndWhy why, ExitCode code, std::string text) {
  End verdict;
  verdict.why = why;
  verdict.exit_code = static_cast<int>(code);
  verdict.text = std::move(text);
  end(std::move(verdict));
}

// Returns the lowest rank of the newest round whose node is connected and stays; -1: none.
int Membership::teller() const {
  for (size_t rank = 0; rank < seats_.size(); ++rank) {
    const auto found = nodes_.find(seats_[rank]);
    if (found == nodes_.end() || !found->second.member) continue;
    if (found->second.connection && !found->second.left) return static_cast<int>(rank);
  }
  return -1;
}

void Membership::end(End verdict) {
  stage_ = Stage::ended;
  verdict.teller = teller();
  const bool may_know = formed_here_ || options_.past.epoch == 0;
  all_were_there_ =
      may_know && std::ranges::all_of(seats_, [this](const AgentId& agent) {
        const auto found = nodes_.find(agent);
        return found != nodes_.end() && found->second.member && found->second.connection;
      });
  verdict.restarts = restarts_;
  verdict.changes = changes_;
  note("the job has ended: " + verdict.text);
  if (verdict.why == EndWhy::success && store_ > 0)
    close_store_at_ = instant_after(now_, options_.store_linger);
  end_ = std::move(verdict);
  forget_evidence();
  release_places();
  for (auto& [agent, node] : nodes_) {
    order(node, End());
    renew(node);
  }
}

void Membership::close_store() {
  close_store_at_ = kNever;
  if (const Epoch epoch = std::exchange(store_, 0); epoch > 0) out_->push_back(CloseStore{epoch});
}

// ---- reports: failures, ends, departures, newcomers

void Membership::take_evidence(Node& node, const Report& report) {
  if (!node.member || !node.started || report.epoch != epoch_) return;
  if (stage_ != Stage::running && stage_ != Stage::stopping) return;  // Already judged.
  if (report.failure) node.failure = report.failure;
  if (report.evidence) node.evidence = report.evidence;
}

void Membership::take_failure(Node& node, const Report& report) {
  if (!report.failure || !node.member || !node.started) return;
  if (report.epoch != epoch_ && !PLANTED(MembershipBug::skipped_epoch_check)) return;
  if (stage_ == Stage::running) {
    failure_ = {node.join.agent, node.join.host_name, node.rank, *report.failure};
    return begin_stop(StopWhy::failure, failure_text());
  }
  if (stage_ != Stage::stopping) return;
  if (failure_ && failure_->agent == node.join.agent) {
    // Planted: a repeated failure counts as another one.
    if (PLANTED(MembershipBug::failure_counted_twice)) ++restarts_;
    failure_->failure = *report.failure;
    return;
  }
  if (report.failure->final && !(failure_ && failure_->failure.final)) {
    failure_ = {node.join.agent, node.join.host_name, node.rank, *report.failure};
    note(failure_text());
    return;
  }
  note(fmt::format("{}: a failure reported after the stop is not its cause", name_of(node)));
}

// True for a node that was never in a round and joined only to report that it can start no worker.
bool Membership::is_unfit(const Node& node, const Report& report) const {
  return report.failure && report.failure->final && report.epoch == 0 && !node.member &&
         report.phase == Phase::ready;
}

void Membership::take_unfit(Node& node, const NodeFailure& failure) {
  const bool fixed = is_fixed(*job_);
  if (stage_ == Stage::forming && (fixed || node.join.is_host)) return end_for_unfit(node, failure);
  const std::string text =
      fmt::format("{} does not take part: {}", name_of(node), quiet_line(failure.sentence));
  note(text);
  send(node, Refused{RefusalKind::contradiction,
                     fmt::format("the job continues without this node: {}", text)});
  drop(node, true);
  if (stage_ != Stage::forming) return;
  forming_.unfit = "; " + text;
  if (!nodes_.empty()) tell_waiting();
}

void Membership::take_phase(Node& node) {
  switch (node.report.phase) {
    case Phase::ready:
      return take_ready(node);
    case Phase::testified:
      return node.member ? take_ready(node) : void();
    case Phase::leaving:
      return take_leaving(node);
    case Phase::running:
    case Phase::stopping:
    case Phase::done:
      return stop_stray(node);
  }
}

void Membership::take_ready(Node& node) {
  if (node.left || (stage_ != Stage::opening && stage_ != Stage::running)) return;
  if (!node.member) return consider_newcomer(node);
  if (!node.started || node.report.epoch < epoch_) return;
  // It did not wait for our Stop because it had not heard from us for a lease.
  const std::string text =
      name_of(node) + " abandoned the round: it had lost contact with this host";
  depart(node, StopWhy::lost, text);
  begin_stop(StopWhy::lost, text);
}

void Membership::take_leaving(Node& node) {
  if (node.left) return;
  node.left = true;
  node.left_at = now_;
  const int signal = node.report.signal;
  const std::string text = signal == 0
                               ? name_of(node) + " leaves"
                               : fmt::format("{} leaves ({})", name_of(node), signal_name(signal));
  note(text);
  if (signal > 0) others_may_leave_until_ = instant_after(now_, options_.signals_apart);
  if (node.join.is_host) release_places();
  depart(node, StopWhy::left, text);
  recount(node);
  if (node.member && (stage_ == Stage::opening || stage_ == Stage::running))
    return begin_stop(node.report.to_all ? StopWhy::left_by_signal_to_all : StopWhy::left, text);
  // The node waits for this before its own grace period starts.
  order(node, Stop{node.member ? epoch_ : node.report.epoch, StopWhy::left, text});
  recount(node);
}

// Stops workers of any epoch but the running one, whichever host instance started them.
void Membership::stop_stray(Node& node) {
  const Epoch epoch = node.report.epoch;
  if (node.member) {
    if (epoch != epoch_) note(name_of(node) + " reports an epoch other than its own");
    return;
  }
  const Stop* const ordered = std::get_if<Stop>(&node.order);
  if (node.order_sequence > 0 && ordered && ordered->epoch == epoch) return;
  const std::string over = fmt::format("epoch {} is over", epoch);
  order(node, formed_here_
                  ? Stop{epoch, StopWhy::lost, over + ": this node had been declared lost"}
                  : Stop{epoch, StopWhy::host, "the host of the job was restarted: " + over});
}

// How long a surplus node waits: it may be a restarted one whose old process is not known dead yet.
Duration Membership::surplus_patience() const {
  constexpr Duration kSurplusPatience = std::chrono::seconds{15};
  return std::max(job_->lease, kSurplusPatience);
}

// True if the node has waited in vain for a place to become free.
bool Membership::is_surplus(const Node& node) const {
  return stage_ == Stage::running && !node.member && node.surplus_since &&
         now_ - *node.surplus_since >= surplus_patience();
}

// Handles a node that is ready while others run. REQUIRES: it is not in the epoch.
void Membership::consider_newcomer(Node& node) {
  if (!is_ready(node)) return;
  if (tally_.members < job_->nodes_max && change_allowed()) {
    const std::string text = name_of(node) + " has joined";
    note(text);
    return begin_stop(StopWhy::joined, text);
  }
  const Wait* const ordered = std::get_if<Wait>(&node.order);
  if (node.order_sequence > 0 && ordered && ordered->spare) return;
  const bool fixed = is_fixed(*job_);
  if (fixed) node.surplus_since = now_;
  std::string text =
      fmt::format("{} of {} run; this one ", tally_.members, nodes_text(job_->nodes_max));
  text += fixed ? fmt::format("waits up to {} for a place", whole_seconds(surplus_patience()))
                : "is a spare";
  if (tally_.members < job_->nodes_max) text += ": " + budget_text();
  order(node, Wait{true, std::move(text)});
}

}  // namespace muster
