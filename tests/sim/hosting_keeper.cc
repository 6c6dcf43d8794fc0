#include "tests/sim/hosting_keeper.h"

#include <algorithm>

#include <fmt/format.h>

#include "rendezvous/base/planted.h"

namespace muster::hostsim {

Keeper::Seen SimKeeper::look() const {
  return {fmt::format("{}", version_), host_, job_};
}

void SimKeeper::renew(Instant now) {
  last_beat_ = now;
  if (!plan_.keeper_ends_leases) return;
  const bool late = prng_.chance(static_cast<uint64_t>(plan_.late_lease_percent), 100);
  const Duration more = std::chrono::milliseconds{late ? prng_.below(1000) : 0};
  ends_at_ = now + plan_.keeper_lease + more;
}

void SimKeeper::clear_host(Instant now) {
  host_.reset();
  gone_since_ = now;
  ends_at_ = kNever;
  ++version_;
}

void SimKeeper::forget() {
  job_ = {};
  forget_at_ = kNever;
  ++version_;
  ++generation_;
}

void SimKeeper::pass(Instant now) {
  if (host_ && ends_at_ <= now) clear_host(now);
  if (forget_at_ <= now) forget();
}

Instant SimKeeper::next_change() const {
  return std::min(ends_at_, forget_at_);
}

void SimKeeper::be_out_until(Instant until) {
  if (host_ && plan_.keeper_ends_leases) ends_at_ = std::max(ends_at_, until + plan_.keeper_lease);
}

bool SimKeeper::take(Instant now, const Keeper::Seen& seen, const HostRecord& own) {
  if (seen.version != fmt::format("{}", version_)) return false;
  host_ = own;
  ++version_;
  renew(now);
  return true;
}

bool SimKeeper::write(Instant now, const HostRecord& own, const JobRecord& before,
                      const JobRecord& record, Instant forget_at) {
  if (!is_of(own) && !PLANTED(HostingBug::no_fence)) return false;
  if (job_ != before) return false;
  job_ = record;
  ++version_;
  if (!record.ending) return true;
  clear_host(now);
  forget_at_ = forget_at;
  return true;
}

Keeper::Beat SimKeeper::beat(Instant now, const HostRecord& own) {
  if (!host_) return Keeper::Beat::gone;
  if (!is_of(own)) return Keeper::Beat::replaced;
  ++host_->beat;
  renew(now);
  return Keeper::Beat::kept;
}

// Only a job that has not ended needs its record: other nodes may continue from it.
void SimKeeper::leave(Instant now, const HostRecord& own, bool has_ended) {
  if (!is_of(own)) return;
  clear_host(now);
  if (has_ended) forget();
}

}  // namespace muster::hostsim
