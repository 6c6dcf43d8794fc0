#include "rendezvous/membership/membership.h"

#include <algorithm>

#include <fmt/format.h>

#include "rendezvous/base/planted.h"
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

}  // namespace muster
