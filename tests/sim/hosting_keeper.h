// A simulated keeper: the register itself, without the path to it. It either ends leases by itself,
// as etcd does, or leaves its readers to watch the host's beat, as a file does.
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

  // The requests, each performed on arrival as the real keepers do.
  Keeper::Seen look() const;
  bool take(Instant now, const Keeper::Seen& seen, const HostRecord& own);
  bool write(Instant now, const HostRecord& own, const JobRecord& before, const JobRecord& record,
             Instant forget_at);
  Keeper::Beat beat(Instant now, const HostRecord& own);
  void leave(Instant now, const HostRecord& own, bool has_ended);

  // Ends every lease and record that expires by `now`.
  void pass(Instant now);
  Instant next_change() const;
  // Keeps leases alive until then, and renews them in full then.
  void be_out_until(Instant until);

  // ---- the truth
  const std::optional<HostRecord>& host() const { return host_; }
  const JobRecord& job() const { return job_; }
  uint64_t version() const { return version_; }
  // Number of times that the job's record was forgotten.
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
