#include "rendezvous/membership/membership.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "rendezvous/base/planted.h"
#include "rendezvous/base/text.h"
#include "rendezvous/membership/membership_ranks.h"
#include "rendezvous/membership/membership_text.h"

namespace muster {

using namespace membership;  // NOLINT: the words of the protocol

Membership::Membership(const Options& options)
    : options_(options),
      seen_epoch_(options.past.epoch),
      seen_nodes_(options.past.nodes),
      restarts_(options.past.restarts),
      changes_(options.past.changes) {
  for (const Duration duration : {options.reconnect_grace, options.lease, options.first_status,
                                  options.status_cap, options.jump, options.store_linger}) {
    CHECK(duration >= Duration::zero());
  }
  CHECK(options.lease > Duration::zero() && options.first_status > Duration::zero());
}

// Every (stage, event) pair. "-" changes nothing about rounds. A report with an old sequence number
// only renews the lease; one on an unknown connection is dropped with a Note.
//
//                     forming        opening [1]   running        stopping           ended
// Joined, new         waits [2]      waits         waits          waits [3]          refused [4]
// Joined, known       order again    order again   order again    order again        End again
// Reported ready [5]  form?          join? [6]     join? [6]      over? [7]          -
//   running, done     stop it [8]    stop it [8]   all done?      stop it [8]        -
//   failure           -              -             stop           detail [9]         -
//   cannot start      end [10]       refused       refused        refused            -
//   leaving           it goes        stop          stop           over if reaped     -
// Parted              it goes        stop          stop           over               finished?
// Disconnected        grace          grace         grace          grace              grace
//   lost              it goes        stop          stop           over               finished?
// StoreOpened         -              Round to all  -              -                  -
// StoreFailed         -              end           -              -                  -
// Neighbours          tell all       -             -              -                  -
// Tick                last call,     leases        leases         leases             leases, close
//                     time-out,                                                      the store
//                     status, leases
//
// [1] No node has its Round yet: all members are over once the epoch is stopped. [2] Refused if it
// contradicts the job or claims the rank of a live node; but if the job never ran, nodes that
// contradict the host's own node are refused instead. [3] A node that was lost in this epoch and
// comes back is waited for again. [4] Unless it was in this job's rounds, or the job could not
// start and tell_linger is not over: then it gets the End. [5] A member that is ready while its own
// epoch runs has given it up, which counts as a loss. [6] A newcomer: a new round if there is room
// and budget, else it is a spare. [7] When no node is left to wait for, the epoch is concluded: a
// new round or the end. [8] Stop that node's workers, unless they are this epoch's. [9] Updates the
// first failure; a final one replaces it. [10] If the job needs this node: the host's own, or one
// of a fixed number without spares; else it is refused and the waiting nodes are informed.
void Membership::step(Instant now, const Event& event, std::vector<Effect>& out) {
  now_ = now;
  out_ = &out;
  // A later machine of this host instance must not reuse the sequence numbers of an earlier one.
  if (orders_ == 0) orders_ = static_cast<uint64_t>(now.time_since_epoch().count());
  notice_standstill();
  std::visit([this](const auto& e) { on(e); }, event);
  settle();
  out_ = nullptr;
}

Instant Membership::next_deadline() const {
  Instant deadline = close_store_at_;
  if (nodes_.empty()) return deadline;
  deadline = std::min({deadline, leases_.begin()->first, watch_at_});
  if (stage_ != Stage::forming) return deadline;
  // Each step looks at these; what keeps a round from forming although one has passed is an event.
  for (const Instant limit : {forming_.join_by, forming_.last_call, others_may_leave_until_}) {
    if (limit > now_) deadline = std::min(deadline, limit);
  }
  return std::min(deadline, forming_.status_at);
}

void Membership::on(const Joined& event) {
  const auto known = nodes_.find(event.join.agent);
  if (Node* other = node_of(event.connection); other && other->join.agent != event.join.agent) {
    note("closed the connection of " + name_of(*other) + ": a second agent used it");
    out_->push_back(Hangup{event.connection});
    return detach(*other);
  }
  if (known != nodes_.end()) return attach(known->second, event);
  give_way_to_host(event.join);
  if (std::optional<Refused> refused = refusal(event.join))
    return refuse(event.connection, std::move(*refused));
  learn_job(event.join);
  Node& node = admit(event.join);
  attach(node, event);
  note(name_of(node) + " is here");
  if (stage_ == Stage::ended) return order(node, End{});
  if (node.member)
    return order(node, Stop{epoch_, StopWhy::lost, "this node had been declared lost"});
  if (stage_ == Stage::forming) return;
  // The newcomer may replace a node whose connection has broken, which shortens that node's grace.
  for (auto& [agent, other] : nodes_) {
    if (other.detached) renew(other);
  }
}

void Membership::on(const Reported& event) {
  Node* node = node_of(event.connection);
  if (!node) return note("dropped a report: its connection belongs to no known node");
  // Planted: the reports of a stopping node do not renew its lease.
  const bool beats =
      !PLANTED(MembershipBug::lease_off_by_one) || event.report.phase != Phase::stopping;
  const bool is_newest = event.report.sequence > node->report.sequence;
  if (is_newest) node->report = event.report;
  if (beats) on_sign(*node);
  if (is_newest) {
    node->report.failure.reset();
    node->report.evidence.reset();
    node->has_reported = true;
    seen_epoch_ = std::max(seen_epoch_, event.report.epoch);
    recount(*node);
    if (stage_ != Stage::ended) {
      if (is_surplus(*node)) {
        send(*node,
             Refused{RefusalKind::full,
                     fmt::format("all {} of this job run without this one; --spares announces "
                                 "nodes that wait for a place",
                                 nodes_text(job_->nodes_max))});
        return drop(*node, true);
      }
      if (is_unfit(*node, event.report)) return take_unfit(*node, *event.report.failure);
      take_evidence(*node, event.report);
      take_failure(*node, event.report);
      take_phase(*node);
    }
  }
  send(*node, Alive{node->report.sequence, event.report.sequence, now_});
  const bool taken_in = node->report.order >= node->order_sequence;
  if (!taken_in && now_ - node->order_sent >= heartbeat()) send_order(*node);
}

void Membership::on(const Parted& event) {
  Node* node = node_of(event.connection);
  if (!node) return;
  const bool in_epoch = node->member && (stage_ == Stage::opening || stage_ == Stage::running);
  if (stage_ != Stage::ended && !node->left)
    depart(*node, StopWhy::left, name_of(*node) + " has left");
  told_ += stage_ == Stage::ended;
  drop(*node, true);
  if (in_epoch && stage_ != Stage::ended) begin_stop(StopWhy::left, departure_->text);
}

void Membership::on(const Disconnected& event) {
  Node* node = node_of(event.connection);
  if (!node) return;
  detach(*node);
  const bool told = stage_ == Stage::ended && node->report.order >= node->order_sequence;
  told_ += told;
  if (told || (node->left && node->report.reaped)) drop(*node, false);
}

void Membership::on(const StoreOpened& event) {
  if (stage_ != Stage::opening || event.epoch != epoch_)
    return note(fmt::format("ignored the store of epoch {}: it was not expected", event.epoch));
  start_round(event.port);
}

void Membership::on(const StoreFailed& event) {
  if (stage_ != Stage::opening || event.epoch != epoch_) return;
  store_ = 0;
  end(EndWhy::timeout, event.error.code,
      fmt::format("the store of epoch {} could not be opened: {}", epoch_, event.error.message));
}

void Membership::on(const Neighbours& event) {
  const bool news = event.text != neighbours_ && !event.text.empty();
  neighbours_ = event.text;
  if (news && stage_ == Stage::forming && !nodes_.empty()) tell_waiting();
}

void Membership::on(const Tick&) {
  while (!leases_.empty() && leases_.begin()->first <= now_)
    lose(node_of(leases_.begin()->second));
  if (close_store_at_ <= now_) close_store();
  if (stage_ == Stage::forming && !nodes_.empty() && forming_.status_at <= now_) tell_waiting();
}

// Applies what follows from the state, whatever event led to it. Cheap if nothing follows.
void Membership::settle() {
  if (stage_ == Stage::running && tally_.members > 0 && tally_.done == tally_.members)
    end(EndWhy::success, ExitCode::success, "all workers of all nodes succeeded");
  if (stage_ == Stage::stopping && tally_.pending == 0) conclude();
  if (stage_ == Stage::forming) try_form();
  if (!nodes_.empty()) {
    if (watch_at_ <= now_ || watch_at_ == kNever) watch_at_ = instant_after(now_, watch_period());
    return;
  }
  watch_at_ = kNever;
  if (finished_ || !job_) return;
  close_store();
  out_->push_back(Finished{stage_ == Stage::ended});
  if (stage_ == Stage::ended) {
    finished_ = true;
  } else {
    job_.reset();  // All nodes left before the job began: the next to join begins it anew.
  }
}

// ---- lines for people: which nodes are here, which are missing, what happens when

namespace membership {

std::string whole_seconds(Duration duration) {
  using std::chrono::milliseconds;
  using std::chrono::seconds;
  if (duration > Duration::zero() && duration <= milliseconds{999})
    return fmt::format("{} ms", std::chrono::ceil<milliseconds>(duration).count());
  return fmt::format("{} s", std::chrono::ceil<seconds>(duration).count());
}

std::string quiet_name(std::string_view name) {
  return name.empty() ? "a node without a name" : printable(name, 64);
}

std::string quiet_line(std::string_view text) {
  std::string out(text.substr(0, kTextBytesMax / 2));
  for (char& c : out) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) c = ' ';
  }
  return out;
}

