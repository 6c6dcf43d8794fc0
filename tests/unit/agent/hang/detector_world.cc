#include "tests/unit/agent/hang/detector_world.h"

#include <algorithm>

#include <fmt/format.h>

#include "agent/hang/node_digest.h"
#include "tests/unit/agent/hang/detector_harness.h"

namespace muster::hang {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kStep = milliseconds(50);
constexpr Duration kTransfer = milliseconds(30);

size_t at(auto index) {
  return static_cast<size_t>(index);
}

void shift(RankDigest& digest, Duration ahead) {
  digest.at += ahead;
  for (GroupDigest& group : digest.groups) {
    group.since += ahead;
    for (CallDigest& call : group.calls)
      call.called += ahead;
  }
  for (MessageDigest& message : digest.messages)
    message.called_at += ahead;
}

bool is_rooted(ring::CallKind kind) {
  return kind == ring::CallKind::broadcast || kind == ring::CallKind::reduce;
}

}  // namespace

World::World(const WorldOptions& options)
    : options_(options), prng_(options.seed), detector_(options.limits) {
  plan();
}

int World::member_of(const Group& group, int rank) const {
  const auto found = std::ranges::find(group.ranks, rank);
  return found == group.ranks.end() ? -1 : static_cast<int>(found - group.ranks.begin());
}

// ---- the program

void World::plan() {
  const int world = 2 + static_cast<int>(prng_.below(5));
  ranks_.resize(at(world));
  groups_.push_back({all_of(world), {}, {}, {}, {}});
  for (int i = 0; i < static_cast<int>(prng_.below(3)); ++i) {
    Group group;
    for (int rank = 0; rank < world; ++rank) {
      if (prng_.chance(2, 3)) group.ranks.push_back(rank);
    }
    if (group.ranks.size() > 1) groups_.push_back(group);
  }
  for (Group& group : groups_) {
    const size_t size = group.ranks.size();
    group.made.resize(size);
    group.ended.resize(size);
    group.is_open.resize(size);
    group.opened.resize(size);
    sent_.emplace_back(size, std::vector<uint64_t>(size));
    received_.emplace_back(size, std::vector<uint64_t>(size));
    receiving_.emplace_back(size, std::vector<uint64_t>(size));
  }
  plan_steps();
  place_fault();
  start_nodes();
  tell(Begun{world});
}

void World::start_nodes() {
  const int nodes = std::min(options_.nodes, static_cast<int>(ranks_.size()));
  if (nodes < 2) return;
  std::vector<int> ranks_of(at(nodes));
  ranks_of[0] = 1;
  for (size_t rank = 1; rank < ranks_.size(); ++rank)
    ++ranks_of[1 + rank % at(nodes - 1)];
  truth_.resize(ranks_.size());
  held_.resize(ranks_.size());
  net_.emplace(ranks_of, options_.channel, options_.seed,
               [this](const Event& event) { tell(event); });
}

void World::plan_steps() {
  using enum ring::CallKind;
  const size_t count = 20 + prng_.below(40);
  for (size_t i = 0; i < count; ++i) {
    Step step;
    step.group = static_cast<int>(prng_.below(groups_.size()));
    const uint64_t size = groups_[at(step.group)].ranks.size();
    const ring::CallKind kinds[] = {all_reduce, all_reduce, barrier, broadcast, reduce, send};
    const uint64_t elements = 1 + prng_.below(4);  // Drawn first: arguments have no fixed order.
    step.call = call_of(kinds[prng_.below(6)], -1, elements);
    if (step.call.kind == all_reduce || step.call.kind == reduce)
      step.call.reduction = ring::Reduction::sum;
    if (is_rooted(step.call.kind)) step.call.root = static_cast<int>(prng_.below(size));
    if (step.call.kind == send) {
      step.from = static_cast<int>(prng_.below(size));
      step.to = static_cast<int>((at(step.from) + 1 + prng_.below(size - 1)) % size);
    }
    step.is_async = step.call.kind == all_reduce && prng_.chance(1, 4);
    step.call.is_synchronous = !step.is_async;
    steps_.push_back(step);
    const Group& group = groups_[at(step.group)];
    for (size_t member = 0; member < size; ++member) {
      const bool takes_part = step.from < 0 || at(step.from) == member || at(step.to) == member;
      if (takes_part) ranks_[at(group.ranks[member])].program.push_back(static_cast<int>(i));
    }
  }
}

