#include "agent/hang/node_watch.h"

#include <algorithm>
#include <ctime>
#include <set>
#include <utility>

#include <boost/asio/post.hpp>

#include "agent/hang/ring_digest.h"
#include "agent/process/process_tree.h"
#include "rendezvous/base/steady_now.h"
#include "rendezvous/net/call_after.h"

namespace muster::hang {
namespace {

constexpr auto kLookEvery = std::chrono::milliseconds(250);
// A poll later than this was held up by more than a busy machine.
constexpr auto kLateMax = std::chrono::seconds(2);
// Enough for the calls in flight and those to compare.
constexpr size_t kCallsRead = 64;
// Per process, whose call sites are not trusted.
constexpr size_t kSitesNamed = 1024;

// Time for which the machine was suspended: CLOCK_MONOTONIC stands still then (clock_gettime(2)).
Duration time_asleep() {
  timespec with{};
  timespec without{};
  clock_gettime(CLOCK_BOOTTIME, &with);
  clock_gettime(CLOCK_MONOTONIC, &without);
  return std::chrono::seconds(with.tv_sec - without.tv_sec) +
         std::chrono::nanoseconds(with.tv_nsec - without.tv_nsec);
}

}  // namespace

NodeWatch::NodeWatch(boost::asio::io_context& io, const Rings& rings, SiteNames& site_names,
                     Duration between, Callbacks callbacks)
    : io_(io),
      rings_(rings),
      site_names_(site_names),
      between_(between),
      callbacks_(std::move(callbacks)),
      timer_(io) {}

void NodeWatch::begin(int base_rank, int workers) {
  base_rank_ = base_rank;
  workers_.assign(static_cast<size_t>(workers), {});
  not_started_ = workers;
}

NodeWatch::Worker* NodeWatch::worker(int rank) {
  const auto index = static_cast<size_t>(rank - base_rank_);
  return rank >= base_rank_ && index < workers_.size() ? &workers_[index] : nullptr;
}

void NodeWatch::started(int rank, pid_t pid) {
  if (Worker* const one = worker(rank)) one->pid = pid;
  if (--not_started_ == 0 && !is_looking_) wait_for_attachment();
}

void NodeWatch::ended(int rank, int code) {
  Worker* const one = worker(rank);
  if (one == nullptr) return;
  // Reads the last calls before this end is judged: a mismatch may be its cause.
  look_at_rings(rank);
  one->pid = 0;
  callbacks_.seen(Ended{rank, code});
}

void NodeWatch::end() {
  look_at_rings(-1);
  ++attempt_;
  attachment_.reset();
  timer_.cancel();
  is_looking_ = false;
  workers_.clear();
  wanted_.clear();
}

void NodeWatch::look_at(const std::vector<int>& ranks) {
  std::vector<int> wanted;
  for (size_t i = 0; i < workers_.size(); ++i) {
    const int rank = base_rank_ + static_cast<int>(i);
    if (std::ranges::find(ranks, rank) != ranks.end()) {
      wanted.push_back(rank);
    } else {
      // Two samples make a state; an old one would make a wrong one.
      workers_[i].look.reset();
    }
  }
  if (wanted == wanted_) return;
  wanted_ = std::move(wanted);
  next_processes_ = {};
  if (!wanted_.empty() && !is_looking_) begin_looking();
}

void NodeWatch::wait_for_attachment() {
  std::vector<const std::atomic<uint32_t>*> counters;
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (const RingReader* const reader = rings_.reader(static_cast<int>(i)))
      counters.push_back(&reader->attachments());
  }
  if (counters.empty()) return;
  attachment_.emplace(std::move(counters), [this, attempt = attempt_] {
    boost::asio::post(io_, [this, attempt] {
      if (attempt == attempt_ && !is_looking_) begin_looking();
    });
  });
}

void NodeWatch::begin_looking() {
  attachment_.reset();
  is_looking_ = true;
  asleep_ = time_asleep();
  look_soon();
}

void NodeWatch::look_soon() {
  due_ = std::chrono::steady_clock::now() + kLookEvery;
  call_after(timer_, kLookEvery, [this, attempt = attempt_] {
    if (attempt == attempt_) look();
  });
}

