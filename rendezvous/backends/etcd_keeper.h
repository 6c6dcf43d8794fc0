// Keeps a job's records in etcd: two keys, PREFIX/ID/host and PREFIX/ID/job, with the texts of
// host_record.h. The host's key has a lease, so etcd removes it when the host has been silent for
// that long; its beat is always 0 here. The version is the two keys' last revisions. etcd's
// transactions decide all: a keeper remembers only its lease and the last revision it has seen.
#pragma once

#include <cstdint>
#include <string>

#include "rendezvous/backends/keeper.h"
#include "rendezvous/etcd/etcd_client.h"
#include "rendezvous/etcd/etcd_codec.h"
#include "rendezvous/etcd/etcd_options.h"

namespace muster {

class EtcdKeeper : public Keeper {
 public:
  // `lease_s`: etcd may grant more, by default at least 2. `crowd`: nodes that may try at once.
  EtcdKeeper(EtcdOptions options, const std::string& job_id, int lease_s, int crowd = 1);

  Result<Seen> look() override;
  // Returns at once unless `seen` is the newest from look(), and without a change after 10 s or a
  // failure: a member of etcd that hangs never ends a watch, and look() asks another.
  void wait(const Seen& seen, Duration patience) override;
  Result<bool> take(const Seen& seen, const HostRecord& own) override;
  Result<bool> write(const HostRecord& own, const JobRecord& before, const JobRecord& now,
                     Duration remember) override;
  Result<Beat> beat(const HostRecord& own) override;
  void leave(const HostRecord& own) override;

  void cancel() override { client_.cancel(); }

 private:
  struct Texts;  // The two keys' texts, undecoded.

  EtcdRange both() const { return {host_key_, job_key_}; }
  Texts texts_of(const EtcdValues& answer) const;
  Result<Texts> read(Deadline limit);
  // If these fail, the lease's end cleans up.
  Result<EtcdLease> grant(int64_t ttl_s, Deadline limit);
  void revoke(int64_t lease, Deadline limit);
  Result<EtcdValues> commit(const EtcdTxn& txn, Deadline limit);

  EtcdClient client_;
  const std::string host_key_;
  const std::string job_key_;
  const int lease_wanted_s_;
  const int crowd_;
  int64_t lease_ = 0;
  std::string looked_version_;
  int64_t looked_revision_ = 0;
};

}  // namespace muster
