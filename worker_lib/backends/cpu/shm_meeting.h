// How the ranks of a node get to share memory: the first of them makes a memfd and listens on an
// abstract Unix socket with a random name; the others connect and receive the descriptor
// (SCM_RIGHTS, unix(7)). Both ends check the other's user (SO_PEERCRED). Blocks the calling thread,
// up to a deadline; no socket stays open.
#pragma once

#include <memory>
#include <string>

#include "rendezvous/base/unique_fd.h"
#include "worker_lib/backends/backend.h"
#include "worker_lib/backends/cpu/segment.h"
#include "worker_lib/failure.h"
#include "worker_lib/members.h"
#include "worker_lib/operation.h"

namespace muster::worker {

// The rank that hands over the descriptor.
class FdGiver {
 public:
  static Outcome<FdGiver> listen();
  // The name to which takers connect.
  const std::string& name() const { return name_; }
  // Hands `fd` to all others of `local`; returns when all have it. A time-out names missing ranks.
  Outcome<> give(int fd, const Members& local, Deadline deadline, const Interrupted& interrupted);

 private:
  FdGiver(UniqueFd listener, std::string name)
      : listener_(std::move(listener)), name_(std::move(name)) {}
  UniqueFd listener_;
  std::string name_;
};

// The other end, of what the first of `local` gives.
Outcome<UniqueFd> take_fd(const std::string& name, const Members& local, Deadline deadline,
                          const Interrupted& interrupted);

// Collective over the ranks of `local` (those of a group on this node, in the order of their group
// ranks; me is an index among them): makes their segment. Uses the key "segment/<rank>". All pass
// the same shape; shape.ranks is local.size().
Outcome<std::shared_ptr<Segment>> meet_in_segment(GroupSetup& setup, const Members& local,
                                                  const SegmentShape& shape);

}  // namespace muster::worker
