// Membership's lines for people: which nodes are here, which are missing, what happens when.
#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "rendezvous/base/text.h"
#include "rendezvous/membership/membership.h"
#include "rendezvous/membership/membership_ranks.h"
#include "rendezvous/membership/membership_text.h"

namespace muster {

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

using namespace membership;  // NOLINT: the words of the protocol

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
