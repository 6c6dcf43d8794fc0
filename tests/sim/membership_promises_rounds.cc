// The promises about whole rounds and about agents.
#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "tests/sim/membership_promises.h"
#include "tests/sim/membership_world.h"

namespace muster::roundsim {

using membership::AgentId;
using membership::Epoch;

// ---- A round as a whole.

void MembershipPromises::host_stepped(Instant now) {
  const bool failure_heard = std::exchange(failure_heard_, false);
  const auto formed = formed_.find(newest_);
  if (formed == formed_.end() || formed->second.rounds.empty()) return;
  check(!failure_heard || formed->second.stopped, "a failure is pushed in the step that hears it");
  check_prompt(now, formed->second);
  if (newest_checked_) return;
  newest_checked_ = true;
  check_ranks(formed->second);
  check_budget(newest_, formed->second.rounds.begin()->second);
  formed->second.restarts = formed->second.rounds.begin()->second.restarts;
}

// A round does not continue without one of its nodes after that node's grace period or lease.
void MembershipPromises::check_prompt(Instant now, const Formed& formed) {
  if (formed.stopped || plan_.nodes > 64 || now - last_pause_ < plan_.lease + kGrace + kSlack) {
    return;
  }
  bool lost = false;
  bool anyone = false;
  for (const auto& [id, round] : formed.rounds) {
    const Agent& agent = agents_.at(id);
    anyone = anyone || agent.connection != 0;
    if (agent.phase == membership::Phase::done) continue;
    lost = lost || now - agent.heard > plan_.lease + kSlack ||
           (agent.connection == 0 && now - agent.gone > longest_grace(agent) + kSlack &&
            !is_needed(now, agent, kGrace + kSlack));
  }
  check(!lost || !anyone || doubts_itself_, "the loss of a node is found out within its lease");
}

void MembershipPromises::check_ranks(const Formed& formed) {
  std::map<int, std::pair<AgentId, membership::Round>> by_rank;
  for (const auto& [id, round] : formed.rounds) {
    check(by_rank.emplace(round.node_rank, std::pair{id, round}).second, "ranks are unique");
  }
  const membership::Round& first = formed.rounds.begin()->second;
  check(static_cast<int>(by_rank.size()) <= first.nodes, "only its members receive a round");
  check(first.nodes >= plan_.nodes_min && first.nodes <= plan_.nodes_max,
        "a round has at least MIN nodes and at most MAX");
  // A member that has lost its connection receives the round later, or never.
  int end_of_last = 0;
  int last_rank = -1;
  for (const auto& [rank, part] : by_rank) {
    const membership::Round& round = part.second;
    check(rank > last_rank && rank < first.nodes, "ranks are dense");
    check(rank == last_rank + 1 ? round.base_rank == end_of_last : round.base_rank > end_of_last,
          "base ranks are prefix sums");
    check(round.base_role_rank == round.base_rank, "one role counts as all do");
    check(round.nodes == first.nodes && round.world_size == first.world_size &&
              round.role_world_size == first.world_size && round.restarts == first.restarts &&
              round.changes == first.changes && round.master_port == first.master_port &&
              round.before == first.before,
          "a round is the same for all of it");
    end_of_last = round.base_rank + agents_.at(part.first).join.slots;
    last_rank = rank;
  }
  check(last_rank + 1 == first.nodes ? end_of_last == first.world_size
                                     : end_of_last < first.world_size,
        "the world is the sum of its nodes");
}

void MembershipPromises::check_budget(Epoch epoch, const membership::Round& round) {
  reached_.restarts = std::max(reached_.restarts, round.restarts);
  check(round.restarts <= plan_.max_restarts, "restarts stay within the budget");
  check(round.restarts <= static_cast<int>(failed_rounds_.size()),
        "a restart is taken for a failure, once");
  // A round that no agent received was stopped before it began.
  auto here = formed_.find(epoch);
  bool between = false;
  while (here != formed_.begin() && std::prev(here)->second.rounds.empty()) {
    --here;
    between = true;
  }
  if (here == formed_.begin()) return;
  const Formed& before = std::prev(here)->second;
  const int more = before.failed ? 1 : 0;
  check(round.restarts >= before.restarts && round.restarts <= before.restarts + more,
        "a restart is taken for a failure of the round before, once");
  if (!before.disturbed && !between) {
    check(round.restarts == before.restarts + more, "a reported failure is not forgotten");
  }
}

// ---- Agents.

void MembershipPromises::agent_started(int node) {
  agent_epochs_.erase(node);
  agents_over_.erase(node);
}

void MembershipPromises::agent_hears(Instant now, int index, const Member::Event& event) {
  if (const auto* done = std::get_if<member::WorkersDone>(&event)) {
    done_.emplace(world_.join_of(index).agent, done->epoch);
  }
  const auto* received = std::get_if<member::Received>(&event);
  if (received == nullptr) return;
  Contact& contact = contacts_[index];
  contact.heard = now;
  const auto* welcome = std::get_if<membership::Welcome>(&received->message);
  if (welcome != nullptr) contact.instance = welcome->host_instance;
}

// Workers keep running only while in contact with the host that gave them their round.
void MembershipPromises::agent_stepped(Instant now, int index) {
  const World::Node& node = world_.node(index);
  if (!node.workers_alive || node.workers_stopping || node.leaving) return;
  const Contact& contact = contacts_[index];
  check(contact.instance == contact.of_the_round, "another host ends the round");
  const Instant since = std::max(contact.heard, node.frozen_until);
  check(now - since <= plan_.lease + std::chrono::milliseconds{50},
        "no worker runs on without its host for longer than the lease");
}

void MembershipPromises::agent_asks(Instant now, int index, const Member::Effect& effect) {
  const World::Node& node = world_.node(index);
  check(!agents_over_.contains(index), "nothing follows a GaveUp");
  if (const auto* formed = std::get_if<member::RoundFormed>(&effect)) {
    check(!node.workers_alive, "never two worker groups of one node");
    check(!node.leaving && !node.end, "no round for a node that is going");
    check(formed->round.epoch > agent_epochs_[index], "the epochs of an agent only grow");
    contacts_[index].of_the_round = contacts_[index].instance;
    agent_epochs_[index] = formed->round.epoch;
    agent_hosts_[index] = world_.host_life_of(index);
  } else if (const auto* stop = std::get_if<member::StopWorkers>(&effect)) {
    check(stop->epoch == node.round.epoch, "the round that runs is stopped");
    check(stop->text.find('\n') == std::string::npos, "a reason is one line");
    const Contact& contact = contacts_[index];
    // The host's machine may not be that of the round, which all agents had left.
    const bool is_ours = contact.instance == contact.of_the_round && world_.host_up() &&
                         agent_hosts_[index] == host_life_;
    const bool froze = now - node.frozen_until < plan_.lease;
    const bool ordered = stop->why != membership::StopWhy::host;
    check(ordered || !is_ours || froze || now - contact.heard >= plan_.lease,
          "a round is given up only after a lease without its host");
  } else if (const auto* ended = std::get_if<member::JobEnded>(&effect)) {
    check(!node.end, "a job ends once");
    ++reached_.agents_ended;
    const bool good = ended->end.why == membership::EndWhy::success;
    const auto told = ends_.find(world_.host_life_of(index));
    const bool is_told = told != ends_.end() && told->second == ended->end;
    const bool others_alone =
        told != ends_.end() && told->second.why == membership::EndWhy::success && !good;
    check(is_told || (good && node.workers_done) || (others_alone && !node.workers_done),
          "one end for all, but for nodes that were cut off");
  } else if (const auto* gave_up = std::get_if<member::GaveUp>(&effect)) {
    check(!node.end, "an agent that knows the end does not give up");
    ++reached_.agents_gave_up;
    // Another agent may have taken its place of an earlier round.
    const auto newest = formed_.find(newest_);
    const bool is_replaced = gave_up->refused && newest != formed_.end() &&
                             !newest->second.rounds.contains(world_.join_of(index).agent);
    const bool surplus = plan_.is_fixed() && (!agent_epochs_.contains(index) || is_replaced);
    check(end_ || finished_ || surplus || !world_.host_is_well(now),
          "no agent gives up a host that is well");
    agents_over_.insert(index);
  }
}

membership::Judgement MembershipPromises::judge(
    const std::vector<membership::Testimony>& testimonies) {
  const membership::Testimony* first = nullptr;
  for (const membership::Testimony& node : testimonies) {
    if (!node.failure) continue;
    if (first == nullptr || node.failure->at < first->failure->at) first = &node;
  }
  membership::Judgement judgement;
  check(first != nullptr, "the judge hears of a failure");
  if (first == nullptr) return judgement;
  const auto formed = formed_.find(newest_);
  const bool told = formed != formed_.end() && !formed->second.rounds.empty();
  check(told, "the judged agents were in a round");
  if (!told) return judgement;
  const auto nodes = static_cast<size_t>(formed->second.rounds.begin()->second.nodes);
  check(testimonies.size() == nodes, "the judge hears of every node of the epoch");
  check(std::ranges::adjacent_find(testimonies, std::greater_equal<>(),
                                   &membership::Testimony::node_rank) == testimonies.end(),
        "the judge hears of each node once");
  const membership::NodeFailure& failure = *first->failure;
  judgement.verdict = {failure.rank,      failure.local_rank, first->node_rank, first->host_name,
                       failure.exit_code, failure.signal,     failure.sentence, "everything"};
  for (const membership::Testimony& node : testimonies) {
    if (node.gone && node.last_heard <= failure.at) judgement.by_departure = true;
  }
  return judgement;
}

void MembershipPromises::worker_failed(Instant now, int node, Epoch epoch) {
  const uint64_t host = agent_hosts_[node];
  failed_rounds_.emplace(host, epoch);
  failed_at_[{host, epoch, node}] = now;
  if (host != host_life_) return;
  const auto formed = formed_.find(epoch);
  if (formed != formed_.end()) formed->second.failed = true;
}

}  // namespace muster::roundsim