std::string full_seconds(Duration duration) {
  return fmt::format("{} s", std::chrono::floor<std::chrono::seconds>(duration).count());
}

std::string precise_seconds(Duration duration) {
  return fmt::format("{:.1f} s", to_seconds(duration));
}

std::string users_differ_text(std::string_view where, std::string_view host,
                              std::string_view node) {
  return fmt::format(
      "the host at {} runs as {}, this node as {}, and without a job token users of one machine "
      "share no job: choose another port, or give all nodes the same --rdzv-token-file",
      where, host, node);
}

std::string nodes_text(int count) {
  return counted(count, "node");
}

std::string list_text(std::vector<std::string> names, size_t count) {
  if (count > names.size()) names.push_back(fmt::format("{} more", count - names.size()));
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace membership

namespace {

constexpr size_t kNamed = 8;

}  // namespace

std::string Membership::name_of(const Node& node) const {
  const std::string name = quiet_name(node.join.host_name);
  if (node.member) return fmt::format("{} (node rank {})", name, node.rank);
  if (node.join.node_rank) return fmt::format("{} (--node-rank={})", name, *node.join.node_rank);
  return name;
}

std::string Membership::status(Instant now) const {
  switch (stage_) {
    case Stage::forming:
      return job_ ? forming_text(now) : "no node has joined yet";
    case Stage::opening:
      return fmt::format("epoch {} is formed by {}; its store is being opened", epoch_,
                         nodes_text(tally_.members));
    case Stage::running:
      return fmt::format("epoch {} runs on {}", epoch_, nodes_text(tally_.members)) +
             (tally_.done > 0 ? fmt::format("; {} done", nodes_text(tally_.done)) : "");
    case Stage::stopping:
      return fmt::format("epoch {} is being stopped; workers may be alive on {}", epoch_,
                         nodes_text(tally_.pending));
    case Stage::ended:
      break;
  }
  return fmt::format(
      "the job has ended ({}); {} not said goodbye yet", end_->text,
      nodes_.size() == 1 ? "1 node has" : fmt::format("{} nodes have", nodes_.size()));
}

bool Membership::has_untold(Instant now) const {
  return stage_ == Stage::ended && now < tell_until_ && told_ < job_->nodes_max;
}

bool Membership::waits_for_nodes(Instant now) const {
  return stage_ == Stage::forming && !nodes_.empty() &&
         now - forming_.since >= options_.first_status;
}

std::string Membership::forming_text(Instant now) const {
  return who_text() + forming_.unfit + neighbours_ + "; " + what_comes_text(now);
}

std::string Membership::who_text() const {
  std::string text = fmt::format("{} of {}", tally_.ready, nodes_text(job_->nodes_max));
  for (const std::string& part : {here_text(), missing_text(), silent_text()}) {
    if (!part.empty()) text += "; " + part;
  }
  return text;
}

std::string Membership::here_text() const {
  if (nodes_.empty() || nodes_.size() > kNamed) return "";
  std::vector<std::string> ready;
  std::vector<std::string> late;
  for (const auto& [agent, node] : nodes_) {
    if (node.left) continue;
    const bool counted = is_ready(node);
    (counted ? ready : late).push_back(quiet_name(node.join.host_name));
  }
  std::ranges::sort(ready, natural_less);
  std::ranges::sort(late, natural_less);
  std::string text;
  if (!ready.empty()) text = fmt::format("here: {}", fmt::join(ready, ", "));
  if (late.empty()) return text;
  if (!text.empty()) text += "; ";
  return text + fmt::format("not ready yet: {}", fmt::join(late, ", "));
}

// Only nodes with a --node-rank can be named while they are missing.
std::string Membership::missing_text() const {
  if (claims_.empty()) return "";
  std::vector<std::string> named;
  const int missing = job_->nodes_max - static_cast<int>(claims_.size());
  for (int rank = 0; rank < job_->nodes_max && named.size() < kNamed; ++rank) {
    if (!claims_.contains(rank)) named.push_back(fmt::format("{}", rank));
  }
  if (named.empty()) return "";
  const std::string_view what = missing == 1 ? "node rank" : "node ranks";
  return fmt::format("missing: {} {}", what,
                     list_text(std::move(named), static_cast<size_t>(missing)));
}

// Names the ready nodes that are overdue and may be dead: the round waits for a sign of them.
std::string Membership::silent_text() const {
  std::vector<std::string> names;
  for (const auto& [agent, node] : nodes_) {
    if (is_ready(node) && is_silent(node, now_)) names.push_back(quiet_name(node.join.host_name));
  }
  if (names.empty()) return "";
  std::ranges::sort(names, natural_less);
  const size_t count = names.size();
  return "no sign now of " + list_text(std::move(names), count);
}

std::string Membership::what_comes_text(Instant now) const {
  if (forming_.last_call != kNever && tally_.ready >= job_->nodes_min)
    return fmt::format("starts with {} in {}", tally_.ready,
                       whole_seconds(std::max(forming_.last_call - now, Duration::zero())));
  std::string text;
  if (job_->nodes_min < job_->nodes_max && tally_.ready < job_->nodes_min)
    text = fmt::format("at least {} are needed; ", job_->nodes_min);
  if (forming_.join_by == kNever) return text + "waits without limit";
  return text + fmt::format("gives up in {}",
                            whole_seconds(std::max(forming_.join_by - now, Duration::zero())));
}

std::string Membership::budget_text() const {
  return fmt::format("the budget of {} is spent",
                     counted(job_->max_membership_changes.value_or(0), "membership change"));
}

std::string Membership::what_next_text(StopWhy why) const {
  if (failure_ && failure_->failure.final) return "; it cannot be repeated, the job ends";
  // Only when all has stopped is it known whether this takes a restart or a lost node explains it.
  if (why == StopWhy::failure) {
    if (job_->max_restarts == 0) return "; all ranks are stopped";
    return fmt::format("; all ranks are stopped, {} of {} restarts left",
                       job_->max_restarts - restarts_, job_->max_restarts);
  }
  if (awaits_enough_) return "; a new round forms when there are enough nodes";
  if (tally_.stays < job_->nodes_min)
    return fmt::format("; {} left, the job needs {}", nodes_text(tally_.stays), job_->nodes_min);
  if (!change_allowed()) return "; " + budget_text();
  if (why == StopWhy::joined) return "; a new round forms with it";
  return fmt::format("; a new round forms with {}",
                     nodes_text(std::min(tally_.stays, job_->nodes_max)));
}

// ---- All nodes, for people.

std::vector<NodeLine> Membership::nodes(Instant now) const {
  std::vector<const Node*> order;
  for (const auto& [agent, node] : nodes_)
    order.push_back(&node);
  std::ranges::sort(order, [](const Node* a, const Node* b) {
    if (a->member != b->member) return a->member;
    if (a->member) return a->rank < b->rank;
    if (a->join.host_name == b->join.host_name) return a->arrival < b->arrival;
    return natural_less(a->join.host_name, b->join.host_name);
  });
  std::vector<NodeLine> lines;
  lines.reserve(order.size());
  for (const Node* const node : order) {
    lines.push_back({node->member ? node->rank : -1, node->join.host_name,
                     node->member ? node->round.base_rank : 0, node->join.slots,
                     state_text(*node, now)});
  }
  return lines;
}

// Says how long the node has been unconnected or silent (over 1.5 heartbeats), else its state.
std::string Membership::state_text(const Node& node, Instant now) const {
  const Duration silent = silence(node, now);
  if (!node.connection) return fmt::format("not connected for {}", precise_seconds(silent));
  if (is_silent(node, now)) return fmt::format("silent for {}", precise_seconds(silent));
  return std::string(node.member ? part_text(node) : waiting_text(node));
}

std::string_view Membership::part_text(const Node& node) const {
  const Report& report = node.report;
  if (node.left) return report.reaped ? "has left" : "leaving";
  const bool over = stage_ == Stage::stopping || stage_ == Stage::forming;
  switch (report.phase) {
    case Phase::ready:
      return over ? (is_ready(node) && !node.tally.pending ? "ready" : "stopping") : "starting";
    case Phase::running:
      return over || stage_ == Stage::ended ? "stopping" : "running";
    case Phase::stopping:
      return "stopping";
    case Phase::testified:
      return "stopped";
    case Phase::done:
      return over ? "stopping" : "done";
    case Phase::leaving:
      break;
  }
  return "leaving";
}

std::string_view Membership::waiting_text(const Node& node) const {
  if (node.left) return "leaving";
  if (!node.has_reported) return "connected";
  if (node.report.phase != Phase::ready) return "stopping";
  if (node.in_line) return "waits for its node rank";
  if (stage_ == Stage::ended) return "told of the end";
  if (stage_ == Stage::forming || stage_ == Stage::stopping) return "ready";
  return "spare";
}

std::string Membership::lost_text(const Node& node, bool cut_off) const {
  if (cut_off) {
    return fmt::format(
        "the host of the job lost its network, or all other nodes theirs: no sign of "
        "any of them for {}",
        whole_seconds(node.silence_limit));
  }
  if (node.connection) {
    return fmt::format("{} was lost: no sign of life for {}", name_of(node),
                       whole_seconds(node.silence_limit));
  }
  // The limit shrinks when another node can take its place, so the node may have been away longer.
  const auto away = std::chrono::floor<std::chrono::seconds>(now_ - node.detached.value_or(now_));
  return fmt::format("{} was lost: its connection broke and it did not reconnect within {}",
                     name_of(node), whole_seconds(std::max<Duration>(node.silence_limit, away)));
}

// Names the failure that the judge chose, or the first one until then.
std::string Membership::failure_text() const {
  const auto text = [](int rank, const std::string& host, int node_rank, const std::string& what) {
    return fmt::format("rank {} on {} (node rank {}) {}", rank, quiet_name(host), node_rank, what);
  };
  if (judgement_) {
    const Verdict& verdict = judgement_->verdict;
    return text(verdict.rank, verdict.host_name, verdict.node_rank, verdict.sentence);
  }
  const NodeFailure& failure = failure_->failure;
  return text(failure.rank, failure_->host_name, failure_->node_rank, failure.sentence);
}

void Membership::say(std::string text) {
  out_->push_back(Say{std::move(text)});
}

void Membership::note(std::string text) {
  out_->push_back(Note{std::move(text)});
}

}  // namespace muster
