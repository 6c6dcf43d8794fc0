// Each node's Hosting in the simulated world, and its path to the keeper.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "tests/sim/hosting_world.h"
#include "tests/transcripts/hosting_transcript.h"

namespace muster::hostsim {

using std::chrono::milliseconds;

namespace {

constexpr Duration kKeeperPatience = milliseconds{1500};  // Time to wait for one answer.
constexpr uint64_t kLateMs = 4000;

const Error kNoAnswer{ExitCode::rendezvous, "the keeper does not answer"};

}  // namespace

void World::step_hosting(int index, const Hosting::Event& event) {
  ++steps_;
  Node& node = at(index);
  const uint64_t life = node.life;
  if (tracing_) trace(fmt::format("{}: {}", index, hosting::to_text(event)));
  std::vector<Hosting::Effect> effects;
  node.hosting->step(clock_of(index, now_), event, effects);
  for (const Hosting::Effect& effect : effects) {
    if (tracing_) trace(fmt::format("  {}: {}", index, hosting::to_text(effect)));
    const bool is_grant = std::holds_alternative<hosting::RoundGranted>(effect);
    promises_.reached().found_written += is_grant && std::holds_alternative<hosting::Looked>(event);
    std::visit([this, index](const auto& e) { perform(index, e); }, effect);
    if (node.life != life) return;
  }
  schedule_tick(index, node.hosting->next_deadline(), &Node::hosting_tick, &World::tick_hosting);
}

void World::tick_hosting(int index) {
  const Node& node = at(index);
  const Instant deadline = node.hosting->next_deadline();
  if (from_clock(index, deadline) <= now_) return step_hosting(index, hosting::Tick{});
  std::vector<Hosting::Effect> effects;
  at(index).hosting->step(clock_of(index, now_), hosting::Tick{}, effects);
  if (!effects.empty() || node.hosting->next_deadline() != deadline) {
    promises_.violate("a Tick before the deadline of Hosting does nothing");
  }
  schedule_tick(index, deadline, &Node::hosting_tick, &World::tick_hosting);
}

// ---- The path to the keeper.

Instant World::keeper_away_until(int index) const {
  return std::max(keeper_out_, keeper_cuts_[static_cast<size_t>(index)]);
}

void World::ask(int index, const Ask& at_keeper, const Hosting::Event& failed) {
  Node& node = at(index);
  const uint64_t errand = ++node.errand;
  const auto fail_it = [this, index, errand, failed] { answer(index, errand, failed, true); };
  schedule(now_ + kKeeperPatience, index, fail_it);
  Duration takes = latency();
  if (now_ < keeper_away_until(index)) {
    // The request is refused, lost, or held back by the network.
    const uint64_t fate = prng_.below(3);
    if (fate == 0) schedule(now_ + takes, index, fail_it);
    if (fate < 2) return;
    takes += keeper_away_until(index) - now_;
  } else if (!healed_ && percent(plan_.delayed_percent)) {
    takes += up_to_ms(kLateMs);
  }
  const uint64_t life = node.life;
  schedule(now_ + takes, -1,
           [this, index, life, errand, at_keeper] { arrive(index, life, errand, at_keeper); });
}

// Performs a request even if the process that sent it is gone.
void World::arrive(int index, uint64_t life, uint64_t errand, const Ask& at_keeper) {
  keeper_.pass(now_);
  const Hosting::Event event = at_keeper();
  keeper_changed();
  const bool is_lost = !healed_ && percent(plan_.lost_percent);
  if (is_lost || now_ < keeper_away_until(index) || at(index).life != life) return;
  schedule(now_ + latency(), index,
           [this, index, errand, event] { answer(index, errand, event, false); });
}

void World::answer(int index, uint64_t errand, const Hosting::Event& event, bool has_failed) {
  Node& node = at(index);
  if (node.errand != errand || !node.hosting) return;
  ++node.errand;
  if (has_failed) node.disturbed_until = std::max(node.disturbed_until, now_);
  const auto* const taken = std::get_if<hosting::Taken>(&event);
  if (taken != nullptr && taken->how != hosting::Taken::How::won && !node.host) node.own.reset();
  step_hosting(index, event);
}

// Notifies the watchers, and runs again when a lease or a record expires.
void World::keeper_changed() {
  const std::string version = keeper_.look().version;
  std::erase_if(watches_, [&](const Watch& watch) {
    if (watch.version == version) return false;
    if (at(watch.node).life != watch.life) return true;
    const Duration late = percent(plan_.late_watch_percent) ? up_to_ms(1000) : Duration{};
    schedule(now_ + latency() + late, watch.node,
             [this, watch] { answer(watch.node, watch.errand, hosting::Awaited{}, false); });
    return true;
  });
  const Instant next = keeper_.next_change();
  if (next == kNever || next == keeper_tick_) return;
  keeper_tick_ = next;
  schedule(next, -1, [this] {
    keeper_.pass(now_);
    keeper_changed();
  });
}

// ---- Requests to the keeper.

void World::perform(int index, const hosting::Look&) {
  const uint64_t life = at(index).life;
  const uint64_t errand = at(index).errand + 1;
  const auto look = [this, index, life, errand]() -> Hosting::Event {
    Node& node = at(index);
    if (node.life == life && node.errand == errand) {
      node.claim.age = keeper_.host() ? now_ - keeper_.last_beat() : Duration{};
    }
    return hosting::Looked{keeper_.look()};
  };
  ask(index, look, hosting::Looked{tl::unexpected(kNoAnswer)});
}

// A watch that breaks stays silent until its patience ends.
void World::perform(int index, const hosting::Await& effect) {
  Node& node = at(index);
  const Watch watch{effect.seen.version, index, node.life, ++node.errand};
  const auto awake = [this, watch] { answer(watch.node, watch.errand, hosting::Awaited{}, false); };
  schedule(now_ + effect.patience + up_to_ms(5), index, awake);
  if (now_ < keeper_away_until(index)) return;
  schedule(now_ + latency(), -1, [this, watch] {
    keeper_.pass(now_);
    watches_.push_back(watch);
    keeper_changed();
  });
}

void World::perform(int index, const hosting::Take& effect) {
  Node& node = at(index);
  if (!node.host) {
    node.own = HostRecord{.instance = prng_.next() | 1,
                          .agent = node.agent,
                          .machine = fmt::format("machine{}", index),
                          .claim = {},
                          .host_name = fmt::format("node{}", index),
                          .addresses = std::vector<SocketAddress>(1)};
  }
  node.claim.returns = node.host != nullptr;
  const auto take = [this, index, seen = effect.seen, own = *node.own,
                     claim = node.claim]() -> Hosting::Event {
    const HostingPromises::Take before{
        index, claim, own, keeper_.host(), keeper_.last_beat(), keeper_.gone_since()};
    if (!keeper_.take(now_, seen, own)) return hosting::Taken{hosting::Taken::How::lost, {}};
    trace(fmt::format("keeper: the host is node {} ({:04x})", index, own.instance & 0xffff));
    promises_.taken(now_, before);
    return hosting::Taken{hosting::Taken::How::won, {}};
  };
  ask(index, take, hosting::Taken{hosting::Taken::How::failed, kNoAnswer});
}

void World::perform(int index, const hosting::Beat&) {
  const auto beat = [this, own = *at(index).own]() -> Hosting::Event {
    return hosting::Beaten{keeper_.beat(now_, own)};
  };
  ask(index, beat, hosting::Beaten{tl::unexpected(kNoAnswer)});
}

void World::perform(int index, const hosting::Write& effect) {
  const auto write = [this, own = *at(index).own, effect]() -> Hosting::Event {
    const std::optional<HostRecord> host = keeper_.host();
    const bool written =
        keeper_.write(now_, own, effect.before, effect.now, now_ + effect.remember);
    if (written) {
      trace(fmt::format("keeper: epoch {} of {:04x}{}", effect.now.epoch, own.instance & 0xffff,
                        effect.now.ending ? ", ended" : ""));
      promises_.written(own, host, effect.before, effect.now);
    }
    return hosting::Written{written};
  };
  ask(index, write, hosting::Written{tl::unexpected(kNoAnswer)});
}

void World::perform(int index, const hosting::Leave&) {
  const auto leave = [this, own = *at(index).own,
                      ended = at(index).ending_granted]() -> Hosting::Event {
    keeper_.leave(now_, own, ended);
    return hosting::Left{};
  };
  ask(index, leave, hosting::Left{});
}

// ---- Other effects of Hosting.

void World::perform(int index, const hosting::Call& effect) {
  Node& node = at(index);
  node.called = effect.host;
  const uint64_t attempt = node.attempt;
  const Instant call_by = now_ + plan_.lease;
  schedule(now_ + 2 * latency(), index,
           [this, index, attempt, call_by] { call_done(index, attempt, call_by); });
}

void World::perform(int index, const hosting::Found&) {
  Node& node = at(index);
  if (node.host) node.called = *node.own;
  greet(index);
}

void World::perform(int index, const hosting::NotFound& effect) {
  const uint64_t attempt = at(index).attempt;
  schedule(now_, index, [this, index, attempt, effect] {
    const Node& node = at(index);
    if (!node.wanting || node.attempt != attempt) return;
    member::ConnectionFailed failure{effect.error, effect.refused, false, std::nullopt};
    if (effect.ending) {
      ++promises_.reached().told_by_keeper;
      failure.over.emplace().why = effect.ending->why;
    }
    fail_connection(index, failure);
  });
}

void World::perform(int index, const hosting::Host& effect) {
  Node& node = at(index);
  Membership::Options options;
  options.lease = plan_.lease;
  options.host_instance = node.own->instance;
  options.past = {effect.job, effect.expected};
  node.host = std::make_unique<Membership>(options);
  node.host_tick = kNever;
  node.disturbed_until = std::max(node.disturbed_until, now_);
  node.called = *node.own;
  greet(index);
}

void World::perform(int index, const hosting::RoundGranted& effect) {
  const uint64_t instance = at(index).own->instance;
  promises_.granted(index, instance, effect.epoch);
  const bool fails = !healed_ && percent(plan_.store_fails_percent);
  schedule(now_ + up_to_ms(3), index, [this, index, instance, epoch = effect.epoch, fails] {
    if (!at(index).host || at(index).own->instance != instance) return;
    if (!fails) return step_host(index, membership::StoreOpened{epoch, 29400});
    step_host(index, membership::StoreFailed{epoch, {ExitCode::environment, "no port is free"}});
  });
}

void World::perform(int index, const hosting::EndingGranted&) {
  Node& node = at(index);
  promises_.ending_granted(index);
  node.ending_granted = true;
  for (const auto& [wire, message] : std::exchange(node.held, {}))
    perform_host(index, membership::Send{wire, message});
}

void World::perform(int index, const hosting::StepDown&) {
  promises_.stepped_down(index);
  end_host(index);
  schedule(now_, index, [this, index] { exit_if_over(index); });
}

void World::perform(int index, const hosting::Retire&) {
  at(index).retired = true;
  schedule(now_, index, [this, index] { exit_if_over(index); });
}

}  // namespace muster::hostsim
