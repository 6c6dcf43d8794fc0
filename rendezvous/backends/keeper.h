// Holds, outside of a job's nodes, which of them is its host, and its newest round: a file on a
// shared disk, or etcd. A register with compare-and-set: the first node to replace what all have
// seen is the next host, or sets the next round. A keeper only stores; the Hosting machine decides.
//
// All calls block, for a few seconds at most, and come from one helper thread at a time. They fail
// with ExitCode::environment if trying again is useless, otherwise with ExitCode::rendezvous; after
// a failure it is unknown whether a change was made, and the same call may be repeated.
#pragma once

#include <optional>
#include <string>

#include "rendezvous/backends/host_record.h"
#include "rendezvous/base/error.h"
#include "rendezvous/base/time.h"

namespace muster {

class Keeper {
 public:
  struct Seen {
    std::string version;             // Opaque; changes with every change but a beat.
    std::optional<HostRecord> host;  // nullopt: none, or the keeper itself has ended its lease.
    JobRecord job;
    friend bool operator==(const Seen&, const Seen&) = default;
  };
  enum class Beat { kept, gone, replaced };

  virtual ~Keeper() = default;

  virtual Result<Seen> look() = 0;
  // Returns once anything but a beat may have changed since `seen`, or after `patience`.
  virtual void wait(const Seen& seen, Duration patience) = 0;
  // Makes `own` the host's record; false if something has changed since `seen`.
  virtual Result<bool> take(const Seen& seen, const HostRecord& own) = 0;
  // Replaces the job's record; false unless the host's is still `own` and the job's `before`. On an
  // ending etcd also removes the host's record, and the job's after `remember`.
  virtual Result<bool> write(const HostRecord& own, const JobRecord& before, const JobRecord& now,
                             Duration remember) = 0;
  // Renews the host's lease. gone: its lease was over, and no host has followed it.
  virtual Result<Beat> beat(const HostRecord& own) = 0;
  // Removes the host's record, if it is still `own`. A file goes as a whole; etcd keeps the job's
  // record, from which others may go on.
  virtual void leave(const HostRecord& own) = 0;

  // Ends the call in progress at once; on any thread. Only leave() may be called after it.
  virtual void cancel() {}
};

}  // namespace muster