void World::place_fault() {
  culprit_ = static_cast<int>(prng_.below(ranks_.size()));
  const std::vector<int>& program = ranks_[at(culprit_)].program;
  if (program.empty()) options_.fault = Fault::none;
  fault_at_ = program.empty() ? 0 : prng_.below(program.size());
  stop_at_ = now_ + seconds(2) + random(seconds(60));
  if (options_.fault == Fault::crossed) return place_crossed();
  const auto fits = [&](int index) {
    const Step& step = steps_[at(index)];
    if (options_.fault == Fault::no_send)
      return step.from >= 0 && groups_[at(step.group)].ranks[at(step.from)] == culprit_;
    return options_.fault != Fault::signature || step.call.kind == ring::CallKind::all_reduce;
  };
  while (fault_at_ < program.size() && !fits(program[fault_at_]))
    ++fault_at_;
}

// Swaps two adjacent calls of different groups that both need a second common rank.
void World::place_crossed() {
  using enum ring::CallKind;
  std::vector<int>& program = ranks_[at(culprit_)].program;
  const auto needs_all = [&](const Step& step) {
    return !step.is_async && (step.call.kind == all_reduce || step.call.kind == barrier);
  };
  for (; fault_at_ + 1 < program.size(); ++fault_at_) {
    const Step& first = steps_[at(program[fault_at_])];
    const Step& second = steps_[at(program[fault_at_ + 1])];
    if (first.group == second.group || !needs_all(first) || !needs_all(second)) continue;
    const auto is_in_both = [&](int rank) {
      return rank != culprit_ && member_of(groups_[at(second.group)], rank) >= 0;
    };
    if (std::ranges::any_of(groups_[at(first.group)].ranks, is_in_both)) {
      std::swap(program[fault_at_], program[fault_at_ + 1]);
      return;
    }
  }
  fault_at_ = program.size();
}

// ---- what ranks do

void World::live(int rank, LifeState life) {
  Rank& one = ranks_[at(rank)];
  moved_ = now_;
  if (one.life == life && life != LifeState::blocked) return;
  one.life = life;
  one.life_since = now_;
}

void World::begin_pause(int rank) {
  const Pause pauses[] = {
      {milliseconds(200), LifeState::running},         {milliseconds(200), LifeState::running},
      {milliseconds(200), LifeState::running},         {seconds(2), LifeState::running},
      {options_.busy_max, LifeState::running},         {options_.busy_max, LifeState::sleeping},
      {options_.busy_max, LifeState::uninterruptible}, {options_.block_max, LifeState::blocked}};
  const Pause& pause = pauses[prng_.chance(1, 6) ? prng_.below(8) : prng_.below(3)];
  Rank& one = ranks_[at(rank)];
  if (one.doing != Doing::in_call || now_ - one.called > seconds(1)) one.free_since = now_;
  const Duration left = options_.busy_max - (now_ - one.free_since);
  one.doing = Doing::pausing;
  one.until = now_ + random(std::clamp<Duration>(left, milliseconds(100), pause.time));
  live(rank, pause.life);
}

// Returns false while the rank waits for other members of a group.
bool World::open_groups(int rank) {
  Rank& one = ranks_[at(rank)];
  for (; one.opened < groups_.size(); ++one.opened) {
    Group& group = groups_[one.opened];
    const int member = member_of(group, rank);
    if (member < 0) continue;
    if (!group.is_open[at(member)]) {
      group.is_open[at(member)] = true;
      group.opened[at(member)] = now_;
      live(rank, LifeState::blocked);
    }
    if (std::ranges::count(group.is_open, false) > 0) return false;
    moved_ = now_;
  }
  return true;
}

// Returns true if the fault keeps the rank from making its next call.
bool World::strike(int rank) {
  if (rank != culprit_ || ranks_[at(rank)].next != fault_at_ || struck_) return false;
  const auto freeze = [&](LifeState life) {
    ranks_[at(rank)].doing = Doing::frozen;
    live(rank, life);
    return struck_ = true;
  };
  switch (options_.fault) {
    case Fault::block:
      return freeze(LifeState::blocked);
    case Fault::loop:
      return freeze(LifeState::running);
    case Fault::sleep:
      return freeze(LifeState::sleeping);
    case Fault::leave:
    case Fault::fail:
      struck_ = true;
      end(rank, options_.fault == Fault::fail ? 1 : 0);
      return true;
    case Fault::no_send:
      struck_ = true;
      ++ranks_[at(rank)].next;
      begin_pause(rank);
      return true;
    case Fault::none:
    case Fault::stop:
    case Fault::signature:
    case Fault::crossed:
      break;
  }
  struck_ = options_.fault == Fault::signature || options_.fault == Fault::crossed;
  return false;
}

