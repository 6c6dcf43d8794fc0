// Set-up of the memory that the ranks of a node share: the first rank makes a memfd and listens on
// an abstract Unix socket with a random name; the others connect and receive the descriptor
// (SCM_RIGHTS, unix(7)). Both check the other's user (SO_PEERCRED). Blocks; leaves no socket open.
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

class FdGiver {
 public:
  static Outcome<FdGiver> listen();
  const std::string& name() const { return name_; }
  // Hands `fd` to all other ranks of `local`. A time-out names the missing ranks.
  Outcome<> give(int fd, const Members& local, Deadline deadline, const Interrupted& interrupted);

 private:
  FdGiver(UniqueFd listener, std::string name)
      : listener_(std::move(listener)), name_(std::move(name)) {}
  UniqueFd listener_;
  std::string name_;
};

// Receives the descriptor that the first rank of `local` hands over.
Outcome<UniqueFd> take_fd(const std::string& name, const Members& local, Deadline deadline,
                          const Interrupted& interrupted);

// Collective over `local` (a group's members on this node, by group rank): makes their segment.
// Uses the key "segment/<rank>". REQUIRES: equal shapes; shape.ranks == local.size().
Outcome<std::shared_ptr<Segment>> meet_in_segment(GroupSetup& setup, const Members& local,
                                                  const SegmentShape& shape);

}  // namespace muster::worker
