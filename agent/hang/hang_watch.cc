#include "agent/hang/hang_watch.h"

#include <algorithm>
#include <utility>

#include "agent/hang/watch_wire.h"
#include "rendezvous/base/steady_now.h"
#include "rendezvous/net/call_after.h"
#include "rendezvous/net/field_codec.h"

namespace muster::hang {
namespace {

constexpr auto kArrivalsEvery = std::chrono::seconds(1);
constexpr size_t kArrivalsBytesMax = 16000;
constexpr size_t kKeysBytesMax = 16000;
constexpr auto kClockEvery = std::chrono::seconds(5);
constexpr auto kClockAtFirstEvery = std::chrono::seconds(1);  // Messages may be lost.
constexpr int kClocksAtFirst = 5;
// Largest clock error at which another node's calls compare with ours. Agents may claim any.
constexpr Duration kClockErrorMax = std::chrono::seconds(1);
constexpr int64_t kWallMax = int64_t{1} << 62;  // Nanoseconds since 1970.

}  // namespace

HangWatch::HangWatch(boost::asio::io_context& io, const Rings& rings, SiteNames& site_names,
                     const Limits& limits, Callbacks callbacks)
    : limits_(limits),
      callbacks_(std::move(callbacks)),
      node_(io, rings, site_names, limits.look,
            {[this](const Event& event) { see(event); },
             [this](int rank, const RecordedState& state, const RingReader& reader) {
               sampler_->read(rank, state, reader);
               callbacks_.read(rank, state, reader);
             },
             [this] { looked(); },
             [this](int rank) { return callbacks_.is_held(rank - round_.base_rank); }}),
      job_(io, limits,
           {callbacks_.found, [this](const std::vector<int>& ranks) { node_.look_at(ranks); },
            [this] { node_.read_rings(); }, callbacks_.send, callbacks_.settled,
            callbacks_.held_up}),
      judged_limit_(io) {}

void HangWatch::begin(const WatchedRound& round) {
  end();
  round_ = round;
  is_watching_ = true;
  heard_ = 0;
  running_ = 0;
  reporter_.reset();
  sampler_.emplace(round.nodes);
  node_.begin(round.base_rank, round.workers);
  if (judges()) {
    tell_clock();
    next_clock_ = {};  // Other nodes may not have begun yet.
    clocks_told_ = 0;
    return job_.begin(round);
  }
  reporter_.emplace(round.host, round.base_rank, round.workers);
}

void HangWatch::started(int local_rank, pid_t pid, std::string device) {
  const int rank = round_.base_rank + local_rank;
  node_.started(rank, pid);
  ++running_;
  if (!reporter_) return;
  reporter_->started(rank, pid, std::move(device));
  if (running_ == round_.workers) report(Letter::digest, /*at_once=*/true);
}

void HangWatch::ended(int local_rank, int code) {
  if (!is_watching_) return;
  node_.ended(round_.base_rank + local_rank, code);
  if (--running_ == 0) {
    tell_arrivals();
    if (judges()) job_.report_stragglers();
  }
  report(running_ == 0 ? Letter::last_digest : Letter::digest, /*at_once=*/true);
}

void HangWatch::when_judged(std::function<void()> then) {
  if (!is_watching_ || !reporter_ || !reporter_->awaits_judgement()) return then();
  after_judged_ = std::move(then);
  call_after(judged_limit_, kJudgedMax, [this] { go_on(); });
}

void HangWatch::go_on() {
  judged_limit_.cancel();
  if (const auto then = std::exchange(after_judged_, nullptr)) then();
}

void HangWatch::end() {
  if (!std::exchange(is_watching_, false)) return;
  judged_limit_.cancel();
  after_judged_ = nullptr;
  node_.end();
  tell_arrivals();
  job_.end();
  report(Letter::last_digest, /*at_once=*/true);
}

void HangWatch::see(const Event& event) {
  if (reporter_) return reporter_->note(steady_now(), event);
  job_.see(event);
}

void HangWatch::looked() {
  callbacks_.looked();
  if (!is_watching_) return;
  if (std::chrono::steady_clock::now() >= next_arrivals_) tell_arrivals();
  if (judges() && std::chrono::steady_clock::now() >= next_clock_) tell_clock();
  if (!reporter_) return job_.looked();
  node_.look_at(reporter_->wanted(steady_now()));
  if (after_judged_) return report(Letter::last_digest, /*at_once=*/true);  // A message was lost.
  report(Letter::digest, /*at_once=*/false);
}

void HangWatch::report(Letter kind, bool at_once) {
  if (!reporter_) return;
  if (const auto message = reporter_->message(steady_now(), at_once))
    callbacks_.send(0, letter_of(kind, *message));
}

void HangWatch::tell_arrivals() {
  next_arrivals_ = std::chrono::steady_clock::now() + kArrivalsEvery;
  std::vector<Arrivals> arrivals = sampler_->take(steady_now());
  if (arrivals.empty()) return;
  if (judges()) return job_.arrived(round_.node_rank, arrivals, Duration(0));
  callbacks_.send(
      0, letter_of(Letter::arrivals, encode_arrivals(arrivals, steady_now(), kArrivalsBytesMax)));
}

void HangWatch::tell_clock() {
  const bool is_early = ++clocks_told_ <= kClocksAtFirst;
  next_clock_ = std::chrono::steady_clock::now() + (is_early ? kClockAtFirstEvery : kClockEvery);
  const int64_t wall = std::chrono::duration_cast<std::chrono::nanoseconds>(
                           std::chrono::system_clock::now().time_since_epoch())
                           .count();
  callbacks_.clock(steady_now(), wall, Duration(0));
  if (round_.nodes == 1) return;
  std::string bytes;
  FieldWriter(bytes).integer(wall);
  callbacks_.send(-1, letter_of(Letter::clock, bytes));
}

void HangWatch::keys_awaited(std::vector<AwaitedKeys> waits) {
  if (judges()) return job_.keys_awaited(waits, node_.pids());
  callbacks_.send(0, letter_of(Letter::keys, encode_awaited(std::move(waits), kKeysBytesMax)));
}

void HangWatch::hear(int node_rank, std::string_view payload, Instant then, Duration error) {
  if (payload.empty()) return;
  const auto kind = static_cast<Letter>(payload.front());
  payload.remove_prefix(1);
  if (kind == Letter::digest || kind == Letter::last_digest) {
    // A larger error could make one sample pass for two.
    if (judges() && error <= limits_.look / 2)
      job_.hear(node_rank, payload, kind == Letter::last_digest, std::min(then, steady_now()));
  } else if (kind == Letter::arrivals) {
    const auto arrivals = decode_arrivals(payload, then);
    if (judges() && arrivals && error <= kClockErrorMax) job_.arrived(node_rank, *arrivals, error);
  } else if (kind == Letter::keys) {
    const auto waits = decode_awaited(payload);
    if (judges() && waits) job_.keys_awaited(*waits, node_.pids());
  } else if (kind == Letter::clock && node_rank == 0) {
    int64_t there = 0;
    FieldReader reader(payload);
    reader.integer(there);
    const bool is_time = reader.end() == nullptr && there >= 0 && there <= kWallMax;
    if (is_time && error <= kClockErrorMax) callbacks_.clock(then, there, error);
  } else if ((kind == Letter::watch || kind == Letter::heard) && reporter_ && node_rank == 0) {
    const int last = round_.base_rank + round_.workers - 1;
    const auto ranks = decode_ranks(payload, round_.base_rank, last);
    if (!ranks) return;
    if (kind == Letter::heard) return note_judged(*ranks);
    reporter_->want(steady_now(), *ranks);
    node_.look_at(*ranks);
  } else if (kind == Letter::finding && reporter_ && node_rank == 0) {
    take_news(payload);
  }
}

void HangWatch::note_judged(const std::vector<int>& ranks) {
  if (reporter_->judged(ranks)) report(Letter::last_digest, /*at_once=*/true);
  if (!reporter_->awaits_judgement()) go_on();
}

// Takes findings in order: lost ones are sent again unless they are too old.
void HangWatch::take_news(std::string_view bytes) {
  const auto news = decode_news(bytes);
  if (!news || news->number <= heard_) return;
  if (news->number != heard_ + 1 && news->number != news->oldest) return;
  heard_ = news->number;
  reporter_->heard(heard_);
  callbacks_.told(news->news);
}

}  // namespace muster::hang
