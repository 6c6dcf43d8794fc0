#include "agent/hang/job_watch.h"

#include <algorithm>
#include <utility>

#include "agent/hang/hang_text.h"
#include "agent/hang/watch_wire.h"
#include "agent/letter.h"
#include "rendezvous/base/steady_now.h"
#include "rendezvous/net/call_after.h"

namespace muster::hang {
namespace {

bool is_failure(const Event& event) {
  const auto* const ended = std::get_if<Ended>(&event);
  return ended != nullptr && ended->code != 0;
}

}  // namespace

JobWatch::JobWatch(boost::asio::io_context& io, const Limits& limits, Callbacks callbacks)
    : callbacks_(std::move(callbacks)), detector_(limits), settle_limit_(io) {}

void JobWatch::begin(const WatchedRound& round) {
  end();
  settle();
  round_ = round;
  others_.reset();
  if (round.nodes > 1) others_.emplace(round.world_size, round.base_rank, round.workers);
  is_watching_ = true;
  has_failure_ = is_ending_ = false;
  last_heard_.clear();
  wanted_.clear();
  wanted_is_new_ = false;
  told_.clear();
  news_.clear();
  dropped_ = 0;
  own_suspended_ = others_suspended_ = false;
  stragglers_ = {};
  next_stragglers_ = std::chrono::steady_clock::now() + kStragglersEvery;
  step(Begun{round.world_size});
}

void JobWatch::end() {
  if (!std::exchange(is_watching_, false)) return;
  report_stragglers();
  if (is_settling()) {
    is_ending_ = true;
  } else {
    step(Stopping{});
  }
}

// ---- Events.

// The job is suspended while any node is. Returns true for a Resumed that the detector must not
// see, since `other` (the rest of the job) is still suspended.
bool JobWatch::is_held_back(const Event& event, bool& part, bool other) {
  if (std::holds_alternative<Suspended>(event)) part = true;
  if (!std::holds_alternative<Resumed>(event)) return false;
  part = false;
  return other;
}

void JobWatch::see(const Event& event) {
  if (is_held_back(event, own_suspended_, others_suspended_)) return;
  take(event);
  settle_if_told();
}

void JobWatch::take(const Event& event) {
  if (others_ && is_failure(event) && !std::exchange(has_failure_, true)) {
    call_after(settle_limit_, kSettleMax, [this] { settle(); });
    held_.push_back(event);
    callbacks_.read_rings();
  } else if (is_settling() && std::holds_alternative<Ended>(event)) {
    held_.push_back(event);
  } else {
    step(event);
  }
}

void JobWatch::looked() {
  step(Tick{});
  want();
  if (std::chrono::steady_clock::now() >= next_stragglers_) report_stragglers();
}

void JobWatch::arrived(int node_rank, const std::vector<Arrivals>& arrivals, Duration error) {
  if (!is_watching_) return;
  for (const Arrivals& one : arrivals) {
    const RemoteNodes::Place* const place = place_of(one.last_rank);
    if (node_rank == round_.node_rank || (place != nullptr && place->node_rank == node_rank))
      stragglers_.take(node_rank, one, error);
  }
}

// A client is the rank of whose processes one has its process id on its node.
void JobWatch::keys_awaited(const std::vector<AwaitedKeys>& waits,
                            const std::vector<pid_t>& own_pids) {
  constexpr size_t kUnsureMax = 64;
  if (!is_watching_) return;
  std::multimap<int, int> ranks;                         // By node rank.
  std::multimap<pid_t, std::pair<int, int>> by_process;  // Node rank and rank.
  for (int rank = 0; rank < round_.world_size; ++rank) {
    const auto own = static_cast<size_t>(rank - round_.base_rank);
    const bool is_own = rank >= round_.base_rank && own < own_pids.size();
    const RemoteNodes::Place* const place = place_of(rank);
    if (!is_own && place == nullptr) continue;
    const int node = is_own ? round_.node_rank : place->node_rank;
    ranks.emplace(node, rank);
    const auto [records, waits_below] = detector_.processes_of(rank);
    for (const pid_t pid : std::set{is_own ? own_pids[own] : place->pid, records, waits_below}) {
      if (pid > 0) by_process.emplace(pid, std::pair(node, rank));
    }
  }
  std::set<int> unsure;
  const auto rank_of = [&](const KeyClient& client) {
    const auto is_there = [&](int node) {
      return client.node_rank < 0 || client.node_rank == node;
    };
    std::set<int> found;
    const auto [first, last] = by_process.equal_range(client.pid);
    for (auto one = first; one != last; ++one) {
      if (is_there(one->second.first)) found.insert(one->second.second);
    }
    if (found.size() == 1) return *found.begin();
    for (const auto& [node, rank] : ranks) {
      if (is_there(node) && unsure.size() < kUnsureMax) unsure.insert(rank);
    }
    return -1;
  };
  KeysAwaited news{.store_port = round_.store_port, .waits = {}};
  for (const AwaitedKeys& wait : waits)
    news.waits.push_back(key_wait_of(wait, rank_of, round_.world_size));
  news.unsure.assign(unsure.begin(), unsure.end());
  step(news);
  step(Tick{});
  want();
}

void JobWatch::report_stragglers() {
  next_stragglers_ = std::chrono::steady_clock::now() + kStragglersEvery;
  if (const auto report = stragglers_.report(steady_now())) callbacks_.held_up(*report);
}

void JobWatch::hear(int node_rank, std::string_view bytes, bool is_last, Instant then) {
  if (!others_ || !(is_watching_ || is_settling())) return;
  const std::optional<NodeDigest> digest = decode_node_digest(bytes, then);
  if (!digest) return;
  for (const Event& event : others_->take(node_rank, *digest)) {
    if (!is_held_back(event, others_suspended_, own_suspended_)) take(event);
  }
  if (is_last) last_heard_.insert(node_rank);
  settle_if_told();
  step(Tick{});
  want();
  const uint64_t heard = others_->heard_by(node_rank);
  const size_t first = std::max(heard, dropped_) - dropped_;
  for (size_t i = first; i < std::min(news_.size(), first + kNewsAtOnce); ++i)
    tell(node_rank, i);
  // Sent after the findings, so that the node can print them before its job ends.
  if (is_last)
    callbacks_.send(node_rank,
                    letter_of(Letter::heard, encode_ranks(others_->ended_on(node_rank))));
}

void JobWatch::settle_if_told() {
  if (is_settling() && static_cast<int>(last_heard_.size()) >= round_.nodes - 1) settle();
}

void JobWatch::settle() {
  if (!is_settling()) return;
  settle_limit_.cancel();
  for (const Event& event : std::exchange(held_, {}))
    step(event);
  if (std::exchange(is_ending_, false)) step(Stopping{});
  callbacks_.settled();
}

// ---- Messages to other nodes.

// Level-triggered: messages may be lost, so they are repeated.
void JobWatch::want() {
  if (!others_) return;
  const auto time = std::chrono::steady_clock::now();
  const bool is_again = time >= want_again_;
  if (!is_again && !std::exchange(wanted_is_new_, false)) return;
  if (is_again) want_again_ = time + kWantAgain;
  std::map<int, std::vector<int>> parts = others_->by_node(wanted_);
  for (const auto& [node_rank, ranks] : told_)
    parts[node_rank];
  size_t known = 0;
  for (const auto& [node_rank, ranks] : parts) {
    known += ranks.size();
    std::vector<int>& told = told_[node_rank];
    if (told == ranks && (ranks.empty() || !is_again)) continue;
    told = ranks;
    callbacks_.send(node_rank, letter_of(Letter::watch, encode_ranks(ranks)));
  }
  const auto is_own = [this](int rank) {
    return rank >= round_.base_rank && rank < round_.base_rank + round_.workers;
  };
  known += static_cast<size_t>(std::ranges::count_if(wanted_, is_own));
  if (is_again && known < wanted_.size())
    callbacks_.send(-1, letter_of(Letter::watch, encode_ranks(wanted_)));
}

void JobWatch::publish(std::string news) {
  if (!others_) return;
  news_.push_back(std::move(news));
  if (news_.size() > kNewsMax) {
    news_.pop_front();
    ++dropped_;
  }
  tell(-1, news_.size() - 1);
}

void JobWatch::tell(int node_rank, size_t index) {
  const NumberedNews news{dropped_ + index + 1, dropped_ + 1, news_[index]};
  callbacks_.send(node_rank, letter_of(Letter::finding, encode_news(news)));
}

// ----

std::string JobWatch::status() const {
  const std::optional<Status>& status = detector_.status();
  return status ? status_text(*status, steady_now()) : "";
}

const RemoteNodes::Place* JobWatch::place_of(int rank) const {
  return others_ ? others_->place_of(rank) : nullptr;
}

void JobWatch::step(const Event& event) {
  if (std::holds_alternative<Suspended>(event) || std::holds_alternative<Resumed>(event) ||
      std::holds_alternative<Jumped>(event))
    stragglers_.disturb(steady_now());
  std::vector<Effect> effects;
  detector_.step(steady_now(), event, effects);
  for (const Effect& effect : effects) {
    if (const auto* const list = std::get_if<LookAt>(&effect)) {
      wanted_ = list->ranks;
      wanted_is_new_ = true;
      callbacks_.look_at(list->ranks);
    } else {
      callbacks_.found(effect);
    }
  }
}

}  // namespace muster::hang
