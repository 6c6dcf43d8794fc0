// Handles reports: failures, ends, departures, newcomers.
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/base/planted.h"
#include "rendezvous/base/signal_name.h"
#include "rendezvous/membership/membership.h"
#include "rendezvous/membership/membership_text.h"

namespace muster {

using namespace membership;  // NOLINT: the words of the protocol

namespace {

constexpr Duration kSurplusPatience = std::chrono::seconds{15};

}  // namespace

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
