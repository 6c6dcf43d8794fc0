#include "agent/hang/hang_watch.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include <boost/asio/post.hpp>

#include "agent/hang/ring_digest.h"
#include "agent/process/process_tree.h"
#include "rendezvous/net/call_after.h"

namespace muster::hang {
namespace {

constexpr auto kLookEvery = std::chrono::milliseconds(250);
// A look that comes later than this has been held up by more than a busy machine.
constexpr auto kLateMax = std::chrono::seconds(2);
// Enough for the calls in flight and those that are compared.
constexpr size_t kCallsRead = 64;
// Of one process; what it says of its call sites is not trusted.
constexpr size_t kSitesNamed = 1024;

// How long the machine has been suspended: CLOCK_MONOTONIC stands still then (clock_gettime(2)).
Duration time_asleep() {
  timespec with{};
  timespec without{};
  clock_gettime(CLOCK_BOOTTIME, &with);
  clock_gettime(CLOCK_MONOTONIC, &without);
  return std::chrono::seconds(with.tv_sec - without.tv_sec) +
         std::chrono::nanoseconds(with.tv_nsec - without.tv_nsec);
}

}  // namespace

HangWatch::HangWatch(boost::asio::io_context& io, const Rings& rings, SiteNames& site_names,
                     const Limits& limits, Callbacks callbacks)
    : io_(io),
      rings_(rings),
      site_names_(site_names),
      limits_(limits),
      callbacks_(std::move(callbacks)),
      detector_(limits),
      timer_(io) {}

void HangWatch::begin(int workers) {
  end();
  workers_.assign(static_cast<size_t>(workers), {});
  not_started_ = workers;
  step(Begun{workers});
}

void HangWatch::started(int local_rank, pid_t pid) {
  workers_[static_cast<size_t>(local_rank)].pid = pid;
  if (--not_started_ == 0) wait_for_attachment();
}

void HangWatch::ended(int local_rank, int code) {
  if (workers_.empty()) return;
  // The last calls, before anybody is judged by this end: a mismatch may be its cause.
  for (int i = 0; i < static_cast<int>(workers_.size()); ++i) {
    if (workers_[static_cast<size_t>(i)].pid != 0) look_at_ring(i, i == local_rank);
  }
  workers_[static_cast<size_t>(local_rank)].pid = 0;
  step(Ended{local_rank, code});
}

void HangWatch::end() {
  ++attempt_;
  attachment_.reset();
  timer_.cancel();
  if (!workers_.empty()) step(Stopping{});
  workers_.clear();
  wanted_.clear();
}

void HangWatch::wait_for_attachment() {
  std::vector<const std::atomic<uint32_t>*> counters;
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (const RingReader* const reader = rings_.reader(static_cast<int>(i)))
      counters.push_back(&reader->attachments());
  }
  if (counters.empty()) return;
  attachment_.emplace(std::move(counters), [this, attempt = attempt_] {
    boost::asio::post(io_, [this, attempt] {
      if (attempt != attempt_) return;
      attachment_.reset();
      asleep_ = time_asleep();
      look_soon();
    });
  });
}

void HangWatch::look_soon() {
  due_ = std::chrono::steady_clock::now() + kLookEvery;
  call_after(timer_, kLookEvery, [this, attempt = attempt_] {
    if (attempt == attempt_) look();
  });
}

bool HangWatch::clock_jumped() {
  const Duration before = std::exchange(asleep_, time_asleep());
  return asleep_ - before > kLookEvery || std::chrono::steady_clock::now() - due_ > kLateMax;
}

void HangWatch::look() {
  if (clock_jumped()) step(Jumped{});
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (workers_[i].pid != 0) look_at_ring(static_cast<int>(i));
  }
  look_at_processes();
  step(Tick{});
  look_soon();
}