void World::make_call(int rank) {
  Rank& one = ranks_[at(rank)];
  const Step& step = steps_[at(one.program[one.next])];
  Group& group = groups_[at(step.group)];
  const auto member = at(member_of(group, rank));
  if (step.from >= 0) {
    if (at(step.from) == member) {
      ++sent_[at(step.group)][member][at(step.to)];
    } else {
      ++receiving_[at(step.group)][at(step.from)][member];
    }
  } else {
    ring::Call call = step.call;
    const bool is_wrong =
        rank == culprit_ && struck_ && one.next == fault_at_ && options_.fault == Fault::signature;
    if (is_wrong && prng_.chance(1, 2)) call = kBarrier;
    if (is_wrong) call.count += 1;
    group.made[member].push_back({call, now_});
  }
  one.doing = Doing::in_call;
  one.called = now_;
  live(rank, LifeState::blocked);
  if (!step.is_async) return;
  one.doing = Doing::computing_in_call;
  one.until = now_ + random(seconds(2));
  live(rank, LifeState::running);
}

bool World::message_is_complete(const Group& group, const Step& step, int member) const {
  if (step.from == member) return true;
  const auto g = at(&group - groups_.data());
  return sent_[g][at(step.from)][at(member)] > received_[g][at(step.from)][at(member)];
}

// The culprit's wrong call never matches the others'.
bool World::is_complete(int rank, const Step& step) const {
  const Group& group = groups_[at(step.group)];
  const int member = member_of(group, rank);
  if (step.from >= 0) return message_is_complete(group, step, member);
  const uint64_t ordinal = group.ended[at(member)] + 1;
  const auto has_made = [&](size_t other) { return group.made[other].size() >= ordinal; };
  const Made& own = group.made[at(member)][ordinal - 1];
  if (now_ - own.at < kTransfer) return false;
  const auto root = at(step.call.root);
  if (step.call.kind == ring::CallKind::broadcast) return has_made(root);
  if (step.call.kind == ring::CallKind::reduce && root != at(member)) return true;
  for (size_t other = 0; other < group.ranks.size(); ++other) {
    if (!has_made(other)) return false;
    const Rank& peer = ranks_[at(group.ranks[other])];
    if (peer.is_stopped && group.ended[other] < ordinal && at(member) != other) return false;
    const Made& theirs = group.made[other][ordinal - 1];
    if (theirs.call.kind != own.call.kind || theirs.call.count != own.call.count) return false;
  }
  return true;
}

void World::end(int rank, int code) {
  Rank& one = ranks_[at(rank)];
  one.doing = Doing::ended;
  one.code = code;
  moved_ = now_;
  RankDigest last = digest_of(rank);
  last.is_last = true;
  if (net_) {
    send(rank, Digested{last});
    return send(rank, Ended{rank, code});
  }
  // Both arrive together, but the first may be lost.
  const Instant told = now_ + random(options_.channel.delay);
  if (prng_.below(100) >= at(options_.channel.lost)) post({told, Digested{last}});
  post({told, Ended{rank, code}});
}

void World::move(int rank) {
  Rank& one = ranks_[at(rank)];
  if (one.doing == Doing::ended || one.doing == Doing::frozen || one.is_stopped) return;
  if (rank == culprit_ && options_.fault == Fault::stop && now_ >= stop_at_) {
    one.is_stopped = struck_ = true;
    return live(rank, LifeState::stopped);
  }
  if (one.doing == Doing::opening) {
    if (open_groups(rank)) begin_pause(rank);
    return;
  }
  if (one.doing == Doing::pausing) {
    if (now_ < one.until) return;
    if (one.next == one.program.size()) return end(rank, 0);
    if (!strike(rank)) make_call(rank);
    return;
  }
  if (one.doing == Doing::computing_in_call) {
    if (now_ < one.until) return;
    one.doing = Doing::in_call;
    one.called = now_;
    live(rank, LifeState::blocked);
  }
  const Step& step = steps_[at(one.program[one.next])];
  if (!is_complete(rank, step)) return;
  Group& group = groups_[at(step.group)];
  const auto member = at(member_of(group, rank));
  if (step.from < 0) {
    ++group.ended[member];
  } else if (at(step.to) == member) {
    ++received_[at(step.group)][at(step.from)][member];
  }
  ++one.next;
  begin_pause(rank);
}

