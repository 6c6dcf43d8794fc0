// Collectives between the ranks of a group on one node, through their Segment. Every call has at
// least one meeting: each rank writes its call into its line of the segment and waits for the lines
// of all others, so a mismatch is reported before data moves, and a time-out names missing ranks.
// Calls of up to SegmentShape::small_bytes carry their data along and end there; larger ones are
// pipelined in chunks (shm_exchange.cc, shm_reduction.cc), or read in place if the buffers are in
// memory from allocate_shared().
//
// One ShmGroup per rank and group. run(), check() and allocate_shared() from one thread at a time;
// abort() and awaited() from any. After the first failure the group stays failed on all its ranks:
// the rank that detects it aborts the segment. Exceptions: a time-out, which the owner reports once
// the ranks to blame are known, and a mismatch, which all ranks detect.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "worker_lib/backends/backend.h"
#include "worker_lib/backends/cpu/segment.h"
#include "worker_lib/backends/cpu/shm_meeting.h"
#include "worker_lib/failure.h"
#include "worker_lib/members.h"
#include "worker_lib/operation.h"

namespace muster::worker {

class SharedRegions;
class ShmCall;
struct Route;

class ShmGroup {
 public:
  // `local`: the segment's ranks in its order, and the index of this rank. Roots, counts etc. of
  // operations refer to these indices. REQUIRES: at least two ranks.
  ShmGroup(std::shared_ptr<Segment> segment, Members local);
  ~ShmGroup();
  ShmGroup(ShmGroup&&) = delete;

  // Performs any collective on host memory. Returns when this rank's result is in place and the
  // others no longer read its buffers. Calls with equal counts do not allocate.
  Outcome<> run(const Operation& operation, Deadline deadline);

  // Meets and compares the calls but moves no data, so that a mismatch in a composed operation is
  // reported as the user wrote it, before its parts begin.
  Outcome<> check(const Operation& operation, Deadline deadline);

  // Collective. Operations on buffers in the returned memory need no copies.
  Outcome<SharedBlock> allocate_shared(size_t bytes, Deadline deadline);

  // The ranks that the current call waits for: those that have not reached it, else all others.
  std::vector<int> awaited() const;

  void abort(const Failure& failure) { segment_->abort(failure); }

  const Members& local() const { return local_; }
  // Replaces the default patience. REQUIRES: no call is running.
  void set_patience(Patience patience) { patience_ = patience; }

 private:
  ShmCall begin(const Operation& operation, Deadline deadline);
  Outcome<> end(ShmCall& call, bool good);
  Outcome<UniqueFd> hand_round(size_t bytes, Deadline deadline);
  Outcome<> agree(const Outcome<std::byte*>& mapped, Deadline deadline);
  Failure end_for_all(Failure failure);

  std::shared_ptr<Segment> segment_;
  Members local_;
  Patience patience_ = kPatience;
  std::shared_ptr<SharedRegions> regions_;
  uint64_t sequence_ = 0;     // Number of the last call in this segment.
  uint64_t step_base_ = 0;    // CallLine::step_base of this rank's next call.
  uint64_t last_staged_ = 0;  // Last call in which chunk slots were used.
  uint64_t last_region_ = 0;  // Number of the last region.
  // Reused, so that calls do not allocate.
  std::vector<Route> routes_;
  std::vector<const std::byte*> inputs_;
};

}  // namespace muster::worker