bool NodeWatch::clock_jumped() {
  const Duration before = std::exchange(asleep_, time_asleep());
  return asleep_ - before > kLookEvery || std::chrono::steady_clock::now() - due_ > kLateMax;
}

void NodeWatch::look() {
  if (clock_jumped()) callbacks_.seen(Jumped{});
  look_at_rings(-1);
  look_at_processes();
  const uint64_t attempt = attempt_;
  callbacks_.looked();  // May end the watch.
  if (attempt == attempt_) look_soon();
}

void NodeWatch::look_at_rings(int ended) {
  for (size_t i = 0; i < workers_.size(); ++i) {
    const int rank = base_rank_ + static_cast<int>(i);
    if (workers_[i].pid != 0) look_at_ring(rank, rank == ended);
  }
}

bool NodeWatch::is_sound(Worker& worker, const RecordedState& state) const {
  if (worker.owner != state.owner || worker.generation != state.generation) {
    worker.owner = state.owner;
    worker.generation = state.generation;
    worker.sites.clear();
    worker.owner_is_sound = is_at_or_below(state.owner, worker.pid);
  }
  return worker.owner_is_sound;
}

void NodeWatch::look_at_ring(int rank, bool has_ended) {
  const RingReader* const reader = rings_.reader(rank - base_rank_);
  const std::optional<RecordedState> state = reader != nullptr ? reader->state() : std::nullopt;
  if (!state || !is_sound(*worker(rank), *state)) return;
  callbacks_.read(rank, *state, *reader);
  // A device's pending calls may be older than the last records.
  std::set<uint32_t> on_device;
  for (const RecordedGroup& group : state->groups) {
    if (group.is_on_device && group.completed < group.called) on_device.insert(group.handle);
  }
  std::vector<RecordedCall> calls = reader->recent_calls(kCallsRead, on_device);
  name_sites(rank, *state, calls);
  RankDigest digest = digest_of(rank, *state, calls, steady_now());
  digest.is_last = has_ended;
  callbacks_.seen(Digested{std::move(digest)});
}

// Requests unknown names for ranks that are sampled; they come with a later digest.
void NodeWatch::name_sites(int rank, const RecordedState& state, std::vector<RecordedCall>& calls) {
  Worker& recorded = *worker(rank);
  const bool is_wanted = std::ranges::count(wanted_, rank) > 0;
  RankRing unnamed{.rank = rank, .pid = recorded.pid, .state = state, .calls = {}, .why_none = {}};
  for (RecordedCall& call : calls) {
    if (!call.site.empty() || call.site_address == 0) continue;
    const auto site = recorded.sites.find(call.site_address);
    if (site != recorded.sites.end()) {
      call.site = site->second;
    } else if (is_wanted && recorded.sites.size() < kSitesNamed) {
      recorded.sites[call.site_address];
      unnamed.calls.push_back(call);
    }
  }
  if (unnamed.calls.empty()) return;
  site_names_.name({std::move(unnamed)},
                   [this, attempt = attempt_](const std::vector<RankRing>& named) {
                     if (attempt != attempt_) return;
                     Worker& owner = *worker(named.front().rank);
                     if (owner.generation != named.front().state->generation) return;
                     for (const RecordedCall& call : named.front().calls)
                       owner.sites[call.site_address] = call.site;
                   });
}

std::vector<pid_t> NodeWatch::pids() const {
  std::vector<pid_t> pids;
  for (const Worker& one : workers_)
    pids.push_back(one.pid);
  return pids;
}

void NodeWatch::look_at_processes() {
  const auto now = std::chrono::steady_clock::now();
  if (wanted_.empty() || now < next_processes_) return;
  next_processes_ = now + between_;
  for (const int rank : std::vector(wanted_)) {
    Worker& one = *worker(rank);
    if (one.pid == 0 || callbacks_.is_held(rank)) continue;
    LifeLook look = muster::hang::look_at(one.pid, one.owner_is_sound ? one.owner : 0);
    if (one.look) callbacks_.seen(LifeSeen{rank, life_of(*one.look, look)});
    one.look = std::move(look);
  }
}

}  // namespace muster::hang
