// A simulated keeper: the register itself, without the way to it. Two kinds: one that ends leases
// by itself, as etcd does, and one whose readers have to watch the host's beat, as a file's do.
#pragma once

#include <cstdint>
#include <optional>

#include "rendezvous/backends/host_record.h"
#include "rendezvous/backends/keeper.h"
#include "rendezvous/base/prng.h"
#include "rendezvous/base/time.h"
#include "tests/sim/hosting_plan.h"

namespace muster::hostsim {

class SimKeeper {
 public:
  SimKeeper(const Plan& plan, Prng& prng, Instant start)
      : plan_(plan), prng_(prng), gone_since_(start) {}

  // What the real ones do on arrival of a request.
  Keeper::Seen look() const;
  bool take(Instant now, const Keeper::Seen& seen, const HostRecord& own);
  bool write(Instant now, const HostRecord& own, const JobRecord& before, const JobRecord& record,
             Instant forget_at);
  Keeper::Beat beat(Instant now, const HostRecord& own);
  void leave(Instant now, const HostRecord& own, bool has_ended);

  // Ends what is over by now.
  void pass(Instant now);
  Instant next_change() const;
  // Leases do not run out meanwhile, and are renewed in full then.
  void be_out_until(Instant until);

  // ---- the truth
  const std::optional<HostRecord>& host() const { return host_; }
  const JobRecord& job() const { return job_; }
  uint64_t version() const { return version_; }
  // How often all that was known of the job has gone.
  int generation() const { return generation_; }
  Instant last_beat() const { return last_beat_; }
  Instant gone_since() const { return gone_since_; }  // REQUIRES: no host.

 private:
  bool is_of(const HostRecord& own) const { return host_ && host_->instance == own.instance; }
  void renew(Instant now);
  void clear_host(Instant now);
  void forget();

  const Plan& plan_;
  Prng& prng_;
  uint64_t version_ = 1;
  int generation_ = 0;
  std::optional<HostRecord> host_;
  JobRecord job_;
  Instant last_beat_{};
  Instant gone_since_;
  Instant ends_at_ = kNever;
  Instant forget_at_ = kNever;
};

}  // namespace muster::hostsim
