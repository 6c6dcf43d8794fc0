// Properties of the membership machine under random sequences of reports, true or false;
// rapidcheck draws and shrinks them. Unlike the simulator this has no network and no honest agents.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "rendezvous/membership/membership.h"

namespace muster {
namespace {

using namespace membership;  // NOLINT: the words of the protocol
using std::chrono::milliseconds;
using std::chrono::seconds;

struct Agent {
  std::optional<ConnectionId> connection;
  Report said;  // Newest.
};

class AnyHost {
 public:
  AnyHost(int nodes_min, int nodes_max, int max_restarts, std::optional<int> max_changes)
      : machine_(Membership::Options{}), agents_(6) {
    job_.nodes_min = nodes_min;
    job_.nodes_max = nodes_max;
    job_.max_restarts = max_restarts;
    job_.max_membership_changes = max_changes;
    job_.lease = seconds{3};
    job_.last_call = seconds{4};
    job_.join_timeout = seconds{20};
  }

  // Performs one possible event, picked by three drawn numbers.
  void act(unsigned what, unsigned who, unsigned how) {
    Agent& agent = agents_[who % agents_.size()];
    switch (what % 9) {
      case 8:
        return say(Neighbours{how % 2 == 0 ? "" : "; another job waits"});
      case 0:
        return join(who % agents_.size());
      case 1:
        return say(Disconnected{how % (last_connection_ + 2)});
      case 2:
        if (agent.connection) say(Parted{*agent.connection});
        return;
      case 3:
        if (asked_store_) say(StoreOpened{*asked_store_, 4000});
        return;
      case 4:
        return pass(how);
      default:
        return report(agent, how);
    }
  }

  const Membership& machine() const { return machine_; }

 private:
  void join(size_t index) {
    Join join = job_;
    join.agent = {3, index};
    join.host_name = "n" + std::to_string(index);
    join.slots = 1 + static_cast<int>(index % 3);
    join.is_host = index == 0;
    if (index == 2) join.node_rank = 0;
    agents_[index].connection = ++last_connection_;
    open_.insert(last_connection_);
    owner_[last_connection_] = index;
    say(Joined{last_connection_, join});
  }

  void report(Agent& agent, unsigned how) {
    if (!agent.connection) return;
    Report report;
    report.sequence = agent.said.sequence + 1 - how % 7 / 6;
    report.order = how / 7 % 3 == 0 ? 0 : newest_order_[*agent.connection];
    report.phase = static_cast<Phase>(how / 21 % 6);
    report.epoch = how / 126 % 3 == 0 ? how / 378 % 4 : epoch_;
    report.reaped = report.phase == Phase::ready || how / 1512 % 2 == 0;
    if (how / 3024 % 3 == 0) {
      report.failure.emplace();
      report.failure->final = how / 9072 % 5 == 0;
    }
    agent.said = report;
    say(Reported{*agent.connection, report});
  }

  void pass(unsigned how) {
    const Instant deadline = machine_.next_deadline();
    const Duration steps[] = {milliseconds{1}, milliseconds{240}, seconds{1}, seconds{9}};
    now_ += steps[how % 4];
    if (deadline != kNever && how % 3 == 0) now_ = std::max(now_, deadline);
    say(Tick{});
  }

  void say(const Membership::Event& event) {
    if (std::holds_alternative<Tick>(event) && now_ < machine_.next_deadline()) {
      std::vector<Membership::Effect> none;
      machine_.step(now_, event, none);
      RC_ASSERT(none.empty());
      return;
    }
    if (const auto* broken = std::get_if<Disconnected>(&event)) open_.erase(broken->connection);
    std::vector<Membership::Effect> effects;
    machine_.step(now_, event, effects);
    for (const Membership::Effect& effect : effects)
      std::visit([this](const auto& e) { on(e); }, effect);
    RC_ASSERT(machine_.next_deadline() > now_);
    RC_ASSERT(!machine_.status(now_).empty());
    check_round();
  }

