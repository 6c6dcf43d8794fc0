// What a job's hosts and nodes keep in etcd: two keys, PREFIX/ID/host and PREFIX/ID/job, with the
// texts of host_record.h. The host's key has a lease, so it goes when its host has been silent for
// that long; its beat is always 0 here. The revisions at which both were last changed are the
// version. All is decided by etcd's transactions: a keeper remembers nothing but its lease, and
// which revision it has seen last.
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
  // `lease_s`: of the host. etcd may give a longer one, at least 2 s by default. `crowd`: how many
  // nodes may try at once to be the host.
  EtcdKeeper(EtcdOptions options, const std::string& job_id, int lease_s, int crowd = 1);

  Result<Seen> look() override;
  // Returns at once unless `seen` is the newest that look() has returned. Without a change also
  // after 10 s or a failure: a member that hangs sends no end of a watch, and look() asks another.
  void wait(const Seen& seen, Duration patience) override;
  Result<bool> take(const Seen& seen, const HostRecord& own) override;
  Result<bool> write(const HostRecord& own, const JobRecord& before, const JobRecord& now,
                     Duration remember) override;
  Result<Beat> beat(const HostRecord& own) override;
  void leave(const HostRecord& own) override;

  void cancel() override { client_.cancel(); }

 private:
  struct Texts;  // Of the two keys, undecoded.

  EtcdRange both() const { return {host_key_, job_key_}; }
  Texts texts_of(const EtcdValues& answer) const;
  Result<Texts> read(Deadline limit);
  // What is left undone by a failure here, the lease's end does.
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