bool HangWatch::is_sound(Worker& worker, const RecordedState& state) const {
  if (worker.owner != state.owner || worker.generation != state.generation) {
    worker.owner = state.owner;
    worker.generation = state.generation;
    worker.sites.clear();
    worker.owner_is_sound = is_at_or_below(state.owner, worker.pid);
  }
  return worker.owner_is_sound;
}

void HangWatch::look_at_ring(int local_rank, bool has_ended) {
  const RingReader* const reader = rings_.reader(local_rank);
  const std::optional<RecordedState> state = reader != nullptr ? reader->state() : std::nullopt;
  if (!state || !is_sound(workers_[static_cast<size_t>(local_rank)], *state)) return;
  std::vector<RecordedCall> calls = reader->calls(kCallsRead);
  name_sites(local_rank, *state, calls);
  RankDigest digest =
      digest_of(local_rank, *state, calls, to_instant(std::chrono::steady_clock::now()));
  digest.is_last = has_ended;
  step(Digested{std::move(digest)});
}

// Of a rank that is looked at, names that are not known yet are asked for, and come with a later
// digest.
void HangWatch::name_sites(int local_rank, const RecordedState& state,
                           std::vector<RecordedCall>& calls) {
  Worker& worker = workers_[static_cast<size_t>(local_rank)];
  const bool is_wanted = std::ranges::count(wanted_, local_rank) > 0;
  RankRing unnamed{
      .rank = local_rank, .pid = worker.pid, .state = state, .calls = {}, .why_none = {}};
  for (RecordedCall& call : calls) {
    if (!call.site.empty() || call.site_address == 0) continue;
    const auto site = worker.sites.find(call.site_address);
    if (site != worker.sites.end()) {
      call.site = site->second;
    } else if (is_wanted && worker.sites.size() < kSitesNamed) {
      worker.sites[call.site_address];
      unnamed.calls.push_back(call);
    }
  }
  if (unnamed.calls.empty()) return;
  site_names_.name({std::move(unnamed)},
                   [this, attempt = attempt_](const std::vector<RankRing>& named) {
                     if (attempt != attempt_) return;
                     Worker& owner = workers_[static_cast<size_t>(named.front().rank)];
                     if (owner.generation != named.front().state->generation) return;
                     for (const RecordedCall& call : named.front().calls)
                       owner.sites[call.site_address] = call.site;
                   });
}

void HangWatch::was_held(int local_rank) {
  if (static_cast<size_t>(local_rank) < workers_.size())
    workers_[static_cast<size_t>(local_rank)].look.reset();
}

void HangWatch::look_at_processes() {
  const auto now = std::chrono::steady_clock::now();
  if (wanted_.empty() || now < next_processes_) return;
  next_processes_ = now + limits_.look;
  for (const int rank : std::vector(wanted_)) {
    Worker& worker = workers_[static_cast<size_t>(rank)];
    if (worker.pid == 0 || callbacks_.is_held(rank)) continue;
    LifeLook look = look_at(worker.pid, worker.owner_is_sound ? worker.owner : 0);
    if (worker.look) {
      const Life life = life_of(*worker.look, look);
      step(LifeSeen{rank, life.state, life.words});
    }
    worker.look = std::move(look);
  }
}

std::string HangWatch::status() const {
  return detector_.status(to_instant(std::chrono::steady_clock::now()));
}

void HangWatch::step(const Event& event) {
  std::vector<Effect> effects;
  detector_.step(to_instant(std::chrono::steady_clock::now()), event, effects);
  for (const Effect& effect : effects) {
    const auto* const list = std::get_if<LookAt>(&effect);
    if (list == nullptr) {
      callbacks_.found(effect);
      continue;
    }
    for (size_t i = 0; i < workers_.size(); ++i) {
      // Two looks make a state: one of long ago would make a wrong one.
      if (std::ranges::find(list->ranks, static_cast<int>(i)) == list->ranks.end())
        workers_[i].look.reset();
    }
    wanted_ = list->ranks;
    next_processes_ = {};
  }
}

}  // namespace muster::hang