bool World::somebody_waits() const {
  return std::ranges::any_of(ranks_, [](const Rank& rank) {
    return !rank.is_stopped && (rank.doing == Doing::in_call || rank.doing == Doing::opening);
  });
}

bool World::all_ended() const {
  return std::ranges::all_of(ranks_, [](const Rank& rank) { return rank.doing == Doing::ended; });
}

// ---- the agent

RankDigest World::digest_of(int rank) {
  RankDigest digest;
  digest.rank = rank;
  digest.generation = 1;
  digest.at = now_;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const Group& group = groups_[g];
    const int member = member_of(group, rank);
    if (member < 0 || !group.is_open[at(member)]) continue;
    GroupDigest shown;
    shown.id = shown.name = fmt::format("g{}", g);
    shown.ranks = group.ranks;
    shown.size = static_cast<int>(group.ranks.size());
    shown.own_rank = member;
    const bool is_formed = ranks_[at(rank)].opened > g;
    shown.phase = is_formed ? GroupPhase::ready : GroupPhase::forming;
    shown.since = group.opened[at(member)];
    const std::vector<Made>& made = group.made[at(member)];
    shown.called = made.size();
    shown.completed = group.ended[at(member)];
    for (size_t i = made.size() > 8 ? made.size() - 8 : 0; i < made.size(); ++i)
      shown.calls.push_back({i + 1, made[i].call, made[i].at, ""});
    digest.groups.push_back(std::move(shown));
    for (size_t other = 0; other < group.ranks.size(); ++other) {
      const uint64_t sent = sent_[g][at(member)][other];
      if (sent > 0)
        digest.messages.push_back({.group = fmt::format("g{}", g),
                                   .peer = static_cast<int>(other),
                                   .called = sent,
                                   .completed = sent,
                                   .site = ""});
      const uint64_t receiving = receiving_[g][other][at(member)];
      if (receiving > 0)
        digest.messages.push_back({.group = fmt::format("g{}", g),
                                   .peer = static_cast<int>(other),
                                   .is_recv = true,
                                   .called = receiving,
                                   .completed = received_[g][other][at(member)],
                                   .is_synchronous = true,
                                   .called_at = ranks_[at(rank)].called,
                                   .site = ""});
    }
  }
  return digest;
}

void World::spoil(RankDigest& digest) {
  if (prng_.chance(1, 10)) digest.generation = prng_.below(3);
  if (prng_.chance(1, 10)) digest.at += seconds(100);
  for (GroupDigest& group : digest.groups) {
    if (prng_.chance(1, 3)) group.called = prng_.below(80);
    if (prng_.chance(1, 3)) group.completed = prng_.below(80);
    if (prng_.chance(1, 10)) group.own_rank = static_cast<int>(prng_.below(8)) - 1;
    if (prng_.chance(1, 10)) group.phase = static_cast<GroupPhase>(prng_.below(4));
    if (prng_.chance(1, 10)) std::ranges::reverse(group.ranks);
    for (CallDigest& call : group.calls) {
      if (prng_.chance(1, 5)) call.ordinal = prng_.below(80);
      if (prng_.chance(1, 5)) call.call.count = prng_.next();
      if (prng_.chance(1, 5)) call.called += seconds(prng_.below(100));
    }
  }
  for (MessageDigest& message : digest.messages) {
    if (prng_.chance(1, 3)) message.called = prng_.below(50);
    if (prng_.chance(1, 3)) message.peer = static_cast<int>(prng_.below(9)) - 1;
  }
}

// Sends an event from the rank's agent.
void World::send(int rank, Event event) {
  if (net_) {
    const Duration ahead = net_->ahead(rank);
    if (auto* const digested = std::get_if<Digested>(&event)) {
      truth_[at(rank)][now_] = digested->digest;
      shift(digested->digest, ahead);
    }
    if (auto* const life = std::get_if<LifeSeen>(&event)) *life->at += ahead;
    return net_->see(now_, rank, event);
  }
  const Channel& channel = options_.channel;
  if (prng_.below(100) < at(channel.lost)) return;
  const int times = prng_.below(100) < at(channel.repeated) ? 2 : 1;
  for (int i = 0; i < times; ++i)
    post({now_ + random(channel.delay), event});
}