  void on(const Say& e) { RC_ASSERT(e.text.find('\n') == std::string::npos); }
  void on(const Note& e) { RC_ASSERT(e.text.find('\n') == std::string::npos); }
  void on(const Finished&) {}
  void on(const Hangup& e) { RC_ASSERT(open_.erase(e.connection) == 1u); }
  void on(const OpenStore& e) {
    RC_ASSERT(e.epoch > epoch_);
    RC_ASSERT(!store_);
    epoch_ = e.epoch;
    store_ = asked_store_ = e.epoch;
    rounds_.clear();
  }
  void on(const CloseStore& e) {
    RC_ASSERT(store_ == e.epoch);
    store_.reset();
    asked_store_.reset();
  }
  void on(const Send& e) {
    RC_ASSERT(open_.contains(e.connection));
    const auto* order = std::get_if<Order>(&e.message);
    if (!order) return;
    RC_ASSERT(order->sequence >= newest_order_[e.connection]);
    newest_order_[e.connection] = order->sequence;
    const size_t index = owner_.at(e.connection);
    if (const auto* round = std::get_if<Round>(&order->what)) begin(index, *round);
    if (const auto* end = std::get_if<End>(&order->what)) {
      const bool same = !end_ || *end_ == *end;
      RC_ASSERT(same);
      end_ = *end;
      RC_ASSERT(end->restarts <= job_.max_restarts);
    }
  }
  void begin(size_t index, const Round& round) {
    RC_ASSERT(store_ == round.epoch);
    RC_ASSERT(!end_);
    RC_ASSERT(round.restarts <= job_.max_restarts);
    if (job_.max_membership_changes) RC_ASSERT(round.changes <= *job_.max_membership_changes);
    const bool same = !rounds_.contains(index) || rounds_.at(index) == round;
    RC_ASSERT(same);
    asked_store_.reset();
    rounds_[index] = round;
  }
  // Each rank occurs once among the orders of this epoch.
  void check_round() const {
    std::set<int> ranks;
    for (const auto& [index, round] : rounds_) {
      RC_ASSERT(ranks.insert(round.node_rank).second);
      RC_ASSERT(round.node_rank < round.nodes);
      RC_ASSERT(round.nodes >= job_.nodes_min && round.nodes <= job_.nodes_max);
      RC_ASSERT(round.base_rank >= round.node_rank && round.base_rank < round.world_size);
    }
  }

  Membership machine_;
  Join job_;
  Instant now_{};
  std::vector<Agent> agents_;
  ConnectionId last_connection_ = 0;
  std::set<ConnectionId> open_;
  std::map<ConnectionId, size_t> owner_;
  std::map<ConnectionId, uint64_t> newest_order_;
  std::map<size_t, Round> rounds_;  // Orders of the newest epoch.
  Epoch epoch_ = 0;
  std::optional<Epoch> store_;
  std::optional<Epoch> asked_store_;
  std::optional<End> end_;
};

RC_GTEST_PROP(MembershipProperty, KeepsItsInvariantsForAnyReports, ()) {
  const int nodes_max = *rc::gen::inRange(1, 5);
  const int nodes_min = *rc::gen::inRange(1, nodes_max + 1);
  const auto max_changes = *rc::gen::maybe(rc::gen::inRange(0, 4));
  AnyHost host(nodes_min, nodes_max, *rc::gen::inRange(0, 3),
               max_changes ? std::optional<int>(*max_changes) : std::nullopt);
  const auto choices =
      *rc::gen::container<std::vector<std::tuple<unsigned, unsigned, unsigned>>>(rc::gen::tuple(
          rc::gen::inRange(0u, 9u), rc::gen::inRange(0u, 6u), rc::gen::inRange(0u, 46000u)));
  for (unsigned i = 0; i < 4; ++i)
    host.act(0, i, 0);
  for (const auto& [what, who, how] : choices)
    host.act(what, who, how);
}

}  // namespace
}  // namespace muster
