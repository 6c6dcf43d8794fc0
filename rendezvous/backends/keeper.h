// Where a job keeps, outside of its nodes, which of them is its host, and its newest round: a file
// on a disk that they share, or etcd. A register with one compare-and-set: who may be host next,
// and which round follows, is decided by whoever is the first to replace what all have seen. What
// to do with the answers is the Hosting machine's; a keeper decides nothing.
//
// All calls block, for a few seconds at most, and come from one helper thread at a time. They fail
// with ExitCode::environment if trying again is useless, otherwise with ExitCode::rendezvous; after
// a failure it is not known whether a change was made, and the same call may be made again.
#pragma once

#include <optional>
#include <string>

#include "rendezvous/backends/host_record.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"

namespace muster {

class Keeper {
 public:
  // What it holds at one moment.
  struct Seen {
    // Opaque; another one after each change but a beat.
    std::string version;
    // nullopt: none, or its lease is over where the keeper itself ends leases.
    std::optional<HostRecord> host;
    JobRecord job;
    friend bool operator==(const Seen&, const Seen&) = default;
  };
  enum class Beat { kept, gone, replaced };

  virtual ~Keeper() = default;

  virtual Result<Seen> look() = 0;
  // Returns once something other than a beat may have changed since `seen`, or after `patience`.
  virtual void wait(const Seen& seen, Duration patience) = 0;
  // Makes `own` the host's record, if nothing has changed since `seen`. False: something has.
  virtual Result<bool> take(const Seen& seen, const HostRecord& own) = 0;
  // Of the host: replaces the job's record, if the host's record is still `own` and the job's still
  // `before`. False: it is not. With an ending it may also give up the host's record, and the job's
  // goes by itself after `remember`, where the keeper can do that.
  virtual Result<bool> write(const HostRecord& own, const JobRecord& before, const JobRecord& now,
                             Duration remember) = 0;
  // Of the host: renews its lease. gone: its lease was over, and nobody has followed it.
  virtual Result<Beat> beat(const HostRecord& own) = 0;
  // Of the host: removes its record, if it is still `own`. Not the job's, unless that has ended:
  // others may go on from there.
  virtual void leave(const HostRecord& own) = 0;

  // Of any thread: the call in progress ends at once. Only leave() may be called after it.
  virtual void cancel() {}
};

}  // namespace muster