void World::look() {
  for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
    if (ranks_[at(rank)].doing == Doing::ended) continue;
    RankDigest digest = digest_of(rank);
    if (rank == options_.channel.garbage) spoil(digest);
    send(rank, Digested{std::move(digest)});
  }
  if (now_ >= next_look_) look_at_processes();
  if (net_) net_->looked(now_);
}

void World::look_at_processes() {
  next_look_ = now_ + options_.limits.look;
  const std::vector<int> wanted = net_ ? net_->wanted(now_) : looked_at_;
  for (const int rank : wanted) {
    const Rank& one = ranks_[at(rank)];
    if (one.doing == Doing::ended || !looked_before_.contains(rank)) continue;
    const bool is_steady = now_ - one.life_since >= options_.limits.look;
    const LifeState life = is_steady ? one.life : LifeState::running;
    send(rank, LifeSeen{rank, {.state = life}, now_});
  }
  looked_before_ = {wanted.begin(), wanted.end()};
}

// Inserts by arrival, after those of the same time.
void World::post(News news) {
  const auto behind = std::ranges::upper_bound(news_, news.at, {}, &News::at);
  news_.insert(behind, std::move(news));
}

void World::deliver() {
  if (net_) net_->deliver(now_);
  size_t count = 0;
  while (count < news_.size() && news_[count].at <= now_)
    tell(news_[count++].event);
  news_.erase(news_.begin(), news_.begin() + static_cast<ptrdiff_t>(count));
}

// Records an untruth unless a look at the time of the digest, or at the time for which it is
// confirmed, has shown the same.
void World::check_truth(const Event& event) {
  int rank = -1;
  if (const auto* const digested = std::get_if<Digested>(&event)) {
    rank = digested->digest.rank;
    RankDigest digest = digested->digest;
    if (!held_[at(rank)].take(digest, now_)) return;
  } else if (const auto* const confirmed = std::get_if<Confirmed>(&event)) {
    rank = confirmed->rank;
    if (!held_[at(rank)].confirm(std::min(confirmed->at, now_))) return;
  }
  if (rank < 0 || rank == options_.channel.garbage) return;
  const RankDigest& held = *held_[at(rank)].digest;
  auto look = truth_[at(rank)].lower_bound(held.at - 2 * NodeNet::kClockError);
  const bool is_true = look != truth_[at(rank)].end() &&
                       look->first <= held.at + 2 * NodeNet::kClockError &&
                       shape_of(look->second) == shape_of(held);
  if (!is_true)
    untrue_.push_back(fmt::format("of rank {}: {} at {}", rank,
                                  std::holds_alternative<Confirmed>(event) ? "confirmed" : "digest",
                                  held.at.time_since_epoch() / milliseconds(1)));
}

void World::tell(const Event& event) {
  if (net_) check_truth(event);
  std::vector<Effect> out;
  detector_.step(now_, event, out);
  for (Effect& effect : out) {
    if (const auto* const list = std::get_if<LookAt>(&effect)) {
      looked_at_ = list->ranks;
      if (net_) net_->look_at(now_, list->ranks);
    } else {
      said_.push_back({now_, std::move(effect)});
    }
  }
}

void World::run(Duration after) {
  const Instant most = now_ + seconds(3000);
  moved_ = now_;
  for (int64_t i = 0; now_ < most; ++i) {
    now_ += kStep;
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank)
      move(rank);
    if (i % 5 == 0) look();
    deliver();
    if (i % 5 == 0) tell(Tick{});
    const bool is_pausing = std::ranges::any_of(ranks_, [](const Rank& rank) {
      return !rank.is_stopped &&
             (rank.doing == Doing::pausing || rank.doing == Doing::computing_in_call);
    });
    if (!is_pausing && now_ - moved_ > after) return;
  }
}

std::vector<Finding> World::verdicts() const {
  std::vector<Finding> found;
  for (const Said& said : said_) {
    if (const auto* const verdict = std::get_if<Verdict>(&said.effect))
      found.push_back(verdict->finding);
  }
  return found;
}

std::string World::story() const {
  std::string text = fmt::format("seed {}, fault {} of rank {}, struck {}, settled at {}",
                                 options_.seed, static_cast<int>(options_.fault), culprit_, struck_,
                                 moved_.time_since_epoch() / milliseconds(1));
  for (const Said& said : said_)
    text +=
        fmt::format("\n{} {}", said.at.time_since_epoch() / milliseconds(1), to_text(said.effect));
  return text;
}

}  // namespace muster::hang
